"""Two gloo processes train the same population as one process does."""

import json
import os
import subprocess
import sys

import torch


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(folder, processes):
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--standalone"]
    environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(
        [*command, os.path.join(ROOT, "tests", "training", "two_processes.py"), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = range(processes)
    weights = [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in ranks]
    return weights, [json.loads((folder / f"rank{rank}.json").read_text()) for rank in ranks]


def test_two_processes_equal_one(tmp_path):
    alone, (record,) = run(tmp_path / "one", 1)
    both, records = run(tmp_path / "two", 2)
    assert [r["processes"] for r in records] == [2, 2]
    for name, parameters in both[0].items():
        for first, second, single in zip(parameters, both[1][name], alone[0][name], strict=True):
            assert torch.equal(first, second), name  # replicas stay equal, children too
            torch.testing.assert_close(first, single, rtol=1e-3, atol=1e-5)
    assert record["lineage"] and records[0]["lineage"] == records[1]["lineage"]
    assert [e["slot"] for e in record["lineage"]] == [e["slot"] for e in records[0]["lineage"]]
    assert records[0]["texts"] == records[1]["texts"] == record["texts"]
    assert records[0]["executed"] == record["executed"]
    run_folder = tmp_path / "two" / "run"
    assert (run_folder / "checkpoint-2" / "trainer_state.json").is_file()
    assert len((run_folder / "history.jsonl").read_text().splitlines()) == 3
