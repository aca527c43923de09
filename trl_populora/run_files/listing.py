"""`find_runs`: the runs in a folder and their states, from their files only."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..settings import holds
from .checkpoint import whole_checkpoints
from .files import files_below, read_lines
from .layout import (
    CHECKPOINT_PREFIX,
    HISTORY_FILE,
    POPULATION_FILE,
    PROBES_FILE,
    RUN_FILE,
    checkpoint_step,
)
from .process import has_ended
from .run import read_record, read_table


QUIET = 600.0  # seconds without a finished round, and
QUIET_ROUNDS = 5  # as many times the last round's, after which a run counts as stopped
RUNNING, FINISHED, STOPPED, DAMAGED = "running", "finished", "stopped", "damaged"


@dataclass(frozen=True)
class RunState:
    """What the files of a run say of it.

    Attributes:
        folder (`str`): Folder of the run. base (`str`): Base model. members (`str`): Number of members of each role.
        state (`str`): `"running"`, `"finished"`, `"stopped"`, or `"damaged"` if a file cannot be read. A run of
            another machine or container counts as running for some minutes after its last round, and one with very
            long rounds may look stopped.
        rounds (`int`), of (`int` or `None`): Finished rounds, with those of a run that it continues; planned rounds.
        resume (`int` or `None`): Step of the newest complete checkpoint.
        solve_rate (`float` or `None`): Matched solve rate of all members, as of the newest round
            (`RoundSummary.solve_rate`).
        probe (`tuple` or `None`): Exam, mean share of right answers over members, and step of the best probe.
        size (`int`): Bytes on disk. time (`float`): Last change of the history, or before the first round of another
            file, in seconds since 1970. problem (`str` or `None`): What is damaged; nothing else is known then.
    """

    folder: str
    base: str
    members: str
    state: str
    rounds: int
    of: int | None
    resume: int | None
    solve_rate: float | None
    probe: tuple[str, float, int] | None
    size: int
    time: float
    problem: str | None = None


def find_runs(folder: str) -> list[RunState]:
    """The runs in a folder and below it, by path.

    Raises:
        ValueError: If there is no such folder.
    """
    if not os.path.isdir(folder):
        raise ValueError(f"{folder!r} is not a folder: name a folder with runs in it.")
    return [_state_or_damage(path) for path in sorted(_run_folders(folder))]


def _state_or_damage(folder: str) -> RunState:
    try:
        return read_state(folder)
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        expected = isinstance(error, OSError | ValueError)
        told = str(error) if expected else f"a file holds what no run writes ({error!r})"
        size, changed = sum(map(_size, files_below(folder))), time.time()
        with suppress(OSError):
            changed = os.path.getmtime(folder)
        return RunState(folder, "", "", DAMAGED, 0, None, None, None, None, size, changed, problem=told)


def read_state(folder: str) -> RunState:
    """What the files of a run say of it.

    Raises:
        ValueError: If its history, its probes, its record or its table of members is damaged.
    """
    paths = {name: os.path.join(folder, name) for name in (HISTORY_FILE, PROBES_FILE, POPULATION_FILE, RUN_FILE)}
    there = {name: path for name, path in paths.items() if os.path.isfile(path)}
    if not there:
        raise ValueError("its files cannot be read: they are links to nothing, or no regular files")
    lines = read_lines(there[HISTORY_FILE], lambda one: (one["round"], one)) if HISTORY_FILE in there else ()
    rounds = dict(lines)
    last = rounds[max(rounds)] if rounds else {}
    if not holds(last.get("solve_rate"), float | None):
        raise ValueError(f"{there[HISTORY_FILE]} is damaged (solve_rate is {last['solve_rate']!r}). Restore the file.")
    record = read_record(folder)
    settings = record.get("settings", {})
    changed = os.path.getmtime(next(iter(there.values())))
    limit = max(QUIET, QUIET_ROUNDS * sum(last.get("seconds", {}).values()))
    stopped = has_ended(record.get("process", {})) or time.time() - changed >= limit
    if POPULATION_FILE in there:
        read_table(folder)
    state = FINISHED if POPULATION_FILE in there else STOPPED if stopped else RUNNING
    steps, each = settings.get("max_steps", -1), settings.get("num_iterations") or 1
    whole = whole_checkpoints(folder)
    return RunState(
        folder=folder,
        base=str(record.get("model", "")),
        members=_members(last, settings),
        state=state,
        rounds=max(rounds) + 1 if rounds else 0,
        of=steps // each if steps > 0 else None,
        resume=checkpoint_step(whole[-1]) if whole else None,
        solve_rate=last.get("solve_rate"),
        probe=_best_probe(there.get(PROBES_FILE)),
        size=sum(map(_size, files_below(folder))),
        time=changed,
    )


def _run_folders(folder: str) -> Iterator[str]:
    for place, names, files in os.walk(folder):
        if HISTORY_FILE in files or (RUN_FILE in files and not os.path.basename(place).startswith(CHECKPOINT_PREFIX)):
            names.clear()  # what lies in a run is its own
            yield place
        names[:] = [name for name in names if not name.startswith(".")]


def _members(last: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    counts = Counter(one["role"] for one in last.get("members", ()))
    if not counts:
        counts = {role: settings.get(f"num_{role}s", 0) for role in ("teacher", "student")}
    named = {"shared": "shared member"}
    return ", ".join(
        f"{count} {named.get(role, role)}{'s' * (count > 1)}" for role, count in counts.items() if count > 0
    )


def _best_probe(path: str | None) -> tuple[str, float, int] | None:
    """The best probe by the first exam of the newest one: a resumed run may have had other exams before."""
    records = read_lines(path, lambda record: (record["step"], record["exams"])) if path else []
    name = next(iter(records[-1][1]), "") if records else ""
    means = ((name, exams[name].get("mean"), step) for step, exams in records if name in exams)
    return max((one for one in means if one[1] is not None), key=lambda one: one[1], default=None)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:  # gone since it was listed: a run that goes on
        return 0
