import json

import pytest
from matplotlib.image import imread

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


def test_every_plot_is_a_picture_with_something_in_it(run, rounds):
    paths = save_plots(rounds, run / "plots")
    assert [path.rsplit("/", 1)[1] for path in paths] == [f"{name}.png" for name in PLOTS]
    for path in paths:
        picture = imread(path)
        height, width, _ = picture.shape
        assert width > 400 and height > 300
        assert 0.01 < (picture[..., :3].min(axis=2) < 0.9).mean() < 0.9, path  # ink on white paper


def drawn(name, rounds) -> dict[str, dict[str, list]]:
    """Title of a panel -> label of a line -> its values."""
    return {
        axis.get_title(): {line.get_label(): list(line.get_ydata()) for line in axis.lines}
        for axis in PLOTS[name](rounds).axes
    }


@pytest.mark.parametrize(
    "plot, field, titles",
    [
        ("success", "validity", ["Valid proposals, per teacher", None]),
        ("success", "solve_rate", [None, "Matched solve rate, per student"]),
        ("rewards", "reward", ["Reward of the teachers", "Reward of the students"]),
        ("ratings", "mu", ["Ratings of the teachers", "Ratings of the students"]),
        ("response_length", "length", ["Response length of the teachers", "Response length of the students"]),
        ("weights", "delta_norm", ["Update of the teachers", "Update of the students"]),
        ("weights", "effective_rank", [None, "Effective rank, per student"]),
    ],
)
def test_plots_of_members_show_their_numbers(rounds, plot, field, titles):
    panels = drawn(plot, rounds)
    for title, role in zip(titles, ("teacher", "student"), strict=True):
        for name in (f"{role}_0", f"{role}_1") if title else ():
            members = [next(one for one in summary.members if one.name == name) for summary in rounds]
            values = [value for one in members if (value := getattr(one, field)) is not None]
            assert values and panels[title][name] == values


def test_plots_of_rounds_show_their_numbers(rounds):
    assert drawn("coverage", rounds)["Coverage of the task space"]["all"] == [10, 11, 12, 13, 14, 15]
    nodes = [summary.complexity["ast_nodes"] for summary in rounds]
    assert list(drawn("complexity", rounds)["Proposed programs: AST nodes"].values())[0] == nodes
    rates = drawn("solve_rates", rounds)["Matched solve rate, by task type"]
    assert rates["mean over types"] == [summary.solve_rate for summary in rounds]
    assert rates["code_o"] == rates["code_i"] == [0.4] * 3  # in turns
    (picture,) = PLOTS["matrix"](rounds).axes[0].images
    assert picture.get_array().filled(-1).tolist() == [[-1, 0.25], [0.25, -1]]  # 2 of 8; the others did not meet


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
