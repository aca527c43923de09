"""Reads `history.jsonl` of a run folder, with one `RoundSummary` per line."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..diagnostics import RoundSummary
from ..run_files.files import read_lines
from ..run_files.layout import HISTORY_FILE
from .tables import counted, in_last_rounds


def read_history(folder: str | os.PathLike) -> list[RoundSummary]:
    """Rounds of a run, in order.

    A run that was killed and resumed plays some rounds twice. Then the later line counts. An incomplete last line is
    ignored.

    Raises:
        ValueError: If the folder has no history, or a line other than the last is damaged.
    """
    path = os.path.join(folder, HISTORY_FILE)
    if not os.path.isfile(path):
        raise ValueError(f"{folder} has no {HISTORY_FILE}: give the output_dir of a run whose first round has ended")
    rounds = {summary.round: summary for summary in read_lines(path, RoundSummary.from_json)}
    return [rounds[number] for number in sorted(rounds)]


def lives(history: Sequence[RoundSummary]) -> dict[str, tuple[int, int]]:
    """Member -> rounds played before its first round, and its last round, counted from 1. A resumed run with another
    number of members may have left it behind."""
    found: dict[str, tuple[int, int]] = {}
    for summary in history:
        for member in summary.members:
            first, _ = found.get(member.name, (summary.round, 0))
            found[member.name] = first, summary.round + 1
    return found


def first_versions(history: Sequence[RoundSummary]) -> dict[str, int]:
    """Member -> its version in its first round here: not 0 if the run continues another one in its own folder, or if
    the member joined at a resume."""
    return {member.name: member.version for summary in reversed(history) for member in summary.members}


def founders(
    first: Mapping[str, int], events: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, int], dict[tuple[str, int], str]]:
    """The newest version in each slot, and the founder of every individual in the line of first parents.

    `first` has the first version in each slot ([`first_versions`]). An individual whose birth is not among `events`
    counts as a founder.
    """
    latest = dict(first)
    founder = {(name, version): name for name, version in first.items()}
    for event in events:
        parent = tuple(event["parents"][0]) if event["parents"] else (event["slot"], 0)
        founder[event["slot"], event["version"]] = founder.get(parent) or parent[0]
        latest[event["slot"]] = event["version"]
    return latest, founder


def changes(history: Sequence[RoundSummary]) -> str:
    """How often members of a run were replaced, and moved to the mean of their role, in words."""
    replaced = sum(len(summary.events) for summary in history)
    recombined = sum(bool(summary.recombined) for summary in history)
    told = counted(replaced, "replacement") + (f" and {counted(recombined, 'recombination')}" if recombined else "")
    part = in_last_rounds(history)
    return told + (f"{part}; others are not recorded here" if part else "")
