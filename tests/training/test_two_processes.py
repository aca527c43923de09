"""Two gloo processes train the same population as one process does; what goes wrong on one of them ends all."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import torch

from tests.generation.fake_server import ModelServer, running
from tests.processes import run_ranks, taken
from tests.tiny import tiny_model
from tests.training.two_processes import main
from trl_populora.generation.engines import VLLM
from trl_populora.reporting import read_history, read_probes
from trl_populora.reporting.tables import compute_totals


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def launch(folder, processes, *arguments, **environment):
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--standalone"]
    own = {"PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **environment}
    return subprocess.run(
        [*command, os.path.join(ROOT, "tests", "training", "two_processes.py"), str(folder), *arguments],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def run(folder, processes, *arguments):
    folder.mkdir()
    run_ranks(main, processes, str(folder), *arguments, folder=folder)
    ranks = range(processes)
    weights = [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in ranks]
    return weights, [json.loads((folder / f"rank{rank}.json").read_text()) for rank in ranks]


def close(first, second):
    for name, parameters in first.items():
        for a, b in zip(parameters, second[name], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


BALANCED = {"balance_rows": True, "advantage": "role_task"}
PROBED = {"eval_strategy": "steps", "eval_steps": 2, "probe_kwargs": {"exams": ["held_out[:5]"], "founders": 1}}
RECOMBINED = {"recombination_interval": 1, "evolution_interval": 0}
MASKED = {"evolution_interval": 1, "evolution_kwargs": {"operators": ["component_masking"]}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [{}, BALANCED, PROBED, BALANCED | PROBED | MASKED | {"share_prompts": True}, RECOMBINED],
    ids=["plain", "balanced", "probed", "all of it", "recombined"],
)
def test_two_processes_equal_one(tmp_path, more):
    alone, (record,) = run(tmp_path / "one", 1, "3", "2", "", "", json.dumps(more))
    both, records = run(tmp_path / "two", 2, "3", "2", "", "", json.dumps(more))
    assert [r["processes"] for r in records] == [2, 2]
    for name, parameters in both[0].items():
        for first, second, single in zip(parameters, both[1][name], alone[0][name], strict=True):
            assert torch.equal(first, second), name  # replicas stay equal, children too
            torch.testing.assert_close(first, single, rtol=1e-3, atol=1e-5)
    assert bool(record["lineage"]) == (more is not RECOMBINED) and records[0]["lineage"] == records[1]["lineage"]
    assert [e["slot"] for e in record["lineage"]] == [e["slot"] for e in records[0]["lineage"]]
    assert records[0]["texts"] == records[1]["texts"] == record["texts"]
    assert records[0]["executed"] == record["executed"]
    run_folder = tmp_path / "two" / "run"
    assert (run_folder / "checkpoint-2" / "trainer_state.json").is_file()
    histories = [read_history(tmp_path / kind / "run") for kind in ("one", "two")]
    assert len(histories[1]) == 3 and compute_totals(histories[0]) == compute_totals(histories[1])
    probes = [read_probes(tmp_path / kind / "run") for kind in ("one", "two")]
    assert [one["step"] for one in probes[1]] == ([0, 2, 3] if "probe_kwargs" in more else [])
    assert [(one["exams"], one["founders"]) for one in probes[0]] == [
        (one["exams"], one["founders"]) for one in probes[1]
    ]


@pytest.mark.slow
def test_two_processes_on_two_servers_of_which_one_is_lost(tmp_path):
    """Each process has its own connections to both servers, and finds out by itself. The rows are those of one process
    on one server, and the adapters are loaded by the first process only."""

    def on(*servers):
        urls = [server.url for server in servers]
        where = {"use_vllm": True, "vllm_mode": "server", "vllm_server_timeout": 20.0, "vllm_server_base_urls": urls}
        return "3", "2", "", "", json.dumps(where)

    def server():
        return running(ModelServer(VLLM, base=tiny_model().eval(), max_model_length=1024))

    with server() as one, server() as lost:
        _, (alone,) = run(tmp_path / "one", 1, *on(one))
        loaded = len(one.double.history)
        complete, drawn = lost.complete, []

        def dies(body):
            drawn.append(body)
            if len(drawn) < 40:
                return complete(body)
            lost.answers = dict.fromkeys(lost.answers, (None, ""))
            return None, ""

        lost.answers["/v1/completions"] = dies
        _, both = run(tmp_path / "two", 2, *on(one, lost))
        assert [record["texts"] for record in both] == [alone["texts"]] * 2
        assert loaded and len(one.double.history) == 2 * loaded
    for rank in (0, 1):
        told = (tmp_path / "two" / f"process{rank}.log").read_text()
        assert told.count(f"It is left out; its rows go to the vLLM server at {one.url}.") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_resume_with_another_number_of_processes(before, after, tmp_path):
    """Rows, executor jobs and decisions come from (seed, round), whoever draws them."""
    (whole,), (record,) = run(tmp_path / "whole", 1, "4", "4")
    run(tmp_path / "first", before, "4", "4" if before == 1 else "2")
    checkpoint = str(tmp_path / "first" / "run" / "checkpoint-2")
    weights, records = run(tmp_path / "second", after, "4", "4" if after == 1 else "2", checkpoint)
    assert records[0]["texts"] == record["texts"]
    assert [e["slot"] for e in records[0]["lineage"]] == [e["slot"] for e in record["lineage"]]
    close(weights[0], whole)


@pytest.mark.slow
def test_the_launcher_of_torch(tmp_path):
    done = launch(tmp_path / "run", 2, "1", "2")
    assert done.returncode == 0, done.stderr[-3000:]
    assert [json.loads((tmp_path / "run" / f"rank{rank}.json").read_text())["processes"] for rank in (0, 1)] == [2, 2]


@pytest.mark.slow
def test_one_rank_decides_where_to_resume(tmp_path):
    """Also where the others see other files, which the folder of rank 1 stands for."""
    assert launch(tmp_path / "run", 2, "2", "2").returncode == 0
    run = tmp_path / "run" / "run"
    shutil.copytree(run / "checkpoint-2", run / "checkpoint-3")
    os.truncate(run / "checkpoint-3" / "optimizer.pt", 10)
    done = launch(tmp_path / "run", 2, "3", "2", "auto")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("checkpoint-3 is passed over") == done.stderr.count("checkpoint-3 is put aside") == 1
    os.truncate(run / "checkpoint-2" / "optimizer.pt", 10)
    shutil.rmtree(run / "checkpoint-3", ignore_errors=True)
    refused = launch(tmp_path / "run", 2, "4", "2", "auto")
    assert refused.returncode != 0
    assert refused.stderr.count("checkpoint-2' is not a complete checkpoint") == 2, refused.stderr[-3000:]


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_job_and_leaves_nothing_behind(tmp_path):
    mark = uuid.uuid4().hex
    done = launch(tmp_path / "run", 2, "4", "2", "", "dies", POPULORA_TEST_MARK=mark)
    assert done.returncode != 0
    assert "SIGKILL" in done.stderr, done.stderr[-2000:]
    alive = [pid for pid in Path("/proc").glob("[0-9]*") if mark in _environment(pid)]
    assert not alive, "fork servers or ranks outlived the job"


@pytest.mark.slow
def test_replicas_that_differ_end_the_job_with_the_reason(tmp_path):
    done = launch(tmp_path / "run", 2, "4", "2", "", "differs")
    assert done.returncode != 0
    assert "After step 2 the ranks no longer hold the same weights of student_0" in done.stderr


@pytest.mark.slow
def test_the_first_rank_ends_training_for_all(tmp_path):
    _, records = run(tmp_path / "run", 2, "4", "2", "", "stops")
    assert [record["step"] for record in records] == [2, 2]


@pytest.mark.slow
def test_the_first_rank_asks_for_checkpoints_and_a_probe(tmp_path):
    more = json.dumps(PROBED | {"save_strategy": "no", "eval_steps": 100})
    _, records = run(tmp_path / "run", 2, "4", "2", "", "asks", more)
    assert [record["step"] for record in records] == [2, 2]
    found = sorted(path.name for path in (tmp_path / "run" / "run").glob("checkpoint-*"))
    assert found == ["checkpoint-1", "checkpoint-2"]
    assert [record["step"] for record in read_probes(tmp_path / "run" / "run")] == [0, 2]


@pytest.mark.slow
def test_the_first_rank_ends_training_after_the_first_probe(tmp_path):
    more = json.dumps(PROBED | {"save_strategy": "no"})
    _, records = run(tmp_path / "run", 2, "4", "2", "", "asks at once", more)
    assert [record["step"] for record in records] == [0, 0]


REWARDS = """
import os

if os.environ["RANK"] == "1":
    raise ValueError("this machine has no grader")


def zero(completions, **kwargs):
    return [0.0] * len(completions)
"""


@pytest.mark.slow
def test_who_has_a_mistake_tells_it(tmp_path):
    """One of rank 1 alone, which the first never learns of; and one of the first, for which the others wait."""
    (tmp_path / "own_rewards.py").write_text(REWARDS)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1 + 1 ="}\n')
    settings = {"model_name_or_path": "none", "num_teachers": 0, "num_students": 2, "use_cpu": True, "bf16": False}
    settings |= {"dataset_name": str(tmp_path / "rows.jsonl"), "reward_funcs": ["own_rewards.zero"], "max_steps": 1}
    settings |= {"output_dir": str(tmp_path / "run"), "evolution_interval": 0, "per_device_train_batch_size": 1}
    (tmp_path / "recipe.yaml").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone", "-m"]
    command += ["trl_populora.train", "--config", str(tmp_path / "recipe.yaml")]

    def told():
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode != 0
        return done.stderr

    assert "populora: error (rank 1): " in (words := told()) and "this machine has no grader" in words, words[-3000:]
    (tmp_path / "run").mkdir()
    with taken(tmp_path / "run"):
        words = told()
    assert words.count("populora: error") == 1 and "another run trains there" in words, words[-3000:]
    assert "rank1]: Traceback" not in words and "Connection closed" not in words


def _environment(process: Path) -> str:
    try:
        return (process / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""
