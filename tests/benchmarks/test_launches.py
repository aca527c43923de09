"""`benchmarks/launches.py`: what docs/performance.md says of the launches of an update."""

import json
import sys
from pathlib import Path

import pytest
import torch


ROOT = Path(__file__).resolve().parents[2]


COPIES = dict.fromkeys(("clone", "copy_"))  # the gradient of one member is copied into its layout by another of them


@pytest.mark.slow
def test_launches_are_counted_and_do_not_grow_with_the_members(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import launches

    monkeypatch.setattr(launches, "LAYERS", 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    path = tmp_path / "launches.json"
    monkeypatch.setattr(sys, "argv", [*"launches.py --members 1 4 --rows 4 --repeats 1 --json".split(), str(path)])
    launches.main()
    found = json.loads(path.read_text())
    for kind, few in (("updates", 100), ("tokens", 28)):  # a token: at least two products for each adapted layer
        one, four = found[kind]
        assert one["launches"] == four["launches"] and one["launches"]["ours"] < one["launches"]["one"]
        assert one["launches"]["ours"] == sum(one["operations"]["ours"].values()) > few
    assert four["operations"]["ours"]["baddbmm_"] == 14  # nothing beside the products and the base
    one, four = found["updates"]
    assert {**one["operations"]["ours"], **COPIES} == {**four["operations"]["ours"], **COPIES}
    ours = one["operations"]["ours"]  # of 14 adapted layers, each in the forward and again in the backward
    # the checkpoint does not repeat the last one of a block: nothing keeps its result
    assert ours["baddbmm"] == 2 * 14 - 2 and not {"view", "empty", "_unsafe_view", "detach"} & ours.keys()
    one, four = found["syncs"]  # for an adapter, whatever its layers; a sum for each piece of it
    assert one["launches"]["pack"] == 3 and one["launches"]["sums"] <= 12
    assert four["launches"] == {name: 4 * count for name, count in one["launches"].items()}


def test_what_only_looks_at_memory_is_not_counted(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from launches import Launches

    with Launches() as counted:
        x = torch.empty(2, 3).fill_(1.0)
        x.view(3, 2).mT[0].add_(x.sum())
    assert counted.counts == {"fill_": 1, "sum": 1, "add_": 1}
