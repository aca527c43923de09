"""The page that compares runs: curves of arms with bands over seeds, differences, settings and costs.

`comparison` computes all numbers. `page` decides how they look.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from .comparison import Comparison, Row, group_arms
from .over_seeds import LEVEL, Difference, Interval
from .page import Cell, Column, Facts, Plot, Section, Table, Text, render_page
from .page.figures import line_figure, look, thinned
from .page.formats import NOTHING
from .played_run import EXAMS, FINAL, read_run
from .plots import MEASURES
from .tables import SPENT, counted


class Shown(NamedTuple):
    """How a measure is shown.

    Attributes:
        title (`str`): Its title on the page. `{}` stands for the part of the name after a prefix.
        how (`str`): What it measures.
        unit (`str`): Title of its axis.
        share (`bool`): Whether it is a share between 0 and 1, shown in percent.
        group (`str`): Group of curves to which it belongs.
    """

    title: str
    how: str
    unit: str = ""
    share: bool = False
    group: str = "Self-play"


TYPES = "types/solve_rate/"
SHOWN = {
    "solve_rate": Shown(
        "Matched solve rate",
        "Share of students' attempts at teachers' tasks that solved them, mean over task types.",
        "share",
        True,
    ),
    TYPES: Shown("Matched solve rate, {}", "The same for one task type, in each round.", "share", True),
    "fill_rate": Shown("Filled-in tasks", "Share of attempts at tasks from the buffer.", "share", True),
    "tasks/unsolved": Shown("Unsolved tasks", "Share of valid tasks that their student never solved.", "share", True),
    "teachers/validity": Shown("Valid proposals", "Share of proposals that became tasks.", "share", True, "Tasks"),
    "tasks/duplicates": Shown(
        "Duplicates", "Share of proposals refused because the task exists already.", "share", True, "Tasks"
    ),
    "tasks/similarity": Shown("Similarity", "Mean similarity of two tasks of a round.", "share", True, "Tasks"),
    "complexity/": Shown(
        "Proposed tasks: {}", "Mean complexity of what teachers wrote in valid tasks.", "mean", group="Tasks"
    ),
    "coverage/filled": Shown("Coverage", "Cells of the task space visited so far.", "cells", group="Tasks"),
    "exam/": Shown("Exam {}", "Accuracy during the run, mean over students.", "share", True, "Exams"),
    "final/": Shown("Final exam {}", "Accuracy of the students after the run.", "share", True, "Exams"),
    "teachers/reward": Shown("Reward, teachers", "Mean reward of a row.", "reward", group="Rewards"),
    "students/reward": Shown("Reward, students", "Mean reward of a row.", "reward", group="Rewards"),
    "teachers/rating/dispersion": Shown(
        "Rating dispersion, teachers", "Standard deviation of TrueSkill means.", "rating", group="Ratings"
    ),
    "students/rating/dispersion": Shown(
        "Rating dispersion, students", "Standard deviation of TrueSkill means.", "rating", group="Ratings"
    ),
    "tokens/learned": Shown("Tokens", "Completion tokens per round that were learned from.", "tokens", group="Cost"),
    "teachers/length": Shown("Length, teachers", "Mean tokens of a completion.", "tokens", group="Cost"),
    "students/length": Shown("Length, students", "Mean tokens of a completion.", "tokens", group="Cost"),
}
"""Measures on the page, in its order: a name, or the beginning of names."""

METHOD = (
    "An arm is a group of runs whose settings differ only in the seed and in paths. Its curve is the mean over its "
    f"seeds, and its band is Student's {LEVEL:.0%} interval over them. Thin lines are the single seeds. A band is cut "
    "at the ends of the axis. Rounds are compared one by one, so a band is valid for one round and not for the whole "
    "curve.",
    "A difference is an arm's mean minus the control's. It is paired by seed if every seed of one arm is also in the "
    f"other arm, otherwise it is Welch's. Intervals are Student's at {LEVEL:.0%} (our choice). The effect size is "
    "Hedges' g: the difference divided by the standard deviation (if paired, of the paired differences), corrected "
    "for few seeds. There is none for two seeds, whose correction is 0. There is no interval if an arm has one seed, "
    "or if the difference is the same in every seed. Intervals of shares are cut at 0 and 100%.",
    "Clear means that the interval excludes 0 after correction for the number of comparisons on this page "
    "(Bonferroni). With more comparisons, more intervals exclude 0 by chance alone.",
)


def comparison_page(folders: Sequence[str]) -> str:
    """
    The page of several runs, as one file of HTML.

    Args:
        folders (`Sequence[str]`): Folders of runs. The arm of the first is the control.

    Raises:
        ValueError: If a folder is named twice or is no run with a round, if no round is in the history of all runs, or
            if plotly is not installed.
    """
    paths = [os.path.realpath(folder) for folder in folders]
    twice = next((folder for folder, path in zip(folders, paths) if paths.count(path) > 1), None)
    if twice:
        raise ValueError(f"{twice} is named twice.")
    comparison = Comparison(group_arms([read_run(folder) for folder in folders]))
    runs, arms = len(comparison.runs), len(comparison.arms)
    subtitle = f"{runs} runs in {arms} arm{'s' * (arms > 1)}, compared over {comparison.span}"
    return render_page("Comparison of runs", comparison_sections(comparison), subtitle=subtitle)


def comparison_sections(comparison: Comparison) -> list[Section]:
    """All sections of a comparison, in the order of the page."""
    measures = shown_measures(comparison)
    curves = [name for name in measures if not name.startswith(FINAL)]
    rows = [comparison.row(measure) for measure in measures] if len(comparison.arms) > 1 else []
    made = count_comparisons(rows)
    table = differences_table(comparison, rows, comparisons=max(made, 1))
    groups = dict.fromkeys(shown(name).group for name in curves)
    return [
        Section("arms", "Arms", [arms_table(comparison), Text(remarks(comparison), tone="note"), _unlike(comparison)]),
        Section("differences", "Differences", [table] if rows else [], lead=_lead(comparison, made)),
        *(
            Section(
                f"curves-{group.lower()}",
                group,
                [plot(comparison, name) for name in curves if shown(name).group == group],
            )
            for group in groups
        ),
        Section("compute", "Compute", [compute_table(comparison), adapters_table(comparison)]),
        Section("settings", "Settings", _settings(comparison)),
        Section("method", "How to read this page", [Text(METHOD)]),
    ]


def shown(measure: str) -> Shown:
    """How a measure is shown, one of [`shown_measures`]."""
    if measure in SHOWN:
        return SHOWN[measure]
    prefix = next(name for name in SHOWN if name.endswith("/") and measure.startswith(name))
    rest = measure.removeprefix(prefix)
    if prefix == EXAMS:
        rest = rest.removesuffix("/mean")
    if prefix == FINAL:
        exam, _, kind = rest.rpartition("/")
        rest = f"{exam}, {kind}"
    if prefix == "complexity/":
        rest = MEASURES.get(rest, rest.replace("_", " "))
    return SHOWN[prefix]._replace(title=SHOWN[prefix].title.format(rest))


def shown_measures(comparison: Comparison) -> list[str]:
    """Measures that the page shows and the runs have, in the order of the page."""
    there = comparison.measures
    types = [name for name in there if name.startswith(TYPES) and "/" not in name.removeprefix(TYPES)]
    found = []
    for pattern in SHOWN:
        own = [name for name in there if name == pattern or (pattern.endswith("/") and name.startswith(pattern))]
        if pattern == TYPES:
            own = types if len(types) > 1 else []
        if pattern == EXAMS:
            own = [name for name in own if name.endswith("/mean")]
        if pattern == FINAL:
            own = [name for name in own if name.endswith("/mean") or _says_more(comparison, name)]
        found += own
    return found


def arms_table(comparison: Comparison) -> Table:
    """The arms, with their colours and seeds."""
    columns = [
        Column("arm"), Column("seeds", "count"), Column("which"), Column("rounds", hint="played by each run"),
        Column("folders", "code"),
    ]  # fmt: skip
    rows = []
    for k, arm in enumerate(comparison.arms):
        name = f"{arm.name} (control)" if k == 0 and len(comparison.arms) > 1 else arm.name
        rows.append(
            [
                Cell(arm.name, text=name, colour=look(k)["color"], bold=k == 0),
                len({run.seed for run in arm.runs}),
                ", ".join(str(run.seed) for run in arm.runs),
                ", ".join(dict.fromkeys(str(run.rounds) for run in arm.runs)),
                ", ".join(run.folder for run in arm.runs),
            ]
        )
    return Table("arms", columns, rows)


def remarks(comparison: Comparison) -> list[str]:
    """Warnings that a reader must see before the numbers."""
    told = []
    lengths = sorted({run.rounds for run in comparison.runs})
    if len(lengths) > 1:
        exams = ", but final exams come after them" if any(run.exams for run in comparison.runs) else ""
        told.append(
            f"Runs have {lengths[0]} to {lengths[-1]} rounds. They are compared over the {comparison.span} "
            f"that all runs have. Later rounds are not on this page{exams}."
        )
    told += [
        f"The history of {run.folder} begins at round {run.first}: the run continues another, whose rounds are not in "
        f"its folder."
        for run in comparison.runs
        if run.first > 1
    ]
    told.append(
        f"Numbers of curves are means over the last {comparison.last} of {comparison.span}; for exams "
        f"during a run, they are the newest that all runs have taken."
    )
    single = [arm.name for arm in comparison.arms if len({run.seed for run in arm.runs}) < 2]
    if single:
        told.append(
            f"One seed only: {', '.join(single)}. Variance between seeds cannot be estimated from one seed, so there "
            f"is no band and no interval."
        )
    if any(len({run.seed for run in arm.runs}) == 2 for arm in comparison.arms):
        told.append("Two seeds give very wide intervals: Student's factor is 12.7. Three have 4.3, five 2.8.")
    twice = [arm.name for arm in comparison.arms if len({run.seed for run in arm.runs}) < len(arm.runs)]
    if twice:
        told.append(f"A seed was run more than once in {', '.join(twice)}: it counts once, as the mean of its runs.")
    unknown = [run.folder for run in comparison.runs if not run.record]
    if unknown:
        told.append(f"Settings are not recorded in {', '.join(unknown)}: each is a separate arm.")
    return [*told, *(remark for run in comparison.runs for remark in run.remarks)]


def plot(comparison: Comparison, measure: str) -> Plot:
    """A measure over the rounds: the mean and band of each arm, and its seeds as thin lines."""
    about = shown(measure)
    points = {arm.name: comparison.curve(arm, measure) for arm in comparison.arms}
    seeds = {
        arm.name: [list(comparison.run_curve(run, measure).items()) for run in arm.runs] for arm in comparison.arms
    }
    figure = line_figure(
        {name: [(point.round, point.mean) for point in own] for name, own in points.items()},
        y=about.unit,
        share=about.share,
        bands={
            name: [(p.round, p.low, p.high) for p in own if p.low is not None and p.high is not None]
            for name, own in points.items()
        },
        width=2.2,
    )
    means = len(figure.data)  # pyright: ignore[reportArgumentType]  # plotly's hint: perhaps a figure
    for k, (name, lines) in enumerate(seeds.items()):
        for line in lines if len(lines) > 1 else ():
            xs, ys = zip(*thinned(line)) if line else ((), ())
            style = {"color": look(k)["color"], "width": 0.8}
            extra = dict(mode="lines", opacity=0.4, hoverinfo="skip", showlegend=False, legendgroup=name)
            figure.add_trace(go.Scatter(x=list(xs), y=list(ys), line=style, **extra))
    figure.data = (*figure.data[means:], *figure.data[:means])  # seeds behind the means
    values = [value for lines in seeds.values() for line in lines for _, value in line]
    if about.share and values:
        top = min(max(1.08 * max(values), 0.1), 1.03)
        figure.update_yaxes(range=[-0.03 * top, top])
    elif values:
        margin = 0.08 * (max(values) - min(values)) or 0.5
        figure.update_yaxes(range=[min(values) - margin, max(values) + margin])
    return Plot(measure, figure, about.title, about.how)


def differences_table(comparison: Comparison, rows: Sequence[Row], *, comparisons: int) -> Table:
    """Every measure of every arm, with its difference to the control."""
    columns = [
        Column("measure"),
        Column("arm"),
        Column("control", "number", hint="mean over seeds and its interval"),
        Column("mean", "number", hint="of the arm, over seeds, and its interval"),
        Column("difference", "signed", hint=f"arm minus control, and its {LEVEL:.0%} interval; of shares, in points"),
        Column("effect (g)", "signed", hint="Hedges' g: the difference in standard deviations"),
        Column("seeds", hint="pairs of seeds, or seeds of the arm and of the control"),
        Column("clear", hint=f"whether the interval excludes 0 for all {comparisons} comparisons together"),
        Column("remark"),
    ]
    table = []
    for row in rows:
        about = shown(row.measure)
        for k, (arm, found) in enumerate(zip(comparison.arms[1:], row.differences, strict=True), start=1):
            seeds = NOTHING if found is None else _seeds(found)
            table.append(
                [
                    about.title,
                    Cell(arm.name, colour=look(k)["color"]),
                    _interval(row.values[0], about.share),
                    _interval(row.values[k], about.share),
                    _difference(found, about.share),
                    found and found.effect,
                    seeds,
                    Cell("", NOTHING)
                    if found is None or found.p is None
                    else Cell("yes" if found.clear(comparisons) else "no", bold=found.clear(comparisons)),
                    "an arm has no value" if found is None else found.why,
                ]
            )
    return Table("differences", columns, table)


def compute_table(comparison: Comparison) -> Table:
    """What a run of each arm learned from, in total and per adapter."""
    columns = [
        Column("arm"), Column("of"), Column("adapters", "count"), Column("rows", "count", "learned from"),
        Column("prompt tokens", "count"), Column("completion tokens", "count"),
        Column("updates", "count", "optimizer steps"),
        Column("rows not learned from", "count"), Column("their completion tokens", "count"),
        Column("seconds", "count", "of rounds, without probes and saving"),
    ]  # fmt: skip
    rows = []
    for k, arm in enumerate(comparison.arms):
        cost, colour = comparison.cost(arm), look(k)["color"]
        rows.append([Cell(arm.name, colour=colour), "a run", *cost])
        champions = comparison.adapters(arm).get("champions", (0,) * len(SPENT))  # have no adapter of their own
        each = [(one - own) / cost.adapters for one, own in zip(cost[1:-1], champions, strict=True)]
        # they train at the same time: no seconds
        rows.append([Cell(arm.name, colour=colour), "an adapter", None, *each, None])
    how = f"Mean over the runs of an arm, in {comparison.span}. Seconds depend on the machine and its load."
    return Table("compute", columns, rows, how=how)


def adapters_table(comparison: Comparison) -> Table:
    """What each adapter learned from."""
    columns = [Column("arm"), Column("adapter", "code"), *(Column(kind, "count") for kind in SPENT)]
    rows = [
        [Cell(arm.name, colour=look(k)["color"]), name, *counts]
        for k, arm in enumerate(comparison.arms)
        for name, counts in comparison.adapters(arm).items()
    ]
    return Table("adapters", columns, rows, title="Each adapter", how="Mean over the runs of an arm.")


def count_comparisons(rows: Sequence[Row]) -> int:
    """How many differences have an interval."""
    return sum(found is not None and found.p is not None for row in rows for found in row.differences)


def _lead(comparison: Comparison, made: int) -> str:
    told = f"Each arm minus {comparison.arms[0].name}. "
    if not made:
        return f"{told}No comparison has an interval."
    return (
        f"{told}{counted(made, 'comparison')} {'has' if made == 1 else 'have'} an interval; at {LEVEL:.0%} about "
        f"{(1 - LEVEL) * made:.1f} of them would exclude 0 by chance if there were no differences."
    )


def _unlike(comparison: Comparison) -> Text:
    equal, found = comparison.equal_runs(), comparison.circumstances()
    if not found:
        return Text([*equal, "Versions, commits and other recorded facts about the runs are the same."])
    return Text([*equal, "Runs differ in more than their settings:", *found], tone="alarm")


def _settings(comparison: Comparison) -> list[Table | Facts | Text]:
    differ, same = comparison.settings()
    parts: list[Table | Facts | Text] = []
    if differ:
        columns = [Column("setting", "code"), *(Column(arm.name) for arm in comparison.arms)]
        rows = [
            [name, *(Cell(value, text=_plain(value), bold=value != values[0]) for value in values)]
            for name, values in differ.items()
        ]
        parts.append(Table("settings", columns, rows, title="What differs", how="Bold: different from the first arm."))
    elif len(comparison.arms) > 1:
        parts.append(Text(["No recorded setting differs between the arms."]))
    return [*parts, Facts({name: _plain(value) for name, value in same.items()}, "What all runs share", closed=True)]


def _plain(value: str) -> str:
    """A JSON value as text: strings without quotes, a missing value as a dash."""
    if not value:
        return NOTHING
    found = json.loads(value)
    return found if isinstance(found, str) else value


def _says_more(comparison: Comparison, measure: str) -> bool:
    """Whether the best or the weakest student differs from the mean. With one student, it does not."""
    mean = f"{measure.rpartition('/')[0]}/mean"
    return any(comparison.value(run, measure) != comparison.value(run, mean) for run in comparison.runs)


def _seeds(found: Difference) -> str:
    return counted(found.seeds, "pair") if found.paired else f"{found.seeds} and {found.control_seeds}"


def _interval(value: Interval | None, share: bool) -> Cell | None:
    if value is None:
        return None
    low, high, ends = value.low, value.high, ""
    if low is not None and high is not None:
        low, high = (max(low, 0.0), min(high, 1.0)) if share else (low, high)  # a mean of shares is one
        ends = f" [{_amount(low, share)}, {_amount(high, share)}]"
    return Cell(value.mean, _amount(value.mean, share) + ends)


def _difference(found: Difference | None, share: bool) -> Cell | None:
    if found is None:
        return None

    def told(value: float) -> str:
        return f"{100 * value:+.1f}" if share else _amount(value, share, "+")

    ends = ""
    if found.low is not None and found.high is not None:
        ends = f" [{told(found.low)}, {told(found.high)}]"
    return Cell(found.difference, f"{told(found.difference)}{' points' if share else ''}{ends}")


def _amount(value: float, share: bool, sign: str = "") -> str:
    if share:
        return f"{100 * value:.1f}%"
    return f"{value:{sign},.0f}" if abs(value) >= 1000 else f"{value:{sign}.3g}"
