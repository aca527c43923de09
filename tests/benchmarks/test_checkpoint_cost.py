"""`benchmarks/checkpoint_cost.py` runs from end to end, and both ways write the same bytes."""

import json
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_both_ways_write_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    from checkpoint_cost import main

    target = tmp_path / "checkpoints.json"
    command = ["checkpoint_cost", "--model", "tiny", "--members", "3", "--repeats", "1", "--json", str(target)]
    monkeypatch.setattr(sys, "argv", command)
    main()
    written = json.loads(target.read_text())
    assert written["same_bytes"] and written["cpu_ratio"]["ours"] > 0
    assert written["grown_mib"].keys() == {"one", "ours"} and written["settings"]["members"] == 3
