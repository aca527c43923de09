"""`populora runs`: lists the runs below a folder: state, rounds, members, base, solve rate, probe, size.

Reads their files alone; a run without a finished round for long counts as stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from ..run_files.listing import RunState


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default="runs", help="folder with runs in it (default: runs)")
    parser.add_argument("--json", action="store_true", help="one JSON list instead of a table")


def run(options: argparse.Namespace) -> int:
    from ..run_files.listing import find_runs

    found = find_runs(options.folder)
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return 0
    if not found:
        print(f"No runs in {options.folder}.")
        return 0
    from ..reporting.tables import NOTHING, new_table, percent, print_table

    headings = ("state", "rounds", "members", "base", "solved", "best probe", "size", "when")
    table = new_table("run", *headings, plain=True)
    for one in found:
        exam = f"{one.probe[0]} {percent(one.probe[1])} (step {one.probe[2]})" if one.probe else NOTHING
        table.add_row(
            one.folder,
            state(one),
            f"{one.rounds}/{one.of}" if one.of else str(one.rounds),
            one.members or NOTHING,
            one.base or NOTHING,
            percent(one.solve_rate),
            exam,
            size(one.size),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(one.time)),
        )
    print_table(table, width=1000)  # a line for each, however long
    for one in found:
        if one.problem:
            print(f"{one.folder} is damaged: {one.problem}")
    return 0


def state(one: RunState) -> str:
    """The state in words: the minutes since the last round of a running run, or the checkpoint of a
    stopped run."""
    from ..run_files.listing import RUNNING, STOPPED

    if one.state == RUNNING:
        return f"running, {max(time.time() - one.time, 0) / 60:.0f} min ago"
    if one.state == STOPPED:
        ended = "finished, not saved" if one.rounds == one.of else "stopped"
        return f"{ended}, no checkpoint" if one.resume is None else f"{ended}, resumable from step {one.resume}"
    return one.state


def size(count: int) -> str:
    """Bytes in the unit that fits."""
    for unit, power in (("GB", 1e9), ("MB", 1e6)):
        if count >= power:
            return f"{count / power:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"
