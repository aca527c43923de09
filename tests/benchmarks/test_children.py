"""`benchmarks/children.py`: its arithmetic, and a whole run on two small adapters."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import tiny
from trl_populora.evolution import write_adapter
from trl_populora.population import Population


ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.chdir(ROOT)
    return runpy.run_path("benchmarks/children.py")


def test_children_are_compared_with_their_own_parents(script):
    base, parents = np.zeros(4), np.array([[1, 1, 0, 0], [1, 0, 0, 0.0]])
    children = np.array([[1, 1, 1, 0], [1, 0.5, 0.5, 0.0]])
    found = script["compare"](children, parents, base)
    assert found["by_parent"] == [0.25, 0.25] and found["low"] == found["high"] == 0.25
    assert found["score"] == 0.625 and found["kept"] == pytest.approx(0.625 / 0.375)
    whole = script["average"](np.array([1, 1, 0, 0.5]), parents, base)
    assert whole["difference"] == pytest.approx(0.25) and whole["low"] <= 0.25 <= whole["high"]
    table = script["table"]({"operators": {"dare": found | {"norm": 1.0}}, "average_of_all": whole})
    assert "| `dare` | 0.625 | +0.250 | +0.250 to +0.250 | 167% | 1.00 |" in table and "minus mean parent" in table


@pytest.mark.slow
def test_adapters_and_their_children_take_an_exam(script, monkeypatch, tmp_path, capsys, tiny_model):
    population = Population(tiny.two_layers(0), tiny.lora(), num_teachers=1, num_students=3)
    tiny.perturb(population, 0.1)
    for name in population.students:
        write_adapter(tmp_path / name, population.model.peft_config[name], population.factors(name))
    adapters = [str(tmp_path / name) for name in population.students]
    words = ["--base", tiny_model, "--exam", "recipes.chains.exams:chains[:2]", "--samples", "1", "--at-once", "2"]
    words += ["--operators", "average", "--scales", "0.5", "--json", str(tmp_path / "out.json")]
    monkeypatch.setattr(sys, "argv", ["children.py", *adapters, *words])
    script["main"]()
    result = json.loads((tmp_path / "out.json").read_text())
    assert len(result["parent_scores"]) == len(result["cosines"]) == 3 and result["exam"]["questions"] == 2
    assert set(result["operators"]) == {"average", "scaled by 0.5"}
    assert "average of all" in capsys.readouterr().out
