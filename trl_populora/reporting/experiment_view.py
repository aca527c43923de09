"""An experiment on the terminal: progress and time left while runs run, and the tables of `results.json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from .console import new_console, redraws
from .progress_line import duration
from .tables import NOTHING, new_table


class ExperimentView:
    """Shows the progress of the runs of an experiment: a bar on a terminal, otherwise a line a minute.

    Args:
        rounds (`Mapping[str, int | None]`): Job -> rounds that its run will have; `None` where its data decide.
        file (`TextIO`, *optional*): Where to write; standard output if unset.
        clock (`Callable`, *optional*): Seconds since some time.
    """

    def __init__(
        self,
        rounds: Mapping[str, int | None],
        *,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = new_console(file)
        self.rounds, self.clock = dict(rounds), clock
        self._bar = None
        if redraws(self.console):
            self._bar = Progress(TextColumn("{task.description}"), BarColumn(), console=self.console)
        self._task = self._bar.add_task("", total=None) if self._bar is not None else None
        self._started = self._spoken = clock()
        self._before: int | None = None

    def __enter__(self) -> ExperimentView:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def note(self, text: str) -> None:
        """Say something that stays on the screen."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def progress(self, done: Mapping[str, int], running: Sequence[str]) -> None:
        """Every job has so many rounds, and these run."""
        now, total = self.clock(), sum(filter(None, self.rounds.values()))
        count = sum(min(n, self.rounds.get(job) or 0) for job, n in done.items())
        if self._before is None:
            self._before = count
        line = f"{count} of {total} rounds"
        if running:
            line += f"; running {', '.join(f'{job} ({self._part(job, done)})' for job in running)}"
        if running and count > self._before:
            left = (now - self._started) / (count - self._before) * (total - count)
            line += f"; about {duration(left)} left, without exams"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=line, completed=count, total=total or None)
        elif now - self._spoken >= 60.0 and running:
            self._spoken = now
            self.note(line)

    def tables(self, record: Mapping[str, Any]) -> None:
        """Jobs that are not done, the measures, and what was compared."""
        for job in record["jobs"]:
            if job["state"] != "done":
                self.note(f"{job['job']}: {job['state']}: {job['why']}")
        self.console.print()
        self.console.print(results_table(record, plain=self._bar is None))
        for line in results_remarks(record):
            self.note(line)

    def _part(self, job: str, done: Mapping[str, int]) -> str:
        return f"{done.get(job, 0)}/{self.rounds.get(job) or '?'}"


def results_table(record: Mapping[str, Any], *, plain: bool = False) -> Table:
    """Every measure of every arm: mean over seeds, difference to the control with its interval, effect size."""
    headings = ("measure", "arm", "seeds", "mean", "minus control (95% interval)", "other questions", "g", "clear")
    table = new_table(*headings, plain=plain)
    table.columns[1].justify = "left"
    for column in table.columns:
        column.overflow = "fold"  # names and numbers are not cut
    found = {(one["measure"], one["arm"]): one for one in record["differences"]}
    for measure, values in record["values"].items():
        for arm, own in values.items():
            known = [value for value in own.values() if value is not None]
            one = found.get((measure, arm))
            table.add_row(
                measure,
                arm,
                f"{len(known)} of {len(record['seeds'])}",
                f"{sum(known) / len(known):.4g}" if known else NOTHING,
                "control" if arm == record["control"] else with_interval(one),
                NOTHING if one is None else ends(one["with_questions"]),
                NOTHING if one is None or one["effect"] is None else f"{one['effect']:+.2f}",
                NOTHING if judged(one) is None else "yes" if one and one["clear"] else "no",
            )
        table.add_section()
    return table


def results_remarks(record: Mapping[str, Any]) -> list[str]:
    """What has to be read with the table."""
    lines = []
    if record["comparisons"]:
        lines.append(
            f"{record['comparisons']} comparisons have an interval. Clear: it excludes 0 after correction for the "
            f"number of comparisons (Bonferroni)."
        )
    if any(one["with_questions"] for one in record["differences"]):
        lines.append(
            "All runs answer the same questions. The first interval is for other seeds, the second for other seeds "
            "and other questions; clear goes by the second."
        )
    whys = {}
    for one in record["differences"]:
        if one["why"]:
            whys.setdefault(one["why"], []).append(f"{one['measure']} of {one['arm']}")
    lines += [f"{why} ({', '.join(where)})." for why, where in whys.items()]
    lines += record["equal_runs"]
    if record["circumstances"]:
        lines.append("runs differ in more than their settings:")
    return [f"{line[:1].upper()}{line[1:]}" for line in (*lines, *record["circumstances"])]


def judged(one: Mapping[str, Any] | None) -> float | None:
    """The p by which a difference is clear or not: over seeds and questions where both vary, otherwise over seeds."""
    return None if one is None else (one["with_questions"] or one)["p"]


def with_interval(one: Mapping[str, Any] | None) -> str:
    """A difference of `results.json`, with its interval if it has one."""
    if one is None:
        return NOTHING
    return f"{round(one['difference'], 12) + 0.0:+.3g}" + ("" if one["low"] is None else f" {ends(one)}")


def ends(one: Mapping[str, Any] | None) -> str:
    """The ends of an interval, if there is one."""
    return NOTHING if one is None else f"[{one['low']:+.3g}, {one['high']:+.3g}]"
