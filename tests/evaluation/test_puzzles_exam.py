"""The exam of puzzles: fixed for good, and of the sizes that its experiment trains on."""

import json
from collections import Counter
from pathlib import Path

import yaml

from recipes.experiments.puzzles import SIZES, puzzles
from trl_populora.evaluation import exam_keys
from trl_populora.evaluation.held_out import held_out_tasks
from trl_populora.tasks import make_task_types


ROOT = Path(__file__).resolve().parents[2]
RECIPE = yaml.safe_load((ROOT / "recipes/smollm2-135m/countdown.yaml").read_text())
EXPERIMENT = yaml.safe_load((ROOT / "recipes/experiments/smollm2_learning.yaml").read_text())


def test_the_exam_never_changes():
    exam = puzzles()
    assert (exam.name, exam.version, len(exam.questions)) == ("puzzles", "b16f1b5f2d5e", 384)
    tasks = [json.loads(one.reference)["payload"] for one in exam.questions]
    assert Counter(len(task["numbers"]) for task in tasks) == {3: 384}
    assert max(max(task["numbers"]) for task in tasks) == 20 and max(task["target"] for task in tasks) <= 100


def test_it_shares_no_puzzle_with_held_out_and_is_reserved_where_it_is_asked():
    assert RECIPE["task_kwargs"] == {"countdown": SIZES} and RECIPE["prompt_style"] == "compact"
    types = make_task_types(["countdown"], style="compact", kwargs=RECIPE["task_kwargs"])
    reserved = exam_keys(EXPERIMENT["exams"], types)
    assert len(reserved) == 384
    assert not reserved & {types["countdown"].key(task.payload) for task in held_out_tasks(types["countdown"])}
