import json
import struct

import pytest

from trl_populora.reporting import family_tree, read_history, run_summary, save_plots
from trl_populora.reporting.plots import PLOTS, running_mean


EVENT = {
    "step": 4,
    "slot": "student_1",
    "role": "student",
    "operator": "svd_subspace",
    "parameters": {"seed": 1},
    "parents": [["student_0", 0], ["student_1", 0]],
    "version": 1,
    "fitness": {"student_0": 1.0, "student_1": 0.0},
    "rating_before": [24.0, 3.0],
    "rating_after": [25.0, 4.2],
}


@pytest.fixture
def run(tmp_path, rounds):
    lines = [json.dumps(summary.to_json()) for summary in rounds]
    (tmp_path / "history.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "lineage.jsonl").write_text(json.dumps(EVENT) + "\n")
    return tmp_path


def test_history_comes_back_in_order_and_without_a_torn_line(run, rounds):
    assert read_history(run) == rounds
    path = run / "history.jsonl"
    lines = path.read_text().splitlines()
    again = json.loads(lines[2]) | {"matches": 77}  # a resumed run played round 2 once more
    path.write_text("\n".join([*lines, json.dumps(again), lines[5][:40]]))
    history = read_history(run)
    assert [summary.round for summary in history] == [0, 1, 2, 3, 4, 5]
    assert history[2].matches == 77


def test_damaged_or_missing_history_is_refused(run, tmp_path_factory):
    path = run / "history.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{}", lines[1]]))
    with pytest.raises(ValueError, match=r"history\.jsonl, line 2, cannot be read"):
        read_history(run)
    with pytest.raises(ValueError, match=r"has no history\.jsonl"):
        read_history(tmp_path_factory.mktemp("empty"))


def test_every_plot_is_a_png(run, rounds):
    paths = save_plots(rounds, run / "plots")
    assert [path.rsplit("/", 1)[1] for path in paths] == [f"{name}.png" for name in PLOTS]
    for path in paths:
        with open(path, "rb") as file:
            head = file.read(24)
        assert head.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", head[16:24])
        assert width > 400 and height > 300


def test_plots_of_a_single_poor_round(tmp_path, rounds):
    from dataclasses import replace

    poor = replace(rounds[0], complexity={}, coverage={}, events=())
    names = {path.rsplit("/", 1)[1] for path in save_plots([poor], tmp_path)}
    missing = {"complexity.png", "coverage.png", "family_tree.png", "weights.png"}
    assert names == {f"{name}.png" for name in PLOTS} - missing
    fewer = replace(poor, solve_rate=None, solve_rates={}, fill_rate=None, solve_rate_filled=None)
    assert "solve_rates.png" not in {path.rsplit("/", 1)[1] for path in save_plots([fewer], tmp_path)}
    with pytest.raises(ValueError, match="no rounds"):
        save_plots([], tmp_path)


def test_running_mean():
    assert running_mean([1, 2, 3, 4], window=2) == [1, 1.5, 2.5, 3.5]


def test_summary_says_where_and_what_next(run):
    text = run_summary(str(run), read_history(run), base="tiny")
    assert "student_1  96 rows, 600 prompt tokens, 4,200 completion tokens, 6 updates" in text  # six rounds
    assert f"{run}/teacher_0" in text and f"{run}/student_1" in text
    assert "6 rounds, 4 members, 1 replacements" in text
    assert "Strongest student: student_1 (rating" in text and "of attempts at teachers' tasks solved lately" in text
    assert "student_1@1 *" in text
    assert f"populora report {run}" in text


def test_summary_of_a_student_that_met_no_valid_task(run, rounds):
    from dataclasses import replace

    idle = tuple(replace(one, solve_rate=None) for one in rounds[-1].members)
    text = run_summary(str(run), [replace(rounds[-1], members=idle)], base="tiny")
    assert "no task of a teacher to solve lately" in text


def test_summary_of_a_teacher_of_which_no_proposal_was_judged(run, rounds):
    from dataclasses import replace

    spared = tuple(replace(one, validity=None) for one in rounds[-1].members)
    text = run_summary(str(run), [replace(rounds[-1], members=spared)], base="tiny")
    assert "no proposal judged in the last round" in text and "mean reward" not in text


def test_family_tree_lists_members_without_descendants(run):
    tree = family_tree(run, ["teacher_0"])
    assert "teacher_0@0 *" in tree and "svd_subspace with student_1@0" in tree
