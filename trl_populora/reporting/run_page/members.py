"""The members: a table, and for each its curves, its ancestors and its distances to others."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...diagnostics import RoundSummary
from ...diagnostics.dynamics import MemberSummary, mean, solve_rate_matrix
from ..page import Cell, Column, Plot, Section, Table, Widget
from ..page.figures import thinned
from ..page.formats import is_missing, written
from ..tables import Spent, compute_totals, strongest
from .series import colours, is_long, rating_digits, smooth
from .weights import adapter_cosines


if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ..played_run import PlayedRun

MAX_CARDS = 32
"""Maximum number of members with their own curves."""
MAX_ANCESTORS = 40
"""Maximum number of births in a member's line that its card shows."""


def members(run: PlayedRun) -> tuple[Section, dict[str, Any]]:
    """The section, and the data of its widget: member -> content of its card."""
    distances, notes = member_distances(run)
    parts: list[Any] = [_table(run)]
    parts.append(
        Widget(
            "members",
            "details.html.jinja",
            {"source": "members", "first": _first(run)},
            title="One member",
            how="Click a row of the table above to see another one.",
        )
    )
    for role, measures in distances.items():
        parts.append(_distance_plot(role, measures, notes))
    totals = compute_totals(run.history)
    cards = {name: _card(run, name, distances, totals[name]) for name in colours(run)}
    for name in cards.keys() - set(_drawn(run)):
        del cards[name]["figure"]
    return Section("members", "Members", parts), cards


def _first(run: PlayedRun) -> str:
    """The member whose card is shown first: the strongest student."""
    best = [strongest(run.last, role) for role in ("student", "shared", "teacher")]
    return next((member.name for member in best if member is not None), run.last.members[0].name)


def card_figures(run: PlayedRun) -> dict[str, go.Figure]:
    """Name of the figure -> curves of a member for its card."""
    return {f"member-{name}": _curves(run, name) for name in _drawn(run)}


def _drawn(run: PlayedRun) -> list[str]:
    """Members whose cards have curves: the first members, and the one whose card is shown first."""
    return list(dict.fromkeys([_first(run), *colours(run)]))[:MAX_CARDS]


def _table(run: PlayedRun) -> Table:
    totals, looks = compute_totals(run.history), colours(run)
    scores = _probe_scores(run)
    columns = [
        Column("member"),
        Column("version", "count", "Number of times that a child took over the slot"),
        Column("since round", "count", "The first round that this member plays"),
        Column("rating", "number", "TrueSkill mean after the last round", 1),
        Column("± sigma", "number", "Uncertainty of the rating", 1),
        Column("rating over time", "curve"),
        Column("reward", "signed", "Mean reward of a row in the last round"),
        Column("valid", "share", "Share of its proposals that became tasks"),
        Column("solved", "share", "For a student: of its attempts. For a teacher: of the attempts at its tasks"),
        Column("solved over time", "curve"),
        Column("distinct", "share", "How different its completions to one prompt are: 0 % if all are the same"),
        Column("probe", "share", "Accuracy in the first exam of the newest probe, if this version took it"),
        Column("|ΔW|", "number", "Norm of its weight update, when this version was last measured", 2),
        Column("rows", "count", "Rows from which this slot has learned"),
        Column("tokens", "count", "Completion tokens of those rows"),
        Column("updates", "count", "Optimizer steps"),
    ]
    if not run.self_play:
        columns[3:6] = [Column("mean reward", "signed"), Column("± sigma", "number"), Column("over time", "curve")]
    rows = []
    for member in run.last.members:
        own = of_member(run.history, member.name)
        spent = totals[member.name]
        rows.append(
            [
                Cell(member.name, colour=looks[member.name]["color"]),
                member.version,
                _since(run, member),
                member.mu,
                member.sigma,
                thinned([one.mu for _, one in own], 60),
                member.reward,
                member.validity,
                member.solve_rate,
                thinned([one.solve_rate for _, one in own], 60),
                member.distinct,
                scores.get(member.name),
                next((one.delta_norm for _, one in reversed(own) if _measured(one, member.version)), None),
                spent.rows,
                spent.completion_tokens,
                spent.updates,
            ]
        )
    kept = [k for k in range(len(columns)) if k == 0 or any(_shown(row[k]) for row in rows)]
    return Table(
        "members",
        [columns[k] for k in kept],
        [[row[k] for k in kept] for row in rows],
        title="All members after the newest round",
        how="Click a heading to sort, and a row for more. Small lines have different scales: compare only the shapes.",
        keys=[member.name for member in run.last.members],
    )


def _shown(value: Any) -> bool:
    return any(not is_missing(one) for one in value) if isinstance(value, list) else not is_missing(value)


def of_member(history: Sequence[RoundSummary], name: str) -> list[tuple[int, MemberSummary]]:
    """Rounds of a member: number from 1, and its summary."""
    return [(summary.round + 1, one) for summary in history for one in summary.members if one.name == name]


def _since(run: PlayedRun, member: MemberSummary) -> int | None:
    for event in run.events:
        imported = event.get("kind") == "import"  # the run began with it
        if (event["slot"], event["version"]) == (member.name, member.version) and not imported:
            return None if event["round"] is None else event["round"] + 1
    return 1 if member.version == 0 else None


def _measured(member: MemberSummary, version: int) -> bool:
    return member.version == version and not is_missing(member.delta_norm)


def _probe_scores(run: PlayedRun) -> dict[str, float | None]:
    exams = run.probes[-1].get("exams", {}) if run.probes else {}
    exam = next(iter(exams.values()), {"players": {}})
    return {player: one.get("accuracy") for player, one in exam["players"].items() if _was_probed(run, player)}


def _was_probed(run: PlayedRun, name: str) -> bool:
    """Whether the newest probe measured the member of the newest round, and not the one before or after it in its
    slot. A probe comes after the replacements of its round."""
    version = next((member.version for member in run.last.members if member.name == name), None)
    played = [number for number, one in of_member(run.history, name) if one.version == version]
    left = run.last.round + 1 if any(event["slot"] == name for event in run.last.events) else math.inf
    return bool(played) and played[0] - 1 <= run.probes[-1]["round"] < left


def _rating(member: MemberSummary, digits: int) -> str:
    mu, sigma = (written(value, "number", digits) for value in (member.mu, member.sigma))
    return mu if member.mu is None else f"{mu} ± {sigma}"


# Cards ---------------------------------------------------------------------------------------------------------------


def _card(run: PlayedRun, name: str, distances: Mapping[str, Measures], spent: Spent) -> dict[str, Any]:
    """Content of a member's card."""
    number, member = of_member(run.history, name)[-1]
    slot = ", with earlier members of the slot" if member.version else ""
    facts = [
        ["role", member.role],
        ["version", str(member.version)],
        ["rating" if run.self_play else "running reward", _rating(member, rating_digits(run))],
        ["mean reward", written(member.reward, "signed")],
        ["valid proposals", written(member.validity, "share")],
        ["solved", written(member.solve_rate, "share")],
        *[[f"solved, {kind}", written(rate, "share")] for kind, rate in sorted(member.solve_rates.items())],
        ["fill-ins solved", written(member.solve_rate_filled, "share")],
        ["distinct completions", written(member.distinct, "share")],
        ["tokens a completion", written(member.length, "number", 0)],
        [f"rows learned from{slot}", written(spent.rows, "count")],
        ["completion tokens", written(spent.completion_tokens, "count")],
        ["updates", written(spent.updates, "count")],
    ]
    if number != run.last.round + 1:
        facts.insert(0, ["last seen in round", str(number)])
    tables = [{"title": "Where it comes from", "columns": ["round", "", "rating"], "rows": _ancestors(run, member)}]
    if member.refusals:
        reasons = sorted(member.refusals.items(), key=lambda one: -one[1])
        tables.append(
            {
                "title": "Refused in the newest round",
                "columns": ["reason", "times"],
                "rows": [[reason, str(count)] for reason, count in reasons],
            }
        )
    for measures in distances.values():
        if name in measures.names:
            tables.append(_neighbours(name, measures))
    return {
        "title": f"{name}, version {member.version}",
        "facts": [[label, value] for label, value in facts if value != "–"],
        "tables": tables,
        "figure": f"member-{name}",
    }


def _ancestors(run: PlayedRun, member: MemberSummary) -> list[list[str]]:
    """First parents of a member, their first parents, and so on."""
    births = {(event["slot"], event["version"]): event for event in run.events}
    rows, one, digits, kind = [], (member.name, member.version), rating_digits(run), None
    while one in births and len(rows) < MAX_ANCESTORS:
        event = births[one]
        others = ", ".join(f"{name}@{version}" for name, version in event["parents"])
        before, after, kind = event.get("rating_before"), event.get("rating_after"), event.get("kind")
        moved = ""
        if kind != "import" and before and after and None not in (before[0], after[0]):
            moved = f"{before[0]:.{digits}f} → {after[0]:.{digits}f}"
        number = "" if event["round"] is None else str(event["round"])
        rows.append([number, f"{one[0]}@{one[1]} is {event['operator']}({others})", moved])
        if not event["parents"]:
            break
        one = tuple(event["parents"][0])
    more = one in births and births[one]["parents"]
    first = ", from elsewhere" if kind == "import" else ", founder"
    rows.append(["", f"{one[0]}@{one[1]}{'; its ancestors are left out' if more else first}", ""])
    return rows


def _neighbours(name: str, measures: Measures) -> dict[str, Any]:
    names = measures.names
    k = names.index(name)
    others = [j for j in range(len(names)) if j != k]
    return {
        "title": "Distance to the others",
        "columns": ["", *measures],
        "rows": [[names[j], *(written(matrix[k][j], "number") for matrix in measures.values())] for j in others],
    }


def _curves(run: PlayedRun, name: str) -> go.Figure:
    """A figure with the rating, share, reward and length of a member."""
    from plotly.subplots import make_subplots

    own = of_member(run.history, name)
    teaches = any(not is_missing(one.validity) for _, one in own)
    look = colours(run)[name]
    panels = [
        ("rating" if run.self_play else "running reward", lambda one: one.mu, False),
        ("tasks solved", lambda one: one.solve_rate, True),
        ("mean reward", lambda one: one.reward, True),
        (
            "proposals valid" if teaches else "tokens a completion",
            lambda one: one.validity if teaches else one.length,
            True,
        ),
    ]
    panels = [panel for panel in panels if any(not is_missing(panel[1](one)) for _, one in own)]
    columns = 2 if len(panels) > 1 else 1
    figure = make_subplots(
        rows=-(-len(panels) // columns), cols=columns, subplot_titles=[title for title, _, _ in panels],
        vertical_spacing=0.2, horizontal_spacing=0.1,
    )  # fmt: skip
    for k, (title, pick, noisy) in enumerate(panels):
        points = [(number, pick(one)) for number, one in own]
        points = smooth(points) if noisy and is_long(run.history) else points
        xs, ys = zip(*thinned(points))
        ys = [None if is_missing(value) else value for value in ys]
        mode = "lines+markers" if len(xs) <= 12 else "lines"
        place = {"row": k // columns + 1, "col": k % columns + 1}
        figure.add_scatter(x=xs, y=ys, name=title, mode=mode, line={"color": look["color"], "width": 1.6}, **place)
    births = [event["round"] for event in run.replacements if event["slot"] == name and event["round"] is not None]
    style = {"type": "line", "y0": 0, "y1": 1, "line": {"color": "var(--mark)", "width": 1}}
    traces: Any = figure.data
    figure.update_layout(  # together: add_vline would copy those before it
        shapes=[
            {**style, "x0": number, "x1": number, "xref": trace.xaxis, "yref": f"{trace.yaxis} domain"}
            for number in births
            for trace in traces
        ]
    )
    figure.update_annotations(font={"size": 11, "color": "var(--muted)"})
    return figure.update_layout(showlegend=False, height=300, margin={"t": 24})


# Distances -----------------------------------------------------------------------------------------------------------


class Measures(dict):
    """Measure -> matrix of distances between the members of a role, in the order of `names`."""

    names: list[str]


def member_distances(run: PlayedRun) -> tuple[dict[str, Measures], list[str]]:
    """Role -> distances between its members by every recorded measure; and remarks."""
    notes: list[str] = []
    roles: dict[str, list[MemberSummary]] = {}
    for member in run.last.members:
        roles.setdefault(f"{member.role}s" if member.role != "shared" else "members", []).append(member)
    cosines = {}
    try:
        cosines = {role: _cosines(run, [member.name for member in own]) for role, own in roles.items()}
    except ValueError as error:
        notes.append(f"No distances of weights: {error}")
    found = {}
    for role, own in roles.items():
        if len(own) < 2:
            continue
        measures = Measures()
        measures.names = [member.name for member in own]
        candidates = {
            "weights": cosines.get(role),
            "rating": _apart([[member.mu] for member in own]) if run.self_play else None,
            "solve rates": _apart(_profiles(run, own)),
            "probes": _apart(_probe_profiles(run, measures.names)),
        }
        for name, matrix in candidates.items():
            if matrix is not None and any(value is not None for i, row in enumerate(matrix) for value in row[:i]):
                measures[name] = matrix
        if measures:
            found[role] = measures
    return found, notes


def _apart(profiles: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Mean absolute difference of two profiles over the entries that both have; `None` without one."""
    return [
        [mean(abs(a - b) for a, b in zip(one, other) if a is not None and b is not None) for other in profiles]
        for one in profiles
    ]


def _profiles(run: PlayedRun, members: Sequence[MemberSummary]) -> list[list[float | None]]:
    """Matched solve rates of each member: against every opponent, and by task type."""
    last, kinds = run.last, sorted({kind for member in members for kind in member.solve_rates})
    matrix = solve_rate_matrix(last)
    columns = list(zip(*matrix)) if matrix else []
    against = dict(zip(last.teachers, map(list, matrix))) | dict(zip(last.students, map(list, columns)))
    return [[*against.get(member.name, ()), *(member.solve_rates.get(kind) for kind in kinds)] for member in members]


def _probe_profiles(run: PlayedRun, names: Sequence[str]) -> list[list[float | None]]:
    """Accuracy of each member in every exam and every group of its questions, in the newest probe."""
    profiles: list[list[float | None]] = [[] for _ in names]
    for exam in (run.probes[-1].get("exams", {}) if run.probes else {}).values():
        groups = list(exam.get("groups") or ())
        for profile, name in zip(profiles, names):
            one = exam["players"].get(name, {}) if _was_probed(run, name) else {}
            own = one.get("groups") or {}
            profile += [own.get(group) for group in groups] if len(groups) > 1 else [one.get("accuracy")]
    return profiles


def _cosines(run: PlayedRun, names: Sequence[str]) -> list[list[float | None]]:
    """1 minus the cosine of the updates of two members of a role, from the saved adapters.

    Raises:
        ValueError: If adapters are missing, too large, or cannot be read.
    """
    if run.adapters is None:
        raise ValueError("the folder holds no saved adapters yet.")
    folders = {name: os.path.join(run.adapters, name) for name in names}
    cosines = adapter_cosines(folders) if len(folders) > 1 else {}
    return [[None if (value := cosines.get((one, other))) is None else 1 - value for other in names] for one in names]


MEANING = {
    "weights": "1 minus the cosine of two updates: 0 means the same direction, 1 means nothing in common",
    "rating": "difference of the ratings",
    "solve rates": "mean difference of solve rates, opponent by opponent and type by type",
    "probes": "mean difference of accuracy, by kind of question",
}


def _distance_plot(role: str, measures: Measures, notes: Sequence[str]) -> Plot:
    import plotly.graph_objects as go

    from ..page.figures import SEQUENTIAL

    def look(name: str) -> dict[str, Any]:
        matrix = [[None if i == j else value for j, value in enumerate(row)] for i, row in enumerate(measures[name])]
        known = [value for row in matrix for value in row if value is not None]
        texts = [["" if value is None else written(value, "number") for value in row] for row in matrix]
        return {"z": matrix, "text": texts, "zmin": 0, "zmax": max(known, default=1.0) or 1.0}

    first = next(iter(measures))
    figure = go.Figure(
        go.Heatmap(
            x=measures.names, y=measures.names, **look(first), colorscale=SEQUENTIAL, xgap=2, ygap=2,
            hovertemplate="%{y} and %{x}: %{text}<extra></extra>",
            texttemplate="%{text}" if len(measures.names) <= 16 else None,
            colorbar={"thickness": 10, "outlinewidth": 0},
        )
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    figure.update_xaxes(showgrid=False, ticks="")
    if len(measures) > 1:
        buttons = []
        for name in measures:
            shown = look(name)
            shown |= {"z": [shown["z"]], "text": [shown["text"]]}
            buttons.append({"label": name, "method": "restyle", "args": [shown]})
        figure.update_layout(
            updatemenus=[{"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.16, "yanchor": "top"}]
        )
        figure.update_layout(margin={"t": 46})
    told = "; ".join(f"{name}: {MEANING[name]}" for name in measures)
    extra = f" {' '.join(notes)}" if notes else ""
    return Plot(
        f"distance-{role}",
        figure,
        f"Distance between {role}",
        f"Dark means very different. A light block is a group of very similar members. "
        f"{told[0].upper()}{told[1:]}.{extra}",
        height=340,
    )
