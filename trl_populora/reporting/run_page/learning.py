"""Curves of rewards, lengths, complexity, refusals, weights, probes and time; and all settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...diagnostics.dynamics import MemberSummary
from ...run_files.layout import RUN_FILE
from ...run_files.run import BASE
from ..evaluation_view import against_base, in_points, row_title, score_rows
from ..page import Cell, Column, Facts, Plot, Section, Table
from ..page.figures import INK, Points, look, new_figure, thinned
from ..page.formats import is_missing, written
from ..plots import MEASURES, panels
from ..probes import GAMES
from .series import MARKED, SMOOTHED, colours, curves, is_long, of_members, of_rounds, with_points


if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ..played_run import PlayedRun

HEIGHT = 270
COMMON_REASONS = 8


def learning(run: PlayedRun) -> Section:
    """The section with curves of the members and of their tasks."""
    return Section("learning", "Learning", [*_members(run), *_tasks(run), *_weights(run), *_seconds(run)])


def probes(run: PlayedRun) -> Section:
    """The section on exams during and after the run. It is empty if there were none."""
    return Section("probes", "Probes", [*_exams(run), *_founder_games(run), *_evaluation(run)])


def settings(run: PlayedRun) -> Section:
    """The section with all settings, versions and other facts of `run.json`."""
    flat = {name: _setting(value) for name, value in sorted(run.record.get("settings", {}).items())}
    versions = {name: str(value) for name, value in (run.record.get("versions") or {}).items()}
    rest = {
        name: _setting(value)
        for name, value in run.record.items()
        if name not in ("settings", "versions") and value not in (None, [], {})
    }
    parts = [
        Facts(values, title=f"{title} ({len(values)})", closed=True)
        for title, values in (("All settings", flat), ("Versions", versions), (f"The rest of {RUN_FILE}", rest))
        if values
    ]
    return Section("settings", "Settings", parts)


def _setting(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_setting(one)}" for name, one in value.items()) or "{}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_setting, value)) or "[]"
    return "none" if value is None else written(value)


def _members(run: PlayedRun) -> Iterator[Plot]:
    measures: dict[str, tuple[str, Callable[[MemberSummary], float | None], str]] = {
        "reward": (
            "Reward of the {}",
            lambda one: one.reward,
            "Mean reward of a row. In self-play, it is the reward of the game.",
        ),
        "validity": (
            "Valid proposals of the {}",
            lambda one: one.validity,
            "Share of its proposals that became tasks.",
        ),
        "solve-rate": ("Solve rate, per member: {}", lambda one: one.solve_rate, ""),
        "distinct": (
            "Distinct completions of the {}",
            lambda one: one.distinct,
            "How different the completions to one prompt are: 0 if all are the same, 1 if all differ.",
        ),
        "length": ("Response length of the {}", lambda one: one.length, "Mean tokens of a completion."),
    }
    how, roles = SMOOTHED if is_long(run.history) else "", panels(run.history)
    for name, (title, pick, words) in measures.items():
        for role in roles:
            lines = of_members(run.history, role, pick)
            if not lines:
                continue
            if name == "solve-rate":
                words = (
                    "Share of the attempts at its tasks that solved them, mean over task types: low is a hard teacher."
                    if role == "teachers"
                    else "Share of its attempts at teachers' tasks that solved them, mean over task types."
                )
            yield Plot(
                f"{name}-{role}",
                curves(run, lines, looks=colours(run), share=name in ("validity", "solve-rate", "distinct")),
                title.format(roles[role]),
                f"{words}{how}{MARKED if run.births and name == 'reward' else ''}",
                height=HEIGHT,
            )


def _tasks(run: PlayedRun) -> Iterator[Plot]:
    history = run.history
    how = SMOOTHED if is_long(history) else ""
    measures = {
        name: of_rounds(history, lambda s, name=name: s.complexity.get(name))
        for name in dict.fromkeys(name for summary in history for name in summary.complexity)
    }
    if measures := with_points(measures):
        named = {MEASURES.get(name, name.replace("_", " ")): points for name, points in measures.items()}
        yield Plot(
            "complexity",
            chosen(curves(run, named)),
            "Complexity of the proposed tasks",
            f"Mean complexity of what teachers wrote themselves, in the valid proposals of a round. Choose a "
            f"measure.{how}",
            height=HEIGHT,
        )
    authors = {"all": of_rounds(history, lambda s: s.coverage.get("filled"))}
    authors |= {
        name: of_rounds(history, lambda s, key=f"filled/{name}": s.coverage.get(key)) for name in run.last.teachers
    }
    if filled := with_points(authors):
        looks = colours(run) | {"all": {"color": INK, "width": 2.2}}
        yield Plot(
            "coverage",
            curves(run, filled, smoothed=False, looks=looks),
            "Coverage of the task space",
            "Cells of the task space visited so far, by all teachers and by each. A teacher with a flat line repeats "
            "itself.",
            height=HEIGHT,
        )
    if reasons := _refusals(run):
        yield Plot(
            "refusals",
            stacked(reasons, y="completions"),
            "Why completions are refused",
            "Refused proposals and answers, by reason, stacked. If a reason grows, members repeat this mistake more "
            "often. Examples are under Tasks.",
            height=HEIGHT,
        )
    shares = {
        name: of_rounds(history, lambda s, name=name: s.tasks.get(name))
        for name in ("unsolved", "unsolved_reward", "never_solved", "duplicates")
    }
    if shares := with_points(shares):
        told = {
            "unsolved": "unsolved by their student",
            "unsolved_reward": "reward from unsolved tasks",
            "never_solved": "never solved by anybody",
            "duplicates": "duplicates",
        }
        yield Plot(
            "task-shares",
            curves(run, {told[name]: points for name, points in shares.items()}, share=True),
            "What the tasks are worth",
            "If teachers earn most of their reward with tasks that nobody solves, these tasks may be impossible."
            f"{how}",
            height=HEIGHT,
        )


def _refusals(run: PlayedRun) -> dict[str, Points]:
    totals: Counter[str] = Counter()
    for member in (member for summary in run.history for member in summary.members):
        totals.update(member.refusals)
    common = [reason for reason, _ in totals.most_common(COMMON_REASONS)]

    def count(summary: Any, reason: str) -> int:
        return sum(member.refusals.get(reason, 0) for member in summary.members)

    return {reason: of_rounds(run.history, lambda summary, reason=reason: count(summary, reason)) for reason in common}


def _weights(run: PlayedRun) -> Iterator[Plot]:
    measured = [s for s in run.history if any(not is_missing(one.delta_norm) for one in s.members)]
    if not measured:
        return
    roles = panels(run.history)
    for role, named in roles.items():
        lines = of_members(measured, role, lambda one: one.delta_norm)
        if lines:
            yield Plot(
                f"weights-{role}",
                curves(run, lines, smoothed=False, looks=colours(run)),
                f"Size of the updates of the {named}",
                "Frobenius norm of ΔW over all matrices. A member with a very different norm learns at another "
                "speed, or was born later.",
                height=HEIGHT,
            )
    ranks = of_members(measured, "students", lambda one: one.effective_rank)
    if ranks:
        yield Plot(
            "ranks",
            curves(run, ranks, smoothed=False, looks=colours(run)),
            f"Effective rank, per {roles['students'].removesuffix('s')}",
            "Number of directions that an update uses, up to lora_r. Mean over matrices.",
            height=HEIGHT,
        )
    lines, looks = {}, {}
    for k, role in enumerate(dict.fromkeys(role for summary in measured for role in summary.cosines)):
        for kind in ("mean", "min", "max"):
            name = role if kind == "mean" else f"{role}, {kind}"
            lines[name] = [(s.round + 1, s.cosines.get(role, {}).get(kind)) for s in measured]
            looks[name] = look(k) | ({} if kind == "mean" else {"dash": "dot", "width": 1})
    if lines := with_points(lines):
        yield Plot(
            "cosines",
            curves(run, lines, smoothed=False, looks=looks),
            "Similarity of the updates of a role",
            "Cosine between two members' ΔW: mean, and as dotted lines the nearest and the farthest pair. Near 1, "
            "the members are copies of each other.",
            height=HEIGHT,
        )


def _seconds(run: PlayedRun) -> Iterator[Plot]:
    phases = dict.fromkeys(phase for summary in run.history for phase in summary.seconds)
    if phases:
        lines = {phase: of_rounds(run.history, lambda s, phase=phase: s.seconds.get(phase, 0.0)) for phase in phases}
        yield Plot(
            "seconds",
            stacked(lines, y="seconds"),
            "Where the time goes",
            "Seconds of each phase of a round, stacked, without probes and checkpoints.",
            height=HEIGHT,
        )


def chosen(figure: go.Figure) -> go.Figure:
    """The figure with one visible line and a menu to choose another."""
    traces: Any = figure.data
    names = [trace.name for trace in traces]
    for k, trace in enumerate(traces):
        trace.visible = k == 0
    buttons = [
        {"label": name, "method": "restyle", "args": ["visible", [other == name for other in names]]} for name in names
    ]
    menu = {"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom"}
    return figure.update_layout(updatemenus=[menu], showlegend=False, margin={"t": 40})


def stacked(lines: Mapping[str, Points], *, y: str) -> go.Figure:
    """A figure of stacked areas."""
    figure = new_figure(x="round", y=y, hovermode="x unified")
    for k, (name, points) in enumerate(lines.items()):
        xs, ys = zip(*thinned(points)) if points else ((), ())
        ys = [0 if is_missing(value) else value for value in ys]
        colour = look(k)["color"]
        figure.add_scatter(
            x=list(xs), y=ys, name=name, stackgroup="all", mode="lines", line={"color": colour, "width": 0.6},
            fillcolor=colour, opacity=0.7, hovertemplate="%{y:.3~g}",
        )  # fmt: skip
    return figure


# Probes --------------------------------------------------------------------------------------------------------------


def _exams(run: PlayedRun) -> Iterator[Plot]:
    exams = dict.fromkeys(name for record in run.probes for name in record.get("exams", {}))
    looks = colours(run) | {BASE: {"color": "var(--muted)", "dash": "dot", "width": 2}}
    for number, name in enumerate(exams):
        lines: dict[str, list] = {}
        questions = None
        for record in run.probes:
            exam = record.get("exams", {}).get(name, {})
            questions = exam.get("questions", questions)
            for player, one in exam.get("players", {}).items():
                lines.setdefault(player, []).append((record["round"], one.get("accuracy")))
        how = "answered with greedy decoding; nobody learns from them"
        size = f"{questions} questions, {how}" if questions else how.capitalize()
        noise = ""
        if questions:
            reach = f"{98 / questions**0.5:.0f} points"
            noise = f"; with other questions, an accuracy of 50% could be up to {reach} higher or lower (95% interval)"
        yield Plot(
            f"exam-{number}",
            curves(run, with_points(lines), smoothed=False, share=True, looks=looks),
            f"{name}: accuracy",
            f"{size}{noise}. The dotted line is the base.",
            height=HEIGHT,
        )


def _founder_games(run: PlayedRun) -> Iterator[Plot]:
    for number, ((role, kind), title) in enumerate(GAMES.items()):
        found: dict[str, list] = {}
        for record in run.probes:
            for name, one in ((record.get("founders") or {}).get(role) or {}).items():
                found.setdefault(name, []).append((record["round"], one.get(kind)))
        if lines := with_points(found):
            yield Plot(
                f"founders-{number}",
                curves(run, lines, smoothed=False, share=True, looks=colours(run)),
                title,
                "Answers of the current students to these tasks. If only founders fail, the tasks are harder, but "
                "can be solved."
                if kind == "unsolved_now"
                else "Games against the first members, who do not learn. A rising line means progress.",
                height=HEIGHT,
            )


def _evaluation(run: PlayedRun) -> Iterator[Table]:
    for number, exam in enumerate(run.evaluation.get("exams", ())):
        rows = []
        against = against_base(exam)
        for name, score in score_rows(exam).items():
            gap = against.get(name, {})
            known = not is_missing(gap.get("difference"))
            rows.append(
                [
                    Cell(row_title(name, exam), bold=name == BASE),
                    score.get("accuracy"),
                    score.get("low"),
                    score.get("high"),
                    Cell(gap.get("difference"), text=in_points(gap) if known else None),
                    Cell(gap.get("significant"), text="yes" if gap.get("significant") else "no" if gap else None),
                    score.get("tokens"),
                ]
            )
        yield Table(
            f"evaluation-{number}",
            [
                Column("player"),
                Column("accuracy", "share", digits=1),
                Column("95% from", "share", digits=1),
                Column("to", "share", digits=1),
                Column("minus base", "signed", "Difference to the base in points, with its 95% interval"),
                Column("significant", "text", "Over all comparisons of the evaluation"),
                Column("tokens", "number", "Mean of an answer", 0),
            ],
            rows,
            title=f"Evaluation: {exam.get('exam')}",
            how=f"{exam.get('questions')} questions, from the results of `populora evaluate` in evaluation/.",
        )
