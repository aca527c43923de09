"""Scores are shown if they are about the weights that are there."""

import shutil

import pytest


pytest.importorskip("plotly")

from tests.reporting.made_run import MadeRun
from trl_populora.reporting.comparison_page import comparison_page
from trl_populora.reporting.evaluation_file import read_evaluation
from trl_populora.reporting.model_card import results_of
from trl_populora.reporting.played_run import read_run
from trl_populora.reporting.run_page import make_page
from trl_populora.run_files.files import write_json
from trl_populora.run_files.run import adapter_fingerprint


@pytest.fixture
def run(tmp_path):
    """A run of three rounds with adapters, whose student was evaluated."""
    folder = MadeRun(tmp_path / "run", teachers=1, students=1).make(3).folder
    for name in ("student_0", "other"):
        write_json(folder / name / "adapter_config.json", {"r": 2})
        (folder / name / "adapter_model.safetensors").write_bytes(name.encode())
    score = {"accuracy": 0.5, "low": 0.2, "high": 0.8}
    exam = {"exam": "sums", "questions": 8, "scores": {"student_0": score}, "summaries": {}}
    weights = {"student_0": adapter_fingerprint(str(folder), "student_0"), "base": "0123"}
    write_json(folder / "evaluation" / "evaluation.json", {"weights": weights, "exams": [exam]})
    return folder


def train_on(run) -> None:
    shutil.copy(run / "other" / "adapter_model.safetensors", run / "student_0" / "adapter_model.safetensors")


def test_an_evaluation_of_other_weights_is_refused(run):
    assert read_evaluation(str(run))["exams"][0]["exam"] == "sums"
    train_on(run)
    with pytest.raises(ValueError, match=r"is about weights other than those in .* \(student_0\)"):
        read_evaluation(str(run))
    assert read_evaluation(str(run / "other")) is None


def test_an_archived_run_without_adapters_keeps_its_scores(run):
    shutil.rmtree(run / "student_0")
    assert read_evaluation(str(run))["exams"] and read_run(str(run)).exams["sums"]["mean"] == 0.5
    assert results_of(str(run))["evaluation"] is None  # a card stands beside the adapters


@pytest.mark.slow
def test_pages_leave_scores_of_other_weights_out_and_say_so(run):
    assert "Evaluation: sums" in make_page(read_run(str(run))) and read_run(str(run)).exams["sums"]["mean"] == 0.5
    train_on(run)
    html = make_page(read_run(str(run)))
    assert "Evaluation: sums" not in html and "is about weights other than those in" in html
    assert read_run(str(run)).exams == {}
    assert "is about weights other than those in" in comparison_page([str(run)])
