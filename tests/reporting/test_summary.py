"""What is said at the end of a run."""

import io
import json
import re
from dataclasses import replace

import pytest

from tests.reporting.made_run import MadeRun
from tests.reporting.test_model_card import member, table
from trl_populora.reporting import LiveView, family_tree, model_card, read_history, run_summary
from trl_populora.reporting.played_run import read_run
from trl_populora.reporting.plots import PLOTS
from trl_populora.reporting.run_page import make_page
from trl_populora.reporting.tables import compute_table


def test_summary_says_where_and_what_next(run):
    text = run_summary(str(run), read_history(run), base="tiny")
    assert "student_1  96 rows, 600 prompt tokens, 4,200 completion tokens, 6 updates" in text  # six rounds
    assert f"{run}/teacher_0" in text and f"{run}/student_1" in text
    assert "6 rounds, 4 members, 1 replacement." in text
    assert "Strongest student: student_1 (rating" in text and "of attempts at teachers' tasks solved lately" in text
    assert "student_1@1 *" in text
    assert f"populora report {run}" in text


def test_summary_counts_one_update_in_the_singular(run, rounds):
    text = run_summary(str(run), rounds[:1], base="tiny")
    assert "16 rows, 100 prompt tokens, 700 completion tokens, 1 update\n" in text


def test_what_was_learned_from_before_a_run_continued_another_is_not_counted_as_all(run, rounds):
    assert "\nLearned from in the last 2 rounds:\n" in run_summary(str(run), rounds[4:], base="tiny")
    assert compute_table(rounds[4:]).columns[0].header == "learned per adapter in the last 2 rounds"
    assert compute_table(rounds).columns[0].header == "learned per adapter"


def test_summary_of_a_student_that_met_no_valid_task(run, rounds):
    idle = tuple(replace(one, solve_rate=None) for one in rounds[-1].members)
    text = run_summary(str(run), [replace(rounds[-1], members=idle)], base="tiny")
    assert "no task of a teacher to solve lately" in text


def test_a_member_that_has_not_met_anybody_is_not_the_strongest(run, rounds):
    """Its rating is still the first one, which may be above that of those who play and lose."""
    idle = tuple(
        replace(one, mu=50.0, solve_rate=None) if one.name == "student_0" else one for one in rounds[-1].members
    )
    text = run_summary(str(run), [replace(rounds[-1], members=idle)], base="tiny")
    assert "Strongest student: student_1 (" in text


def test_summary_of_a_teacher_of_which_no_proposal_was_judged(run, rounds):
    spared = tuple(replace(one, validity=None) for one in rounds[-1].members)
    text = run_summary(str(run), [replace(rounds[-1], members=spared)], base="tiny")
    assert "no proposal judged in the last round" in text and "mean reward" not in text


@pytest.mark.slow
@pytest.mark.parametrize("unscored", [("student_0",), ("student_0", "student_1")], ids=["one", "all"])
def test_a_member_that_nobody_scored_is_not_the_strongest(tmp_path, unscored):
    """Its reward and rating are null, and every reader of the history shows a dash."""
    pytest.importorskip("plotly")
    folder = MadeRun(tmp_path / "run", teachers=0, students=2).make(4).folder
    path = folder / "history.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for one in (one for line in lines for one in line["members"] if one["name"] in unscored):
        one |= {"reward": None, "mu": None, "sigma": None}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    history = read_history(folder)
    scored = len(unscored) == 1
    text = run_summary(str(folder), history, base="tiny")
    assert ("Strongest student: student_1" in text) == scored and "Strongest student: student_0" not in text
    LiveView(file=(out := io.StringIO())).on_round(history[-1])
    assert re.search(r"student_0 +\d+ +- ", out.getvalue())
    card = model_card(table(member("student_0"), teachers=0), base_model="org/base", history=history)
    assert re.search(r"\| student_0 +\| - +\| - +\|", card)
    assert PLOTS["ratings"](history) is not None
    page = make_page(read_run(str(folder)))
    assert ("mean reward +" in page or "mean reward -" in page) == scored and "None" not in page.split("<main>")[1]


def test_family_tree_lists_members_without_descendants(run):
    tree = family_tree(run, read_history(run))
    assert "teacher_0@0 *" in tree and "svd_subspace with student_1@0" in tree and "student_1@1 *" in tree


def test_family_tree_without_a_lineage_is_that_of_the_history(tmp_path):
    folder = MadeRun(tmp_path / "run").make(7).folder
    history = read_history(folder)
    whole = family_tree(folder, history)
    (folder / "lineage.jsonl").unlink()
    assert family_tree(folder, history) == whole and "@1 *  step" in whole


def test_family_tree_marks_members_of_the_last_round_only(run, rounds):
    fewer = replace(rounds[-1], members=tuple(one for one in rounds[-1].members if one.name != "student_1"))
    tree = family_tree(run, [*rounds[:-1], fewer])
    assert "student_1@1  step" in tree and "student_0@0 *" in tree


def test_next_names_the_exams_of_the_run(run):
    assert f"populora evaluate {run}    what every member" in run_summary(str(run), read_history(run), base="tiny")
    settings = {"reserved_exams": ["my.exams:mine"], "probe_kwargs": {"exams": ["held_out[:9]"]}}
    for strategy, exams in (("no", "my.exams:mine"), ("steps", "'held_out[:9]' my.exams:mine")):
        (run / "run.json").write_text(json.dumps({"settings": settings | {"eval_strategy": strategy}}))
        text = run_summary(str(run), read_history(run), base="tiny")
        assert f"populora evaluate {run} --exams {exams}" in text
