"""The examples run as they stand, at toy size: scripts by their `main`, notebooks cell by cell."""

import json
import math
import runpy
import sys
from pathlib import Path

import pytest

from trl_populora import Task, train
from trl_populora.tasks.parsing import fence
from trl_populora.testing import check_task_type
from website.notebooks import code_cells


ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))


@pytest.fixture
def run_main(monkeypatch):
    """Runs `main` of an example; examples may import each other, as when they are started by their path."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    before = set(sys.modules)
    yield lambda name, *args, **settings: runpy.run_path(str(EXAMPLES / name))["main"](*args, **settings)
    for module in set(sys.modules) - before:
        if module.startswith("own_"):
            del sys.modules[module]


def test_scripts_are_short():
    assert len(SCRIPTS) >= 5 and len(NOTEBOOKS) == 2
    for name in SCRIPTS:
        assert len((EXAMPLES / name).read_text().splitlines()) <= 60, name


def test_every_example_is_described():
    page = (ROOT / "docs" / "start" / "examples.md").read_text()
    assert [name for name in SCRIPTS + NOTEBOOKS if f"examples/{name})" not in page] == []


@pytest.mark.slow
def test_own_dataset_then_start_from_its_adapters(run_main, tmp_path, capsys):
    first = run_main("own_dataset.py", output=str(tmp_path / "first"), rounds=1, students=2)
    assert all(math.isfinite(first.ratings[name].mu) for name in first.population)
    second = run_main("start_from_adapters.py", str(tmp_path / "first"), output=str(tmp_path / "second"), rounds=1)
    origins = [event.parents for event in second.lineage.events if event.kind == "import"]
    assert [str(tmp_path / "first") in str(parents) for parents in origins] == [True, True]
    assert "student_0 says:" in capsys.readouterr().out


@pytest.mark.slow
def test_own_operator_makes_the_children(run_main, tmp_path, monkeypatch):
    from trl_populora import OPERATORS

    monkeypatch.delitem(OPERATORS, "shrink", raising=False)
    trainer = run_main("own_operator.py", output=str(tmp_path), rounds=4)
    del OPERATORS["shrink"]
    assert {event.operator for event in trainer.lineage.events} == {"shrink"}


def test_own_task_type_keeps_the_contract(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from own_task_type import Backwards, Number

    kind = Backwards()
    check_task_type(kind)
    task = Task.create("backwards", Number("140"))
    answers = [kind.parse_answer(task, fence("output", text)) for text in ("041", "41")]
    assert kind.judge([task, task], answers, None) == [True, False]


@pytest.mark.slow
def test_own_task_type_is_played(monkeypatch, tmp_path):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(str(EXAMPLES))  # as `python -m` has the working folder
    options = (
        f"--model_name_or_path tiny --output_dir {tmp_path} --task_types own_task_type:Backwards --use_cpu true "
        "--bf16 false --num_teachers 1 --num_students 1 --num_generations 4 --per_device_train_batch_size 20 "
        "--max_steps 1 --max_completion_length 24 --save_strategy no --report_to none --plots false --seed_tasks 8 "
        "--warm_start_steps 60"
    )
    assert train.main(options.split()) == 0
    (round_summary,) = (tmp_path / "history.jsonl").read_text().splitlines()
    told = json.loads(round_summary)
    assert told["solve_rates"]  # the teacher's own tasks were attempted: the warm start has taught it their form
    assert json.loads((tmp_path / "run.json").read_text())["settings"]["task_types"] == ["own_task_type:Backwards"]


@pytest.mark.slow
def test_self_play(run_main, tmp_path):
    trainer = run_main("self_play.py", output=str(tmp_path), rounds=2)
    assert trainer.state.global_step == 2
    assert (tmp_path / "teacher_1" / "adapter_model.safetensors").is_file()


@pytest.mark.slow
def test_notebooks(monkeypatch, tmp_path, capsys):
    """Both in one folder: the second reads the run of the first."""
    monkeypatch.chdir(tmp_path)
    for name in ("first_run.ipynb", "read_a_run.ipynb"):
        cells = code_cells((EXAMPLES / name).read_text())
        space: dict = {"__name__": "__main__"}
        for number, cell in enumerate(cells):
            exec(compile(cell.replace("ROUNDS = 6", "ROUNDS = 2"), f"{name}, cell {number}", "exec"), space)
    told = capsys.readouterr().out
    assert "round 2: solve rate" in told and "trainable params" in told


def test_the_recipe_of_a_dataset_is_read_and_its_parts_are_there(monkeypatch):
    monkeypatch.chdir(ROOT)
    from trl_populora.integrations.user_data import load_prompts, load_rewards

    run, args = train.parse(["--config", "recipes/dataset/programs.yaml"])
    assert args.num_teachers == 0 and args.rows_per_round == 192
    prompts, (reward,) = load_prompts(run.dataset_name), load_rewards(run.reward_funcs)
    right, wrong = prompts[0]["answer"], "nothing"
    completions = [[{"role": "assistant", "content": f"```output\n{text}\n```"}] for text in (right, wrong)]
    completions.append([{"role": "assistant", "content": right}])
    assert reward(completions, answer=[right] * 3) == [1.0, 0.0, -1.0]


def test_the_rows_of_the_dataset_are_those_that_its_script_makes():
    from recipes.dataset.make import rows

    written = [json.loads(line) for line in (ROOT / "recipes/dataset/programs.jsonl").read_text().splitlines()]
    assert written == rows()
