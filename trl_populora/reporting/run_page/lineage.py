"""Who descends from whom: one line for each slot, with a mark for every replacement that opens its card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..history import first_versions, founders, lives
from ..page import Column, Plot, Section, Table, Widget
from ..page.figures import COLOURS, new_figure
from ..page.formats import written
from .series import rating_digits


if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ..played_run import PlayedRun

REST = "var(--muted)"
SYMBOLS = (
    *("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon", "hexagon", "triangle-down"),
    *("triangle-right", "triangle-left", "hourglass", "bowtie", "circle-open"),
)


def lineage(run: PlayedRun) -> tuple[Section, dict[str, Any]]:
    """The section, and the data of its widget: child -> content of its card. Empty if no member was replaced."""
    if not run.replacements:
        return Section("lineage", "Lineage", []), {}
    keys = [_key(event["slot"], event["version"]) for event in run.replacements]
    parts: list[Any] = []
    for role, slots in _sides(run).items():
        own = [event for event in run.events if event["slot"] in slots and event.get("kind") != "import"]
        if any(event["round"] is not None for event in own):
            parts.append(_tree(run, role, slots, own))
    parts.append(
        Widget(
            "lineage",
            "details.html.jinja",
            {"source": "lineage", "first": keys[-1]},
            title="One replacement",
            how="Click a mark in the figure or a row below.",
        )
    )
    parts.append(_table(run, keys))
    return Section("lineage", "Lineage", parts), {
        key: _card(event, rating_digits(run)) for key, event in zip(keys, run.replacements)
    }


def _key(slot: str, version: int) -> str:
    return f"{slot}@{version}"


def _sides(run: PlayedRun) -> dict[str, list[str]]:
    """Role -> slots in order, including those of members that a resumed run no longer has."""
    sides: dict[str, dict[str, None]] = {}
    for member in (member for summary in run.history for member in summary.members):
        sides.setdefault(member.role, {})[member.name] = None
    return {role: list(names) for role, names in sides.items()}


def _tree(run: PlayedRun, role: str, slots: Sequence[str], events: Sequence[Mapping[str, Any]]) -> Plot:
    figure = new_figure(x="round", hovermode="closest")
    lane = {name: k for k, name in enumerate(slots)}
    end = run.last.round + 1
    first = {name: version for name, version in first_versions(run.history).items() if name in slots}
    latest, founder = founders(first, events)
    joined = sum(event.get("kind") == "join" for event in events)
    events = [event for event in events if event["round"] is not None]
    seen = lives(run.history)
    living = Counter(founder[name, version] for name, version in latest.items() if seen[name][1] == end)
    palette = dict(zip([name for name, _ in living.most_common()], COLOURS))

    def colour(name: str, version: int) -> str:
        return palette.get(founder.get((name, version), name), REST)

    since = {name: (seen[name][0], first[name]) for name in slots}  # round and version
    lanes: dict[str, tuple[list, list]] = {}
    links: dict[str, tuple[list, list]] = {}
    numbers = sorted({event["round"] for event in events})
    slant = 0.5 * min([b - a for a, b in zip(numbers, numbers[1:])], default=numbers[0])

    def segment(store: dict, name: str, xs: Sequence, ys: Sequence) -> None:
        x, y = store.setdefault(name, ([], []))
        x += [*xs, None]
        y += [*ys, None]

    for event in events:
        slot, number = event["slot"], event["round"]
        start, version = since[slot]
        segment(lanes, colour(slot, version), (start, number), (lane[slot],) * 2)
        since[slot] = (number, event["version"])
        for k, (parent, parent_version) in enumerate(event["parents"]):
            if parent in lane and parent != slot:
                ink = colour(parent, parent_version) if k == 0 else "var(--mark)"
                segment(links, ink, (number - slant, number), (lane[parent], lane[slot]))
    for name, (start, version) in since.items():
        segment(lanes, colour(name, version), (start, seen[name][1]), (lane[name],) * 2)
    for ink, (xs, ys) in links.items():
        figure.add_scatter(
            x=xs, y=ys, mode="lines", line={"color": ink, "width": 1.2}, hoverinfo="skip", showlegend=False
        )
    for ink, (xs, ys) in lanes.items():
        figure.add_scatter(
            x=xs, y=ys, mode="lines", line={"color": ink, "width": 4}, hoverinfo="skip", showlegend=False
        )
    _marks(figure, events, lane, colour)
    figure.update_yaxes(
        tickvals=list(range(len(slots))),
        ticktext=[f"{name}@{latest[name]}" for name in slots],
        range=[len(slots) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
        fixedrange=True,
    )
    figure.update_xaxes(range=[0, end * 1.01], zeroline=False)
    return Plot(
        f"lineage-{role}",
        figure,
        f"Replacements of {role}s",
        "Each lane is a slot (the place of a member), and time runs to the right. The colour is the founder (first "
        "ancestor, by first parents). A line leads to a child from its first parent, and a grey line from the "
        "second. A lane that begins late is of a member that joined at a resume, and one that ends early of a member "
        "that a resume has left behind. Few colours at the right end mean few founders with descendants: "
        f"{len(living)} of {len(slots) - joined}.",
        height=max(240, min(120 + 26 * len(slots), 760)),
        wide=True,
    )


def _marks(figure: go.Figure, events: Sequence[Mapping[str, Any]], lane: Mapping[str, int], colour: Any) -> None:
    """A mark for every birth, with the shape of its operator and the key of its card."""
    operators = list(dict.fromkeys(event["operator"] for event in events))
    for k, operator in enumerate(operators):
        own = [event for event in events if event["operator"] == operator]
        parents = [", ".join(_key(*parent) for parent in event["parents"]) for event in own]
        figure.add_scatter(
            x=[event["round"] for event in own],
            y=[lane[event["slot"]] for event in own],
            mode="markers",
            name=operator,
            customdata=[_key(event["slot"], event["version"]) for event in own],
            text=[f"{operator}({told})" for told in parents],
            hovertemplate="%{customdata}<br>%{text}<br>round %{x}<extra></extra>",
            marker={
                "symbol": SYMBOLS[k % len(SYMBOLS)],
                "size": 11,
                "color": [colour(event["slot"], event["version"]) for event in own],
                "line": {"width": 1.5, "color": "var(--card)"},
            },
        )


def _table(run: PlayedRun, keys: Sequence[str]) -> Table:
    rows = []
    for event, key in zip(run.replacements, keys):
        before, after = (event.get(name) or (None, None) for name in ("rating_before", "rating_after"))
        parents = ", ".join(_key(*parent) for parent in event["parents"])
        rows.append([key, event["round"], event["operator"], parents, before[0], after[0], event.get("step")])
    return Table(
        "replacements",
        [
            Column("child"),
            Column("round", "count", "Round after which it was born"),
            Column("operator"),
            Column("parents"),
            Column("rating before", "number", "Of the replaced member", rating_digits(run)),
            Column("rating at birth", "number", "That the child starts with", rating_digits(run)),
            Column("step", "count"),
        ],
        rows,
        title=f"All {len(rows)} replacements" if len(rows) != 1 else "The only replacement",
        how="Click a row for its parents' fitness and the operator's parameters.",
        keys=keys,
    )


def _card(event: Mapping[str, Any], digits: int) -> dict[str, Any]:
    fitness = event.get("fitness") or {}
    parents = {name for name, _ in event["parents"]}
    marks = {event["slot"]: "replaced", **dict.fromkeys(parents, "parent")}
    if event["slot"] in parents:
        marks[event["slot"]] = "parent, replaced"
    ranked = sorted(fitness.items(), key=lambda one: (one[1] is None, -(one[1] or 0)))
    parameters = {name: written(value) for name, value in (event.get("parameters") or {}).items()}
    facts = [
        ["round", written(event["round"])],
        ["step", written(event.get("step"))],
        ["operator", event["operator"]],
        ["parents", ", ".join(_key(*parent) for parent in event["parents"])],
        ["rating before", _rating(event.get("rating_before"), digits)],
        ["rating at birth", _rating(event.get("rating_after"), digits)],
        ["learning rate", written(event.get("learning_rate"))],
        ["temperature", written(event.get("temperature"))],
        ["kind", event.get("kind", "replacement")],
        *[[name, value] for name, value in parameters.items()],
    ]
    return {
        "title": f"{_key(event['slot'], event['version'])} in place of {_key(event['slot'], event['version'] - 1)}",
        "facts": [[name, value] for name, value in facts if value != "–"],
        "tables": [
            {
                "title": "Fitness of the role at its birth",
                "columns": ["member", "fitness", ""],
                "rows": [[name, written(value, "number"), marks.get(name, "")] for name, value in ranked],
            }
        ]
        if fitness
        else [],
    }


def _rating(rating: Sequence[float | None] | None, digits: int) -> str:
    return f"{rating[0]:.{digits}f} ± {rating[1]:.{digits}f}" if rating and None not in rating else "–"
