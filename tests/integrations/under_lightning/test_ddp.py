"""Two gloo processes under `strategy="ddp"` train and evolve the population that one process does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch


ROOT = Path(__file__).resolve().parents[3]


def run(folder, processes, checkpoint=""):
    folder.mkdir()
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--standalone"]
    script = str(Path(__file__).with_name("ddp_rank.py"))
    done = subprocess.run(
        [sys.executable, *(launcher if processes > 1 else []), script, str(folder), str(processes), str(checkpoint)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    weights = [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(processes)]
    return weights, [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(processes)]


@pytest.mark.slow
def test_two_processes_equal_one_and_are_resumed_exactly(tmp_path):
    (alone,), (record,) = run(tmp_path / "one", 1)
    both, records = run(tmp_path / "two", 2)
    assert [r["world"] for r in (record, *records)] == [1, 2, 2]
    for name, parameters in alone.items():
        for single, first, second in zip(parameters, both[0][name], both[1][name], strict=True):
            assert torch.equal(first, second), name  # replicas stay equal, children too
            torch.testing.assert_close(first, single, rtol=1e-3, atol=1e-5)
    assert records[0]["events"] == records[1]["events"] and len(record["events"]) == 2
    decided = [[(e["step"], e["slot"], e["operator"], e["parents"]) for e in r["events"]] for r in (record, *records)]
    assert decided[0] == decided[1] == decided[2]
    assert records[0]["metrics"] == pytest.approx(record["metrics"], rel=1e-4)
    assert len((tmp_path / "two" / "lineage.jsonl").read_text().splitlines()) == 2

    again, resumed = run(tmp_path / "again", 2, tmp_path / "two" / "step=3.ckpt")
    assert resumed[0]["events"] == records[0]["events"] and resumed[0]["metrics"] == records[0]["metrics"]
    for name, parameters in both[0].items():
        assert all(torch.equal(a, b) for a, b in zip(parameters, again[0][name], strict=True)), name
