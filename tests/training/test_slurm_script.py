"""Whole runs in processes of their own that get SIGTERM: under the SLURM script of the examples, and by accelerate."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import write_recipe
from tests.training.test_resume import files


pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 4
SRUN = """#!{python}
import os, subprocess, sys
ranks = [{{"SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)}} for i in range(2)]
tasks = [subprocess.Popen(sys.argv[2:], env=os.environ | rank) for rank in ranks]
with open("pids", "w") as file:
    file.write(" ".join(str(task.pid) for task in tasks))
sys.exit(max(task.wait() % 256 for task in tasks))
"""
SCONTROL = """#!/bin/sh
[ "$1" = show ] && echo localhost || echo "$@" >> requeued
"""


@pytest.fixture
def slurm(tmp_path, tiny_model):
    """`slurm(job)`: starts the script as SLURM does, with two tasks and a queue that is a file."""
    (tmp_path / "bin").mkdir()
    for name, text in (("srun", SRUN.format(python=sys.executable)), ("scontrol", SCONTROL)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    recipe = write_recipe(
        tmp_path, tiny_model, max_steps=ROUNDS, num_students=2, num_teachers=2, evolution_interval=2, plots=False
    )[1]

    def start(job, output, *command):
        path = f"{tmp_path / 'bin'}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        own = {"PATH": path, "PYTHONPATH": str(ROOT), "SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_ID": str(job)}
        own |= {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_CPUS_PER_TASK": "1", "OMP_NUM_THREADS": "1"}
        command = command or ("bash", str(ROOT / "examples" / "slurm" / "train.sbatch"), recipe, str(output))
        log = open(tmp_path / "log", "ab")  # noqa: SIM115
        return subprocess.Popen(command, cwd=tmp_path, env=os.environ | own, stdout=log, stderr=log)

    start.recipe = recipe
    return start


def wait_for_round(process, output, log):
    """Until the run has ended a round, and is in the next."""
    while not (output / "history.jsonl").exists() or not (output / "history.jsonl").read_text():
        with pytest.raises(subprocess.TimeoutExpired):  # a run that ends before has failed
            process.wait(timeout=0.05)
            pytest.fail(log.read_text()[-3000:])


def final(folder):
    """What a run leaves, without clocks."""
    state = json.loads((folder / "self_play.json").read_text())
    state["probes"]["elapsed"] = None
    weights = {path.parent.name: path.read_bytes() for path in folder.glob("*_*/adapter_model.safetensors")}
    assert len(weights) == 4
    return weights, state, files(folder), json.loads((folder / "population.json").read_text())


def test_the_slurm_script_requeues_a_stopped_run_and_ends_it_as_if_never_stopped(slurm, tmp_path):
    """One task of two gets the signal."""
    log, queue, run, whole = (tmp_path / name for name in ("log", "requeued", "run", "whole"))
    assert slurm(20001, whole).wait() == 0, log.read_text()[-3000:]
    assert not queue.exists()

    first = slurm(20002, run)
    wait_for_round(first, run, log)
    os.kill(int((tmp_path / "pids").read_text().split()[1]), signal.SIGTERM)
    assert first.wait() == 0, log.read_text()[-3000:]
    (checkpoint,) = run.glob("checkpoint-*")
    step = int(checkpoint.name.removeprefix("checkpoint-"))
    assert 0 < step < ROUNDS and not (run / "population.json").exists()
    line = f"Stopped by SIGTERM after step {step}. resume_from_checkpoint=auto goes on from {checkpoint}."
    assert log.read_text().count(line) == 1
    assert queue.read_text() == "requeue 20002\n"

    assert slurm(20002, run).wait() == 0, log.read_text()[-3000:]
    assert queue.read_text() == "requeue 20002\n"
    assert final(run) == final(whole)


def test_a_run_by_accelerate_launch_ends_with_status_0_and_goes_on(slurm, tmp_path):
    """Its processes get the signal, as from SLURM. One of two is enough."""
    log, run = tmp_path / "log", tmp_path / "run"
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]  # starts several, also on a CPU
    command += "--num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no".split()
    command += ["--main_process_port", "0"]
    command += ["-m", "trl_populora.train", "--config", slurm.recipe, "--resume_from_checkpoint", "auto"]
    process = slurm(1, run, *command)
    wait_for_round(process, run, log)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ranks = [pid for pid in children if b"RANK=0" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
    os.kill(int(ranks[0]), signal.SIGTERM)
    assert process.wait() == 0, log.read_text()[-3000:]
    assert "Stopped by SIGTERM after step" in log.read_text() and not (run / "population.json").exists()
    assert slurm(1, run, *command).wait() == 0, log.read_text()[-3000:]
    assert (run / "population.json").exists() and files(run)[0][-1]["round"] == ROUNDS - 1
