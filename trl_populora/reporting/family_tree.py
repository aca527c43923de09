"""The family tree of a run: as text (by `Lineage.family_tree`), and as a picture.

In the picture, every slot has a lane, and time runs to the right. The colour of a lane shows the founder of its
member, by first parents. It may change at a replacement, where lines from the parents end.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from ..diagnostics import RoundSummary
from ..run_files.layout import LINEAGE_FILE
from .drawing import COLOURS, new_figure
from .history import first_versions, founders, lives


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MARKERS = {
    "svd_structured": "o",
    "layer_gaussian": "v",
    "component_masking": "s",
    "gaussian": "^",
    "neftune": "p",
    "dare": "X",
    "layerwise": "D",
    "svd_subspace": "P",
    "extrapolative": ">",
    "average": "h",
    "clone": "<",
}
REST = "#BBBBBB"
OTHER_MARKERS = "*dH8"
"""For operators of the user's own, in the order of their names; more than four share them."""


def family_tree(folder: str | os.PathLike, history: Sequence[RoundSummary] = ()) -> str:
    """The family tree of the run in `folder`, as text.

    Args:
        folder (`str`): Folder with the lineage.
        history (`Sequence[RoundSummary]`, *optional*): Rounds of the run. Members of the last one are listed even if
            they have no event. If there is no lineage, the events are those of the rounds.

    Raises:
        ValueError: If the lineage file is damaged.
    """
    from ..run_files.lineage import EvolutionEvent, Lineage

    lineage = Lineage(os.path.join(folder, LINEAGE_FILE))
    if not lineage:
        lineage = Lineage()
        lineage.extend([EvolutionEvent.from_json(event) for summary in history for event in summary.events])
    return lineage.family_tree([member.name for summary in history[-1:] for member in summary.members])


def plot_family_tree(history: Sequence[RoundSummary]) -> Figure | None:
    """Lanes of all slots with every replacement, one panel per role; `None` where nobody was replaced.

    The marker at a birth shows the operator. A coloured line leads from the first parent, thin grey lines from the
    others. Founders with the most living descendants have colours, and all others are grey.
    """
    births = [(summary.round + 1, event) for summary in history for event in summary.events]
    if not births:
        return None
    numbers = sorted({number for number, _ in births})
    slant = 0.6 * min([after - before for before, after in zip(numbers, numbers[1:])], default=numbers[0])
    sides = [dict.fromkeys(name for s in history for name in getattr(s, role)) for role in ("teachers", "students")]
    sides = [list(side) for side in sides if side]  # also of members that a resumed run has left behind
    height = max(3.2, 0.26 * max(map(len, sides)) + 1.6)
    width = max(5.4, min(0.28 * len(numbers) + 3, 8.5))
    figure, axes = new_figure(1, len(sides), size=(width * len(sides), height))
    markers = operator_markers({event["operator"] for _, event in births})
    for axis, side in zip(axes, sides):
        own = [(number, event) for number, event in births if event["slot"] in side]
        versions = first_versions(history)
        first = {name: versions[name] for name in side}
        _draw_side(axis, first, own, markers, lives=lives(history), end=history[-1].round + 1, slant=slant)
    _legend(figure, markers)
    return figure


def operator_markers(names: set[str]) -> dict[str, str]:
    """Operator -> its marker, first those of the package."""
    own = zip(sorted(names - MARKERS.keys()), cycle(OTHER_MARKERS))
    return {name: marker for name, marker in MARKERS.items() if name in names} | dict(own)


def _draw_side(
    axis: Axes,
    first: Mapping[str, int],
    births: Sequence[tuple[int, Mapping]],
    markers: Mapping[str, str],
    *,
    lives: Mapping[str, tuple[int, int]],
    end: int,
    slant: float,
) -> None:
    from matplotlib.ticker import MaxNLocator

    lane = {name: k for k, name in enumerate(first)}
    latest, founder = founders(first, [event for _, event in births])
    living = Counter(founder[name, version] for name, version in latest.items() if lives[name][1] == end)
    palette = dict(zip([name for name, _ in living.most_common()], COLOURS))

    def colour(name: str, version: int) -> str:
        return palette.get(founder.get((name, version), name), REST)

    since = {name: (lives[name][0], first[name]) for name in first}  # round and version
    for number, event in births:
        slot, parents = event["slot"], [tuple(parent) for parent in event["parents"]]
        own = colour(*parents[0])
        start, version = since[slot]
        axis.hlines(lane[slot], start, number, color=colour(slot, version), linewidth=3)
        since[slot] = (number, event["version"])
        for k, (parent, _) in enumerate(parents):
            ink = {"color": "#999999", "linewidth": 0.6} if k else {"color": own, "linewidth": 1.2}
            axis.plot([number - slant, number], [lane[parent], lane[slot]], zorder=1, **ink)
        marker = {"marker": markers[event["operator"]], "markeredgecolor": "black", "markersize": 6}
        axis.plot([number], [lane[slot]], color=own, zorder=3, **marker)
    for name, (start, version) in since.items():
        axis.hlines(lane[name], start, lives[name][1], color=colour(name, version), linewidth=3)
    axis.set_yticks(range(len(first)), [f"{name}@{latest[name]}" for name in first], fontsize=7)
    axis.set_ylim(len(first) - 0.4, -0.6)  # the first slot on top
    axis.set_xlim(0, end * 1.02)
    axis.set_title(f"Replacements: {len(births)}. Founders with living descendants: {len(living)}", fontsize=10)
    axis.set_xlabel("round", fontsize=9)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, markers: Mapping[str, str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker=marker, color="white", markeredgecolor="black", label=name)
        for name, marker in markers.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 6), fontsize=7, frameon=False)
