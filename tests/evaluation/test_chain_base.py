"""The bases of chains are in the repository, load, and can do what their cards say, as far as a short look tells."""

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipes.chains.exams import chain_tasks
from recipes.chains.make.measure import measure
from tests.tiny import lora
from trl_populora.generation import TransformersSampler
from trl_populora.population import Population
from trl_populora.tasks import Referee, make_task_types


CHAINS = Path(__file__).parents[2] / "recipes" / "chains"
BASE = CHAINS / "base"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["base", "base_weak"])
def test_they_solve_short_chains(name, run):
    model = AutoModelForCausalLM.from_pretrained(CHAINS / name, dtype="float32")
    assert model.num_parameters() == 951_424
    tokenizer = AutoTokenizer.from_pretrained(CHAINS / name)
    sampler = TransformersSampler(
        Population(model, lora(target_modules="all-linear"), num_teachers=0, num_students=1),
        tokenizer,
        max_completion_length=96,
        temperature=0.0,
    )
    types = make_task_types(["code_o"], style="compact")
    tasks = chain_tasks(held_out=False, per_kind=8, seed=5)[1]
    texts = [one.text for one in sampler([types["code_o"].solve_prompt(task) for task in tasks], [None] * 24, seed=0)]
    verdicts = Referee(types, run).judge(tasks, texts)
    assert sum(one.solved for one in verdicts) >= 18  # 0.92 of 24, less three standard errors


@pytest.mark.slow
def test_it_is_measured_by_the_command_of_its_card():
    model, tokenizer = (one.from_pretrained(BASE) for one in (AutoModelForCausalLM, AutoTokenizer))
    asked = {"per_depth": 2, "tasks": 4, "kinds": ["chain_digits"]}
    found = measure(model, tokenizer, task_types=["code_o", "code_i"], **asked)
    assert list(found["greedy"]) == ["1", "2", "3", "4", "5", "6", "8", "10", "12"]
    assert found["greedy"]["1"] >= 0.5 and found["tasks_per_depth"] == 2
    assert found["others"].keys() == {"code_i"} and found["proposing"].keys() == {"code_o", "code_i"}
    assert found["proposing"]["code_o"]["valid"] >= 0.5


@pytest.mark.parametrize(
    "file, row",
    [("measured", "greedy"), ("measured", "sampled"), ("measured", "held_out")]
    + [("measured_before_last_phase", "greedy"), ("measured_before_last_phase", "sampled")],
)
def test_its_card_has_the_numbers_measured(file, row):
    shares = json.loads((BASE / f"{file}.json").read_text())[row]
    assert f" | {' | '.join(f'{share:.2f}' for share in shares.values())} |" in (BASE / "README.md").read_text()
