"""The exams at the end of a run: what they leave, and that a fault costs neither the run nor another exam."""

import json

import pytest
import yaml

from tests.cli.conftest import write_recipe
from tests.evaluation import letters
from trl_populora import cli, train
from trl_populora.generation import TransformersSampler


LETTERS = "tests.evaluation.letters:LETTERS"


@pytest.fixture
def data(tmp_path):
    return letters.write_data(tmp_path)


def read(folder):
    return json.loads((folder / "evaluation.json").read_text())


@pytest.mark.slow
def test_a_run_ends_with_exams(tmp_path, tiny_model, capsys, data):
    changes = {"final_exams": ["held_out", LETTERS], "final_exams_limit": 2, "probe_kwargs": {"data": data}}
    assert train.main(write_recipe(tmp_path, tiny_model, max_steps=1, plots=False, **changes)) == 0
    run = tmp_path / "run"
    record = read(run / "evaluation")
    assert [exam["exam"] for exam in record["exams"]] == ["held_out[:2]", "letters[:2]"]
    assert json.loads((run / "run.json").read_text())["settings"]["reserved_exams"] == ["held_out", LETTERS]
    assert list(record["exams"][0]["scores"]) == ["student_0", "base"]
    assert "letters[:2]" in capsys.readouterr().out
    head = yaml.safe_load((run / "README.md").read_text().split("---")[1])
    assert len(head["model-index"][0]["results"]) == 2
    again = ["--exams", "held_out", LETTERS, "--limit", "2", "--data", data, "--output", str(tmp_path / "again")]
    assert cli.main(["evaluate", str(run), *again]) == 0  # the command says the same
    other = read(tmp_path / "again")
    assert other["weights"] == record["weights"] and other["metrics"] == record["metrics"]
    assert [one["version"] for one in other["exams"]] == [one["version"] for one in record["exams"]]


@pytest.mark.slow
def test_a_final_exam_that_fails_costs_no_other(tmp_path, tiny_model, capsys, data, monkeypatch):
    monkeypatch.setattr(letters.Count, "judge", lambda *_: 1 / 0)
    exams = {"final_exams": [LETTERS, "held_out"], "final_exams_limit": 2, "probe_kwargs": {"data": data}}
    assert train.main(write_recipe(tmp_path, tiny_model, max_steps=1, plots=False, **exams)) == 1
    assert [exam["exam"] for exam in read(tmp_path / "run" / "evaluation")["exams"]] == ["held_out[:2]"]
    told = " ".join(capsys.readouterr().err.split())
    assert "training has ended and is saved, but these final exams failed: letters[:2]. To take them again: " in told


@pytest.mark.slow
def test_an_engine_that_dies_before_the_final_exams_costs_only_them(tmp_path, tiny_model, capsys, data, monkeypatch):
    exams = {"final_exams": [LETTERS], "final_exams_limit": 2, "probe_kwargs": {"data": data}}
    monkeypatch.setattr(train, "take_final_exams", lambda *_: 1 / 0)
    assert train.main(write_recipe(tmp_path, tiny_model, max_steps=1, plots=False, **exams)) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "but the final exams ended early (ZeroDivisionError: division by zero). To take them again: " in told
    assert (tmp_path / "run" / "README.md").is_file()


def test_final_exams_are_checked_before_training(tmp_path, tiny_model, capsys):
    recipe = write_recipe(tmp_path, tiny_model, final_exams=["gsm8"])
    assert train.main(recipe) == 2
    assert "final_exams: exam 'gsm8' is unknown. Did you mean 'gsm8k'" in capsys.readouterr().err
    recipe = write_recipe(tmp_path, tiny_model, final_exams=["held_out"], final_exams_limit=0)
    assert train.main(recipe) == 2
    assert "final_exams_limit=0" in capsys.readouterr().err
    recipe = write_recipe(tmp_path, tiny_model, final_exams=["held_out"], sampler=f"{__name__}:Short")
    assert train.main(recipe) == 2
    assert "the longest prompt of 'held_out' has" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


class Short(TransformersSampler):
    """As an engine that was started for short rows."""

    max_length = 300
