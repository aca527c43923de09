"""`benchmarks/supervised_ceiling.py`: fresh tasks of every depth, and one update that changes the student alone."""

import argparse
import random
import runpy
from pathlib import Path

import pytest
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipes.chains.exams import EXAM_DEPTHS, chains
from trl_populora.evaluation import task_keys
from trl_populora.population import Population
from trl_populora.tasks import make_task_types
from trl_populora.tasks.code.families.chains import depth


BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "supervised_ceiling.py"))


@pytest.mark.slow
def test_tasks_have_every_depth_and_none_is_reserved():
    types = make_task_types(["code_o"], style="compact")
    rng, reserved = random.Random(0), task_keys(chains(), types)
    tasks = [BENCHMARK["draw"](types["code_o"], rng, 4, reserved) for _ in range(60)]
    assert {depth(task.payload.program) for task in tasks} == {one for one in EXAM_DEPTHS if one <= 4}
    assert {task.author.partition("_")[2].partition("_")[0] for task in tasks} == {"digits", "text", "table"}
    keys = {types["code_o"].key(task.payload) for task in tasks}
    assert not keys & reserved
    again = random.Random(0)
    second = BENCHMARK["draw"](types["code_o"], again, 4, keys | reserved)
    assert types["code_o"].key(second.payload) not in keys


@pytest.mark.slow
def test_updates_change_the_student_alone():
    lora = LoraConfig(r=2, target_modules="all-linear", lora_dropout=0.0)
    model, tokenizer = (one.from_pretrained("recipes/chains/base") for one in (AutoModelForCausalLM, AutoTokenizer))
    population = Population(model, lora, num_teachers=1, num_students=1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    options = argparse.Namespace(updates=2, rows=4, deepest=2)
    losses = BENCHMARK["practise"](population, tokenizer, chains().first(9), options, 1e-3)
    assert len(losses) == 2 and all(0 < one < 10 for one in losses)
    changed = {name for name, value in model.state_dict().items() if not value.equal(before[name])}
    assert changed and all("student_0" in name for name in changed)
