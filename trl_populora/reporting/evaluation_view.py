"""An evaluation on the terminal: progress while members answer, and the table of scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

from rich.live import Live
from rich.table import Table

from ..progress import Progress
from ..run_files.run import BASE
from .console import PLAIN_WIDTH, new_console, redraws
from .progress_line import ProgressLine, duration
from .tables import NOTHING, counted, drawn_by, new_table


class EvaluationView:
    """Shows the progress of an evaluation: the line of [`ProgressLine`] on a terminal, otherwise a line every `every`
    seconds.

    Args:
        file (`TextIO`, *optional*): Where to write; standard output if unset.
        every (`float`, *optional*, defaults to `30.0`): Seconds between lines if the output is not a terminal.
    """

    def __init__(self, *, file: TextIO | None = None, every: float = 30.0) -> None:
        self.console = new_console(file)
        self.every = every
        self._line = ProgressLine()
        self._live = None
        if redraws(self.console):
            self._live = Live(console=self.console, get_renderable=self._screen, refresh_per_second=2, transient=True)
        self._clock = time.monotonic()
        self._name, self._started, self._spoken, self._before = "", 0.0, 0.0, 0

    def __enter__(self) -> EvaluationView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._line.progress.end()
            self._live.stop()

    def watch(self, progress: Progress) -> None:
        """Shows this progress on a terminal. It includes answers that are partly written."""
        if self._live is not None:
            self._line.watch(progress)

    def note(self, text: str) -> None:
        """Say something that stays on the screen."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begin(self, name: str) -> None:
        """From now on, progress is of this exam."""
        self._name, self._started, self._spoken, self._before = name, time.monotonic(), time.monotonic(), -1

    def progress(self, done: int, total: int) -> None:
        """There are so many answers of all."""
        now = time.monotonic()
        if self._before < 0:
            self._before = done
            if done:
                self.note(f"{self._name}: {done:,} of {total:,} answers exist already; continuing")
        if self._live is None and now - self._spoken >= self.every and done > self._before:
            left = (now - self._started) / (done - self._before) * (total - done)
            self.note(f"{self._name}: {done:,} of {total:,} answers, {duration(left)} left")
            self._spoken = now

    def tables(self, record: Mapping[str, Any]) -> None:
        """The tables of `evaluation.json`."""
        for exam in record["exams"]:
            self.console.print()
            self.console.print(scores_table(exam, width=self.console.width, plain=self._live is None))
            for line in remarks(exam):
                self.note(line)
        if record["comparisons"]:
            self.note(f"\n{stars(record)}")

    def _screen(self) -> Table | str:
        line = self._line
        return line.draw(after=duration(time.monotonic() - self._clock)) if line.progress.name else ""


def scores_table(exam: Mapping[str, Any], *, width: int = PLAIN_WIDTH, plain: bool = False) -> Table:
    """The scores of one exam: players, then the values over all members, then the base.

    On a narrow terminal, some columns are left out. `evaluation.json` has all of them.
    """
    rows = score_rows(exam)
    members = [name for name in rows if name in exam["scores"] and name != BASE]
    names = {name: row_title(name, exam) for name in rows}
    cells = {heading: [cell(name, one) for name, one in rows.items()] for heading, cell in _columns(exam).items()}
    left = width - max(map(len, [exam["exam"], *names.values()]))
    shown = []
    for heading, column in cells.items():
        left -= 2 + max(map(len, [heading, *column]))
        if left >= 0 or not shown:
            shown.append(heading)
    table = new_table(exam["exam"], *shown, plain=plain)
    for i, name in enumerate(rows):
        if name not in members and (i == len(members) or name == BASE):
            table.add_section()
        table.add_row(names[name], *(cells[heading][i] for heading in shown))
    return table


def score_rows(exam: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Name -> score: players, then the values over all members, then the base."""
    scores = dict(exam.get("scores", {}))
    base = {name: scores.pop(name) for name in (BASE,) if name in scores}
    return scores | exam.get("summaries", {}) | base


def row_title(name: str, exam: Mapping[str, Any]) -> str:
    """The name of a row as it is shown."""
    chosen = name in exam.get("summaries", {}) and name.endswith(("best", "weakest"))
    return f"{name} elsewhere" if chosen else name


def against_base(exam: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Name -> difference to the base."""
    return {one["of"]: one for one in exam.get("differences", ()) if one["to"] == BASE}


def _columns(exam: Mapping[str, Any]) -> dict[str, Callable[[str, Mapping[str, Any]], str]]:
    """Heading -> cell of a row, by its name and its part of the record; the most important first."""
    against = against_base(exam)
    several = str(exam["decoding"]["samples"])
    columns: dict[str, Callable[[str, Mapping[str, Any]], str]] = {
        "accuracy": lambda name, one: _percent(one["accuracy"]),
        "95% interval": lambda name, one: _range(one["low"], one["high"]),
        "minus base": lambda name, one: _difference(against.get(name)),
        f"pass@{several}": lambda name, one: _percent(one.get("pass_at_k", {}).get(several, {}).get("accuracy")),
        "read": lambda name, one: _percent(one.get("well_formed")),
        "tokens": lambda name, one: f"{one['tokens']:.0f}" if "tokens" in one else NOTHING,
        "cut": lambda name, one: _percent(one.get("cut")),
    }
    if not against:
        del columns["minus base"]
    if several == "1":
        del columns["pass@1"]
    kinds = exam["groups"] if len(exam["groups"]) > 1 else []
    for kind in kinds:
        heading = f"group {kind}" if kind in columns else kind
        columns[heading] = lambda name, one, kind=kind: _percent(one.get("groups", {}).get(kind))
    return columns


def remarks(exam: Mapping[str, Any]) -> Iterator[str]:
    """Remarks about an exam: its limits, its time, other comparisons, answers without a grade."""
    decoding, seconds = exam["decoding"], exam["seconds"]
    answers = sum(sum(one["verdicts"].values()) for one in exam["scores"].values())
    each, longer = 1000 * sum(seconds.values()) / max(answers, 1), max(seconds, key=seconds.get)
    yield (
        f"{exam['questions']} questions (version {exam['version']}), {drawn_by(decoding)}, at most "
        f"{decoding['max_completion_length']} tokens an answer."
    )
    yield (
        f"{answers:,} answers, {exam['tokens']:,} tokens: generation {duration(seconds['generation'])}, grading "
        f"{duration(seconds['grading'])}; {each:.0f} ms an answer, most of it {longer}."
    )
    for one in exam["differences"]:
        if one["to"] != BASE:
            yield f"{one['of']} minus {one['to']}: {_difference(one)}"
    for name, score in exam["scores"].items():
        if spared := score["verdicts"].get("spared"):
            yield (
                f"{name}: {counted(spared, 'answer')} not counted: the executor failed, twice. See `populora doctor`."
            )
        if failed := score["verdicts"].get("failed"):
            yield f"{name}: {counted(failed, 'answer')} wrong because judging failed; see the column `detail`."


def stars(record: Mapping[str, Any]) -> str:
    """What a star means, with the number of comparisons."""
    count = record["comparisons"]
    strict = 100 - (100 - 100 * record["level"]) / count
    return (
        f"Differences are paired by question, with 95% intervals. {counted(count, 'comparison')} in all; a star: "
        f"the {strict:.4g}% interval excludes 0, and a sign-flip test agrees. Where few questions differ, the 95% "
        "interval is too narrow, so a difference without a star may be chance."
    )


def _range(low: float | None, high: float | None) -> str:
    return NOTHING if low is None or high is None else f"{100 * low:.1f} - {100 * high:.1f}"


def _difference(one: Mapping[str, Any] | None) -> str:
    if one is None or one["difference"] is None:
        return NOTHING
    return in_points(one) + ("*" if one["significant"] else " ")


def in_points(one: Mapping[str, Any]) -> str:
    """A known difference of shares in points, with its interval if it has one."""
    low, high = one.get("low"), one.get("high")
    ends = "" if low is None or high is None else f" ({100 * low:+.1f}, {100 * high:+.1f})"
    return f"{100 * one['difference']:+.1f}{ends}"


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}%"
