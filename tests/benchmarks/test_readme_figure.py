"""`benchmarks/readme_figure.py`: the table of the README, and a figure with the same arms and numbers."""

import json
import re
import runpy
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "readme_figure.py"))


def test_the_readme_has_the_table_of_the_committed_results():
    found = SCRIPT["arms"]()
    assert SCRIPT["table"](found) in (ROOT / "README.md").read_text()
    assert [len(own.scores) for own in found] == [5] * 4  # "with five seeds each"
    assert [own.mean for own in found] == pytest.approx([sum(own.scores) / 5 for own in found], abs=1e-4)


def test_scores_of_the_base_are_those_of_its_card():
    card = (ROOT / "recipes/chains/base_weak/README.md").read_text()
    assert {f"{score:.3f}" for score in (SCRIPT["base"](), SCRIPT["before"]())} <= set(re.findall(r"\d\.\d{3}", card))


def test_an_arm_with_a_missing_seed_is_refused(tmp_path, monkeypatch):
    for name in {experiment for experiment, _ in SCRIPT["ARMS"].values()}:
        record = json.loads((SCRIPT["RESULTS"] / f"{name}.json").read_text())
        record["values"]["mean_student"].get("single_agent_4x_rows", {}).pop("3", None)
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    monkeypatch.setitem(SCRIPT["arms"].__globals__, "RESULTS", tmp_path)
    with pytest.raises(ValueError, match="single_agent_4x_rows of weak_recombination has the seeds .'1', '2', '4'"):
        SCRIPT["arms"]()


def test_the_figure_shows_the_arms_of_the_table(tmp_path, monkeypatch, capsys):
    drawn = []
    monkeypatch.setattr("matplotlib.pyplot.close", drawn.append)
    SCRIPT["main"](["--output", str(tmp_path / "figure.png")])
    (axis,) = drawn[0].axes
    found = SCRIPT["arms"]()
    labels = [label.get_text().replace("\n", " ") for label in axis.get_yticklabels()]
    assert labels == [own.name for own in found]
    assert SCRIPT["table"](found) in capsys.readouterr().out
    dots = [sorted(line.get_xdata()) for line in axis.lines if len(line.get_xdata()) == 5]
    assert dots == [sorted(own.scores) for own in found]
    told = [text.get_text().splitlines()[-1] for text in axis.texts]
    assert told == [f"{own.mean:.3f}" for own in found] + ["0.375", "0.760"]
    assert (tmp_path / "figure.png").stat().st_size > 1000
