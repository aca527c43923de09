"""What docs/performance.md says of `torch.compile`: routing is one graph, and is compiled again for other members."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


PROGRAM = """
import torch
from torch._dynamo.utils import counters
from tests import tiny

population = tiny.tiny_population()
tiny.perturb(population, 0.1)
one, other = list(population)[:2]
compiled = torch.compile(population.model, backend="eager", dynamic=False)
ids = torch.arange(10, 42).view(4, 8)
for rows in ([one] * 4, [one, one, other, other], [one, one, other, other], [one, other, other, other]):
    counters.clear()
    with population.route(rows):
        assert torch.equal(compiled(input_ids=ids).logits, population.model(input_ids=ids).logits)
    assert not counters["graph_break"]
    print("graphs", counters["stats"].get("unique_graphs", 0))
"""


@pytest.mark.slow
def test_every_composition_of_rows_is_compiled_once():
    own = {"TORCHDYNAMO_DISABLE": "0", "PYTHONPATH": str(Path(__file__).parents[2])}  # tests/conftest.py sets it
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stdout.splitlines() if line.startswith("graphs")] == [
        f"graphs {n}" for n in (1, 1, 0, 1)
    ]
