"""`benchmarks/member_scaling.py` runs from end to end and writes what docs/performance.md quotes."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch


ROOT = Path(__file__).resolve().parents[2]


def test_growth_and_peak_are_those_of_64_members(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from member_scaling import summary

    made = [
        {"members": 8, "ratio": {"ours": 2.0}, "cpu_ratio": {"ours": 0.8}, "seconds": 1.0, "peak_mib": 9000.0},
        {"members": 64, "ratio": {"ours": 3.0}, "cpu_ratio": {"ours": 1.0}, "seconds": 2.0, "peak_mib": 6656.0},
    ]
    others = {"update_per_member": made, "generate": made, "step": []}
    growth = [{"members": [8, 64], "ratios": [1.5, 1.04, 0.9]}]
    numbers = summary({"update": made, "growth": growth, **others})
    assert numbers["growth_8_64"] == pytest.approx(0.04) and numbers["peak_gib_64"] == 6.5
    assert numbers["member_cost_64_over_8"] == pytest.approx(1.25)
    growth = [{"members": [1, 8], "ratios": [1.5]}]
    numbers = summary(
        dict.fromkeys(("update", "update_per_member", "generate"), made[:1]) | {"growth": growth, "step": []}
    )
    assert numbers["growth_8_64"] is None and numbers["peak_gib_64"] is None


def test_rewards_of_random_ids_differ_in_nearly_every_group(monkeypatch):
    """Of a large vocabulary without text: what the trainer learns from is left out where rewards are equal."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from base_shapes import byte_tokenizer
    from member_steps import varied

    ids = torch.randint(152064, (300, 64), generator=torch.Generator().manual_seed(0)).tolist()
    texts = byte_tokenizer().batch_decode(ids, skip_special_tokens=True)
    assert sum(text == "" for text in texts) > 200
    rewards = varied(completion_ids=ids, completions=texts)
    groups = [rewards[start : start + 3] for start in range(0, 300, 3)]
    assert sum(len(set(group)) > 1 for group in groups) > 95 and all(0 <= reward < 1 for reward in rewards)


@pytest.mark.slow
def test_a_step_of_a_large_vocabulary_learns_from_its_rows(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from base_shapes import SHAPES
    from member_scaling import Bench
    from member_steps import whole_step

    monkeypatch.setitem(SHAPES, "wide", type(SHAPES["tiny"])(**SHAPES["tiny"].to_dict() | {"vocab_size": 152064}))
    sizes = {"device": "cpu", "layers": None, "rank": 4, "rows": 4, "tokens": 16, "new_tokens": 8}
    sizes["gradient_checkpointing"] = False
    row = whole_step(Bench(Namespace(model="wide", **sizes)), 2, prompts=2, generations=3)
    assert row["rows"] == 24 and row["learned"] >= 20


@pytest.mark.slow
def test_quick_run_writes_every_number(tmp_path):
    target = tmp_path / "scaling.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "member_scaling.py"), "--quick", "--model", "tiny"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(
        [*command, "--json", str(target)], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(target.read_text())
    assert [row["members"] for row in result["update"]] == [1, 2, 8]
    assert set(result["update"][2]["ratio"]) == {"ours", "sequential", "mixed"}
    assert set(result["generate"][2]["tokens_per_s"]) == {"one", "base", "ours"}
    assert [row["rows"] for row in result["update_per_member"]] == [1, 2, 8]
    for row in result["update"] + result["generate"]:
        assert row["rows"] == 16 and all(value > 0 for value in (*row["seconds"].values(), *row["ratio"].values()))
    (growth,) = result["growth"]
    assert growth["members"] == [1, 8] and len(growth["ratios"]) == 5 and min(growth["ratios"]) > 0
    assert result["update_ratio_8"] == result["update"][2]["ratio"]["ours"]
    assert result["generate_ratio_8"] == result["generate"][2]["ratio"]["ours"]
    of_64 = ("overhead_share_64", "member_cost_64_over_8", "growth_8_64", "peak_gib_64")
    assert all(result[key] is None for key in of_64)  # 64 members are not in a quick run
    assert [(row["members"], row["rows"]) for row in result["step"]] == [(1, 6), (2, 6)]
    for row in result["step"]:
        assert {"generate", "forward", "backward", "clip", "optimizer"} <= row["parts"].keys()
        assert 3 <= row["learned"] <= row["rows"]
        assert sum(row["parts"].values()) < row["seconds"] and 0 < row["optimizer_share"] < row["overhead_share"] < 1
    assert result["step_row_ratio"]["1"] == 1.0 and result["step_row_ratio"]["2"] > 0
