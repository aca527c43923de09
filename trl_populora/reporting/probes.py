"""Probes of a run as text and plots: one line each, the total, and curves of accuracy by step."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..diagnostics.dynamics import mean
from ..run_files.files import read_lines
from ..run_files.layout import PROBES_FILE
from ..run_files.run import BASE
from .drawing import MOST_LINES, looks, mean_points, new_figure
from .tables import percent


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = Mapping[str, Any]
GAMES = {
    ("students", "solved"): "Founders' tasks that current students solve",
    ("teachers", "unsolved"): "Teachers' tasks that founders do not solve",
    ("teachers", "unsolved_now"): "Teachers' tasks that current students do not solve",
    ("teachers", "valid"): "Valid proposals to the founders' prompts",
}


def read_probes(folder: str | os.PathLike) -> list[dict[str, Any]]:
    """Records of a run's probes, in order; empty if it has none.

    Raises:
        ValueError: If a line other than the last is damaged.
    """
    path = os.path.join(folder, PROBES_FILE)
    return read_lines(path, _whole) if os.path.isfile(path) else []


def _whole(record: dict[str, Any]) -> dict[str, Any]:
    """The record, if it has what is read from all of them; else a `KeyError`."""
    return record | {name: record[name] for name in ("step", "round", "exams", "founders", "seconds")}


def probe_line(record: Record) -> str:
    """A probe in one line: means, the best member, the base, and the cost so far."""
    parts = [f"step {record['step']}"]
    for name, exam in record["exams"].items():
        own = {player: one["accuracy"] for player, one in exam["players"].items() if one["accuracy"] is not None}
        base = own.pop(BASE, None)
        best = max(own, key=own.__getitem__, default=None)
        told = [] if base is None else [f"base {percent(base)}"]
        told += [] if best is None or len(own) < 2 else [f"highest {percent(own[best])} {best}"]
        parts.append(f"{name} {percent(exam['mean'])}" + (f" ({', '.join(told)})" if told else ""))
    if record["founders"] is not None:
        kinds = {"solved": "students", "unsolved": "teachers", "valid": "teachers"}
        means = {kind: mean(one[kind] for one in record["founders"][role].values()) for kind, role in kinds.items()}
        parts.append("against founders " + ", ".join(f"{kind} {percent(means[kind])}" for kind in kinds))
    cost = f", probes {_cost(record)} of the run" if record["step"] else ""  # at the start there is no run yet
    parts.append(f"{record['seconds']:.1f} s{cost}")
    return "  ".join(parts)


def probes_summary(records: Sequence[Record]) -> list[str]:
    """Lines for the end of a run: every exam at the start and at the end, and what the evaluations cost."""
    if not records:
        return []
    last = records[-1]
    lines = ["Probes during the run (mean over members that solve tasks):"]
    for name, exam in last["exams"].items():
        first, base = first_with(records, name), exam["players"][BASE]["accuracy"]
        began, steps = first["exams"][name]["mean"], f"step {first['step']} to {last['step']}"
        lines.append(f"  {name}: {percent(began)} to {percent(exam['mean'])}, {steps}; base {percent(base)}")
    lines.append(f"  {last['probing']:.0f} s in {len(records)} probes, {_cost(last)} of the run")
    return lines


def first_with(records: Sequence[Record], exam: str) -> Record:
    """The first of the records with this exam: a resumed run may have other exams than before."""
    return next(record for record in records if exam in record["exams"])


def plot_probes(records: Sequence[Record]) -> Figure | None:
    """Accuracy by step, per exam, of every member with the base as a line; and the games against founders."""
    if not records:
        return None
    names = list(dict.fromkeys(name for record in records for name in record["exams"]))
    games = [key for key in GAMES if any(_against_founders(records, *key).values())]
    panels = len(names) + len(games)
    if not panels:
        return None
    columns = min(panels, 3)
    figure, axes = new_figure(-(-panels // columns), columns)
    for axis, name in zip(axes, names):
        curves = _curves(records, lambda record, name=name: _accuracies(record, name))
        base = curves.pop(BASE, None)
        _draw(axis, curves, title=f"{name}: accuracy")
        if base:
            axis.axhline(base[-1][1], color="#555555", linestyle=":", linewidth=1.4, label=BASE)
        axis.legend(fontsize=7, ncols=2, framealpha=0.7)
    for axis, key in zip(axes[len(names) :], games):
        _draw(axis, _against_founders(records, *key), title=GAMES[key])
        axis.legend(fontsize=7, ncols=2, framealpha=0.7)
    for axis in axes[panels:]:
        axis.set_visible(False)
    return figure


def _accuracies(record: Record, name: str) -> dict[str, float | None]:
    exam = record["exams"].get(name)
    return {} if exam is None else {player: one["accuracy"] for player, one in exam["players"].items()}


def _against_founders(records: Sequence[Record], role: str, kind: str) -> dict[str, list[tuple[int, float]]]:
    return _curves(
        records, lambda record: {name: one[kind] for name, one in (record["founders"] or {}).get(role, {}).items()}
    )


def _curves(records: Sequence[Record], pick: Any) -> dict[str, list[tuple[int, float]]]:
    """Player -> points (step, share), without those that are not known."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for record in records:
        for name, share in pick(record).items():
            if share is not None:
                curves.setdefault(name, []).append((record["step"], share))
    return curves


def _draw(axis: Axes, curves: Mapping[str, Sequence[tuple[int, float]]], *, title: str) -> None:
    for k, (points, look) in enumerate(zip(curves.values(), looks(curves))):
        if len(curves) <= MOST_LINES:
            look |= _beside_equal_ones(k, len(curves))
        axis.plot(*zip(*points), marker="o", **{"markersize": 3, "linewidth": 1.4} | look)
    if len(curves) > MOST_LINES:
        axis.plot(*zip(*mean_points(curves.values())), color="#000000", linewidth=2.2, label="mean")
    axis.set_ylim(-0.03, 1.03)
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("step", fontsize=9)
    axis.set_ylabel("share", fontsize=9)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def _beside_equal_ones(k: int, count: int) -> dict[str, Any]:
    """Style of the `k`-th of `count` lines, so that all are seen where they are equal. Of four lines, each has longer
    gaps than the one below it. The next four are narrower."""
    layer, part = divmod(k, 4)
    dashes = (0, (12 - 3 * part, 3 * part)) if part else "-"
    return {"linestyle": dashes, "linewidth": 1.4 * (-(-count // 4) - layer)}


def _cost(record: Record) -> str:
    """Share of the run's seconds so far that went into evaluations."""
    return f"{100 * record['probing'] / max(record['elapsed'], 1e-9):.1f}%"
