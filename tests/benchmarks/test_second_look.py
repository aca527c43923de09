"""`benchmarks/second_look.py` on archived runs of an experiment: of a whole exam, it finds the registered numbers."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from tests.archives import unpack


ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "experiments"


def look(folder: Path, monkeypatch, first: int, exam: str = "chains_weak") -> dict:
    words = ["--exam", exam, "--questions", "recipes.chains.exams:chains_weak", "--first", str(first)]
    monkeypatch.setattr(sys, "argv", ["look", str(folder), *words, "--json", str(folder / "out.json")])
    runpy.run_path(str(ROOT / "benchmarks" / "second_look.py"), run_name="__main__")
    return json.loads((folder / "out.json").read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("experiments")
    unpack(RESULTS / "weak_population.tar.xz", folder)
    return folder / "weak_population"


@pytest.mark.slow
def test_the_whole_exam_gives_what_the_experiment_gave(runs, monkeypatch, capsys):
    told = json.loads((RESULTS / "weak_population.json").read_text())
    found = look(runs, monkeypatch, 0)
    assert found["questions"] == 288 and set(found["delta_norm"]["one"]) == {str(n) for n in range(10, 201, 10)}
    for arm, own in found["arms"].items():
        wanted = told["values"]["mean_student"][arm]
        assert own["mean"] == pytest.approx(sum(wanted.values()) / len(wanted), abs=1e-4)
    for pair, one in told["pairs"]["mean_student"].items():
        swapped = " - ".join(reversed(pair.split(" - ")))
        own = found["differences"].get(pair) or found["differences"][swapped]
        wanted = (
            one["with_questions"] if pair in found["differences"] else [-end for end in one["with_questions"][::-1]]
        )
        assert own["questions"] == pytest.approx(wanted, abs=1e-4)
        assert own["groups"][0] < own["mean"] < own["groups"][1]
    part = look(runs, monkeypatch, 144)
    assert part["questions"] == 144 and part["arms"] != found["arms"]
    assert part["differences"].keys() == found["differences"].keys() and len(part["differences"]) == 6


@pytest.mark.slow
def test_folders_and_exams_that_are_not_there_are_refused(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="holds no finished run"):
        look(tmp_path, monkeypatch, 0)


@pytest.mark.slow
def test_an_exam_that_was_not_taken_is_refused(runs, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="no answers of chains to 288 of 288"):
        look(runs, monkeypatch, 0, exam="chains")
