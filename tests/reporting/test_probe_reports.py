"""Evaluations along a run as a line, a summary and a picture."""

import io
import json

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from trl_populora.reporting import LiveView, plots, read_probes, run_summary, save_plots
from trl_populora.reporting.probes import plot_probes, probe_line, probes_summary


def score(accuracy):
    return {"accuracy": accuracy, "groups": {"code_o": accuracy}, "well_formed": 1.0, "spared": 0}


def record(step, accuracy, *, founders=True):
    players = {"student_0": score(accuracy), "student_1": score(accuracy / 2), "base": score(0.25)}
    exam = {"version": "abc", "questions": 8, "mean": 0.75 * accuracy, "groups": {"code_o": 0.5}, "players": players}
    teacher = {"proposals": 4, "valid": 0.5, "tasks": 2, "unsolved": 0.9, "unsolved_now": None}
    games = {
        "tasks": 4,
        "version": "def",
        "founders": ["student_0"],
        "students": {"student_0": {"solved": 0.5}, "student_1": {"solved": None}},
        "teachers": {"teacher_0": teacher},
    }
    clock = {"seconds": 2.0, "probing": step + 2.0, "elapsed": 100.0 + step}
    return {"step": step, "round": step, "exams": {"held_out": exam}, "founders": games if founders else None} | clock


RECORDS = [record(0, 0.4), record(20, 0.8)]


def test_a_line_says_means_the_base_the_best_and_the_cost():
    line = probe_line(RECORDS[1])
    assert line == (
        "step 20  held_out 60% (base 25%, highest 80% student_0)  against founders solved 50%, unsolved 90%, valid 50%"
        "  2.0 s, probes 18.3% of the run"
    )
    assert "founders" not in probe_line(record(0, 0.5, founders=False))
    assert probe_line(RECORDS[0]).endswith("valid 50%  2.0 s")  # before the first round, probes are all there is


def test_the_view_and_the_summary(rounds, tmp_path):
    file = io.StringIO()
    with LiveView(file=file) as view:
        view.on_probe(RECORDS[0])
    assert file.getvalue() == probe_line(RECORDS[0]) + "\n"
    text = run_summary(str(tmp_path), rounds, base="b", probes=RECORDS)
    assert "  held_out: 30% to 60%, step 0 to 20; base 25%\n" in text
    assert "  22 s in 2 probes, 18.3% of the run\n" in text
    assert probes_summary([]) == []


def test_an_exam_that_a_resume_has_added_begins_at_its_first_probe():
    added = [one | {"exams": {"gsm8k": one["exams"]["held_out"]}} for one in (record(40, 0.4), record(60, 0.8))]
    assert "  gsm8k: 30% to 60%, step 40 to 60; base 25%" in probes_summary([*RECORDS, *added])


def test_curves_of_members_and_the_base():
    figure = plot_probes(RECORDS)
    panels = {axis.get_title(): axis for axis in figure.axes if axis.get_visible()}
    assert len(panels) == 1 + 3  # nobody's `unsolved_now` is known
    lines = {line.get_label(): list(line.get_xydata()[:, 1]) for line in panels["held_out: accuracy"].lines}
    assert lines == {"student_0": [0.4, 0.8], "student_1": [0.2, 0.4], "base": [0.25, 0.25]}
    assert plot_probes([]) is None
    assert len([axis for axis in plot_probes([record(0, 0.5, founders=False)]).axes if axis.get_visible()]) == 1


@pytest.mark.parametrize("members", [2, 4, pytest.param(12, marks=pytest.mark.slow)])
def test_equal_curves_are_all_seen(members):
    players = {f"student_{k}": score(0.5) for k in range(members)} | {"base": score(0.25)}
    exam = record(0, 0.5)["exams"]["held_out"] | {"players": players}
    figure = plot_probes([record(step, 0.5, founders=False) | {"exams": {"held_out": exam}} for step in (0, 20)])
    (axis,) = figure.axes
    axis.get_legend().remove()
    lines = axis.lines[:-1]
    for line in lines:
        line.set_marker("")
    figure.set_dpi(120)  # as in the file
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    for line in lines:
        colour = [round(255 * part) for part in to_rgb(line.get_color())]
        assert (abs(pixels - colour).max(axis=2) < 40).any(), line.get_label()


@pytest.mark.slow
def test_records_are_read_and_drawn(rounds, tmp_path, monkeypatch):
    assert read_probes(tmp_path) == []
    (tmp_path / "probes.jsonl").write_text("".join(json.dumps(one) + "\n" for one in RECORDS))
    probes = read_probes(tmp_path)
    assert probes == RECORDS
    monkeypatch.setattr(plots, "PLOTS", {})  # which test_plots.py draws
    (path,) = save_plots(rounds, tmp_path / "plots", probes=probes)
    picture = imread(path)
    assert path.endswith("probes.png") and 0.01 < (picture[..., :3].min(axis=2) < 0.9).mean() < 0.9
    (tmp_path / "probes.jsonl").write_text("no\n")
    with pytest.raises(ValueError, match="line 1"):
        read_probes(tmp_path)
