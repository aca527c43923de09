import io

import pytest
from rich.console import Console

from tests.terminal import Terminal
from trl_populora.progress import Progress
from trl_populora.reporting.evaluation_view import EvaluationView, remarks, scores_table, stars


def score(accuracy, **verdicts):
    known = {"accuracy": accuracy, "low": accuracy / 2, "high": (1 + accuracy) / 2, "well_formed": 0.9, "tokens": 12.4}
    return known | {"cut": 0.0, "pass_at_k": {}, "verdicts": verdicts or {"solved": 1}, "groups": {"a": 0.1, "b": 0.2}}


def exam(samples=1):
    summaries = {name: {"accuracy": 0.6, "low": 0.5, "high": 0.7} for name in ("mean", "best", "weakest")}
    one = {"difference": 0.2, "low": 0.1, "high": 0.3, "significant": True}
    other = {"difference": 0.01, "low": -0.1, "high": 0.1, "significant": False}
    return {
        "exam": "gsm8k",
        "version": "0123456789ab",
        "questions": 50,
        "decoding": {"samples": samples, "temperature": 0.6 if samples > 1 else 0.0, "max_completion_length": 512},
        "groups": ["a", "b"],
        "seconds": {"generation": 90.0, "grading": 3700.0},
        "tokens": 12345,
        "scores": {
            "base": score(0.4),
            "student_0": score(0.6, solved=30, failed=2),
            "student_1": score(0.5, spared=1),
        },
        "summaries": summaries,
        "differences": [
            {"of": "student_0", "to": "base"} | one,
            {"of": "mean", "to": "base"} | other,
            {"of": "b/mean", "to": "a/mean"} | other,
        ],
    }


def shown(table, width):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    return console.file.getvalue().splitlines()


def test_members_come_first_then_all_of_them_then_the_base():
    lines = shown(scores_table(exam(), plain=True), 119)
    assert [line.split("  ")[0] for line in lines] == [
        "gsm8k",
        "student_0",
        "student_1",
        "mean",
        "best elsewhere",
        "weakest elsewhere",
        "base",
    ]
    assert "+20.0 (+10.0, +30.0)*" in lines[1] and "+1.0 (-10.0, +10.0) " in lines[3] and "*" not in lines[3]


@pytest.mark.parametrize("width", [119, 80, 60, 40, 20])
@pytest.mark.parametrize("plain", [True, False])
def test_a_narrow_terminal_gets_fewer_columns_and_no_broken_lines(width, plain):
    lines = shown(scores_table(exam(), width=width - 2, plain=plain), max(width, 30))
    rows = [line for line in lines if "%" in line.replace("95% interval", "")]
    assert len(rows) == 6 and "accuracy" in "".join(lines)
    assert ("minus base" in "".join(lines)) == (width >= 80)


def test_samples_show_pass_at_k():
    one = exam(samples=4)
    one["scores"]["student_0"]["pass_at_k"] = {"4": {"accuracy": 0.77}}
    lines = shown(scores_table(one, plain=True), 119)
    assert "pass@4" in lines[0] and "77.0%" in lines[1]
    assert "4 samples at temperature 0.6" in next(remarks(one))


def test_a_group_that_is_named_as_a_column_does_not_take_its_place():
    one = exam() | {"groups": ["read", "b"]}
    for own in one["scores"].values():
        own["groups"] = {"read": 0.123, "b": 0.2}
    lines = shown(scores_table(one, plain=True), 160)
    assert "group read" in lines[0] and "90.0%" in lines[1] and "12.3%" in lines[1]


def test_remarks_say_what_was_used_what_took_long_and_what_has_no_grade():
    text = "\n".join(remarks(exam()))
    assert "50 questions (version 0123456789ab), greedy, at most 512 tokens an answer." in text
    assert "generation 1:30, grading 1:01:40" in text and "most of it grading" in text
    assert "b/mean minus a/mean: +1.0" in text
    assert "student_1: 1 answer not counted" in text and "student_0: 2 answers wrong because judging failed" in text


def test_stars_are_explained_by_the_number_of_comparisons():
    assert "20 comparisons in all; a star: the 99.75% interval" in stars({"comparisons": 20, "level": 0.95})


def test_progress_is_lines_in_a_file_and_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for file in (io.StringIO(), Terminal()):
        with EvaluationView(file=file, every=0.0) as view:
            view.begin("gsm8k")
            for done in (8, 10, 20):
                view.progress(done, 20)
            view.begin("held_out")
            view.progress(0, 4)
            view.progress(4, 4)
            progress = Progress()
            view.watch(progress)
            progress.begin("held_out", 4, "answers", done=2)
            progress.reach(3.5)
            if file.isatty():
                assert file.shows(r"3/4 answers, 0:00 left")
        text = file.getvalue()
        assert "gsm8k: 8 of 20 answers exist already; continuing" in text
        if file.isatty():
            assert "\x1b" in text
        else:
            assert "\x1b" not in text and "gsm8k: 10 of 20 answers, 0:00 left" in text and "held_out: 4 of 4" in text


def test_tables_of_a_record_go_to_one_file():
    file = io.StringIO()
    EvaluationView(file=file).tables({"exams": [exam(), exam()], "comparisons": 6, "level": 0.95})
    assert file.getvalue().count("weakest elsewhere") == 2 and "6 comparisons" in file.getvalue()
