"""Every plot is drawn, shows the numbers of its rounds, and is left out where there are none."""

import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread

from tests.reporting.conftest import make_round
from tests.reporting.made_run import MadeRun
from trl_populora.reporting import read_history, save_plots
from trl_populora.reporting.played_run import read_run
from trl_populora.reporting.plots import PLOTS, running_mean
from trl_populora.reporting.run_page.learning import learning


@pytest.mark.slow
def test_every_plot_is_a_picture_with_something_in_it(tmp_path, rounds):
    paths = save_plots(rounds, tmp_path / "plots")
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


@pytest.mark.parametrize("plot", ["rewards", "ratings"])
def test_many_members_are_grey_lines_with_their_mean(plot):
    history = [make_round(k, size=20) for k in range(6)]
    for axis in PLOTS[plot](history).axes:
        labels = [text.get_text() for text in axis.get_legend().get_texts()]
        assert labels == ["each of 20", "mean"] and len(axis.lines) == 21
        *own, middle = axis.lines
        assert {line.get_color() for line in own} == {"#AAAAAA"}
        assert middle.get_ydata() == pytest.approx(np.mean([line.get_ydata() for line in own], axis=0))
    assert not PLOTS["matrix"](history).axes[0].texts  # of 400 cells


def test_a_run_on_a_dataset_has_one_panel_named_by_what_it_is(tmp_path):
    made = MadeRun(tmp_path / "run", teachers=0).make(4)
    history = read_history(made.folder)
    for name, title in (
        ("ratings", "Running reward of the members"),
        ("rewards", "Reward of the members"),
        ("response_length", "Response length of the members"),
    ):
        (axis,) = PLOTS[name](history).axes
        assert axis.get_title() == title and "TrueSkill" not in axis.get_ylabel()
        assert {"student_0", "student_1"} <= {line.get_label() for line in axis.lines}
    shown = [axis.get_title() for axis in PLOTS["weights"](history).axes if axis.get_visible()]
    assert shown == ["Update of the members", "Effective rank, per member", "Cosine between two updates of a role"]
    alone = [replace(one, cosines={}) for one in history]
    assert [axis.get_title() for axis in PLOTS["weights"](alone).axes if axis.get_visible()] == shown[:2]


def test_a_single_agent_has_one_panel_for_its_rows_of_both_roles(tmp_path):
    history = [make_round(k, size=1) for k in range(4)]
    history = [replace(s, members=(replace(s.members[0], name="agent_0", role="shared"),)) for s in history]
    for name, title in (("ratings", "Ratings of the agent"), ("rewards", "Reward of the agent")):
        (axis,) = PLOTS[name](history).axes
        assert axis.get_title() == title
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(s.to_json()) + "\n" for s in history))
    titles = [part.title for part in learning(read_run(str(tmp_path))).parts]
    assert {"Reward of the agent", "Valid proposals of the agent", "Effective rank, per agent"} <= set(titles)
    assert not [title for title in titles if "teachers" in title or "students" in title]


def test_plots_of_rounds_show_their_numbers(rounds):
    assert drawn("coverage", rounds)["Coverage of the task space"]["all"] == [10, 11, 12, 13, 14, 15]
    nodes = [summary.complexity["ast_nodes"] for summary in rounds]
    assert list(drawn("complexity", rounds)["Proposed programs: AST nodes"].values())[0] == nodes
    rates = drawn("solve_rates", rounds)["Matched solve rate, by task type"]
    assert rates["mean over types"] == [summary.solve_rate for summary in rounds]
    assert rates["code_o"] == rates["code_i"] == [0.4] * 3  # in turns
    (picture,) = PLOTS["matrix"](rounds).axes[0].images
    assert picture.get_array().filled(-1).tolist() == [[-1, 0.25], [0.25, -1]]  # 2 of 8; the others did not meet


@pytest.mark.slow
def test_plots_of_a_single_poor_round(tmp_path, rounds):
    from dataclasses import replace

    poor = replace(rounds[0], complexity={}, coverage={}, events=())
    names = {path.rsplit("/", 1)[1] for path in save_plots([poor], tmp_path)}
    missing = {"complexity.png", "coverage.png", "family_tree.png", "weights.png"}
    assert names == {f"{name}.png" for name in PLOTS} - missing
    fewer = replace(poor, solve_rate=None, solve_rates={}, fill_rate=None, solve_rate_filled=None)
    assert PLOTS["solve_rates"]([poor]) is not None and PLOTS["solve_rates"]([fewer]) is None
    with pytest.raises(ValueError, match="no rounds"):
        save_plots([], tmp_path)


def test_running_mean():
    assert running_mean([1, 2, 3, 4], window=2) == [1, 1.5, 2.5, 3.5]


def test_in_a_long_run_a_type_that_takes_turns_is_a_running_mean_too():
    history = [make_round(k, solve_rates={("code_o", "code_i")[k % 2]: k / 40}) for k in range(40)]
    axis = PLOTS["solve_rates"](history).axes[0]
    (line,) = [line for line in axis.lines if line.get_label() == "code_i"]
    assert axis.get_xlabel() == "round, running mean of 9"
    assert list(line.get_ydata()) == running_mean([k / 40 for k in range(1, 40, 2)])
