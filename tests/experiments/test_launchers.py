"""Jobs for SLURM and for a shell: one command each, which runs that job alone."""

import os
import shlex
import signal
import subprocess
import sys
import threading

import pytest

from trl_populora.experiments.launchers import SlurmJob, only_command, printed, slurm_executor, submit, warning


ENDS_WHEN_ASKED = """
import signal, sys, threading
asked = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: asked.set())
open(sys.argv[1], "w").close()
asked.wait(60)
open(sys.argv[2], "w").write("saved")
"""


def test_a_printed_command_runs_one_job_from_here(plan):
    text = printed("my plan.yaml", plan.read().job("two/1"))
    assert text.startswith(f"cd {shlex.quote(os.getcwd())} && ") and text.endswith(
        "experiment 'my plan.yaml' --only two/1"
    )
    assert only_command("a.yaml", plan.read().job("two/1"))[:3] == [sys.executable, "-m", "trl_populora.cli"]


def test_every_job_is_handed_in_once(plan):
    class Executor:
        def submit(self, function):
            jobs.append(function)
            return type("Submitted", (), {"job_id": f"7_{len(jobs)}"})

    jobs = []
    experiment = plan.read()
    assert submit(experiment, "a.yaml", experiment.all_jobs[:2], Executor()) == {"one/0": "7_1", "two/0": "7_2"}
    assert [job.command[-1] for job in jobs] == ["one/0", "two/0"]


def test_a_job_that_fails_fails_for_slurm_too():
    assert SlurmJob([sys.executable, "-c", ""])() == 0
    with pytest.raises(RuntimeError, match="exit code 3"):
        SlurmJob([sys.executable, "-c", "raise SystemExit(3)"])()


def test_at_the_time_limit_the_command_is_asked_to_end(tmp_path):
    """Before submitit queues the job again, after which SLURM kills. The signal of SLURM reaches the command, too."""
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    os.mkfifo(begun)
    job = SlurmJob([sys.executable, "-c", ENDS_WHEN_ASKED, str(begun), str(ended)], patience=60)

    def reach_limit(number, frame):
        os.kill(job.process.pid, number)
        assert job.checkpoint().function == SlurmJob(job.command, 60) and ended.read_text() == "saved"
        raise SystemExit(-1)

    before = signal.signal(signal.SIGUSR2, reach_limit)
    waiting = threading.Thread(target=lambda: (begun.read_text(), os.kill(os.getpid(), signal.SIGUSR2)))
    try:
        waiting.start()
        with pytest.raises(SystemExit):
            job()
    finally:
        waiting.join()
        signal.signal(signal.SIGUSR2, before)


def test_a_command_that_does_not_end_is_submitted_again_all_the_same():
    pytest.importorskip("submitit", reason="submitit is not installed")
    job = SlurmJob([], patience=0.0)
    job.process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert job.process.stdout.readline() == b"1\n"
        assert job.checkpoint().function == SlurmJob([]) and job.process.poll() is None
    finally:
        job.process.kill()
        job.process.communicate()


@pytest.mark.parametrize(("limit", "seconds"), [({}, 75), ({"timeout_min": 10}, 150), ({"timeout_min": 600}, 300)])
def test_short_jobs_are_not_told_to_save_at_their_start(limit, seconds):
    assert warning(limit) == seconds


def test_without_submitit_the_fix_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ValueError, match=r"pip install 'trl-populora\[slurm\]'"):
        slurm_executor(str(tmp_path), {})


@pytest.mark.slow
def test_submitits_own_executor_runs_and_hands_in_again(tmp_path):
    submitit = pytest.importorskip("submitit", reason="submitit is not installed")
    with pytest.raises(ValueError, match="slurm=.*'colour'"):
        slurm_executor(str(tmp_path), {"colour": 1}, cluster="local")
    executor = slurm_executor(str(tmp_path), {"timeout_min": 2}, cluster="local")
    left = tmp_path / "left"
    job = executor.submit(SlurmJob([sys.executable, "-c", f"open({str(left)!r}, 'w').write('done')"]))
    assert job.result() == 0 and left.read_text() == "done"
    again = SlurmJob(["a"]).checkpoint()
    assert isinstance(again, submitit.helpers.DelayedSubmission) and again.function == SlurmJob(["a"])


def test_a_run_of_many_time_limits_is_handed_in_again_each_time(plan, monkeypatch):
    """submitit's default is three times. `sbatch` is a script that takes every job."""
    utils = pytest.importorskip("submitit.core.utils", reason="submitit is not installed")
    for name in ("srun", "sbatch"):
        (plan.folder / name).write_text("#!/bin/sh\necho Submitted batch job 12\n")
        (plan.folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(plan.folder), prepend=os.pathsep)
    for slurm, times in (({}, 100), ({"timeout_min": 5, "max_num_timeout": 7}, 7)):
        experiment = plan.read(slurm=slurm)
        assert submit(experiment, "a.yaml", experiment.all_jobs[:1]) == {"one/0": "12"}
        (submitted,) = (plan.folder / "out" / "submitted").glob("12_submitted.pkl")
        assert utils.DelayedSubmission.load(submitted)._timeout_countdown == times


def test_slurm_is_missing_here(tmp_path):
    pytest.importorskip("submitit", reason="submitit is not installed")
    if subprocess.run(["which", "sbatch"], capture_output=True).returncode == 0:
        pytest.skip("there is SLURM here")
    with pytest.raises(ValueError, match="--launcher print"):
        slurm_executor(str(tmp_path), {})
