"""An evaluation on the terminal: progress while members answer, and the table of scores."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from .live import PLAIN_WIDTH
from .tables import new_table


class EvaluationView:
    """Shows how far an evaluation is: a bar with the time left; off a terminal, a line every so often.

    Args:
        file (`TextIO`, *optional*): Where to write; standard output if unset.
        every (`float`, *optional*, defaults to `30.0`): Seconds between lines off a terminal.
    """

    def __init__(self, *, file: TextIO | None = None, every: float = 30.0) -> None:
        file = sys.stdout if file is None else file
        terminal = file.isatty()
        self.console = Console(file=file) if terminal else Console(file=file, width=PLAIN_WIDTH, color_system=None)
        self.every = every
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=self.console) if terminal else None
        self._task: TaskID | None = None
        self._name, self._started, self._spoken, self._before = "", 0.0, 0.0, 0

    def __enter__(self) -> EvaluationView:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def note(self, text: str) -> None:
        """Say something that stays on the screen."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
        self.console.file.flush()

    def begin(self, name: str) -> None:
        """From now on, progress is of this exam."""
        self._name, self._started, self._spoken, self._before = name, time.monotonic(), time.monotonic(), -1
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(name, total=None)

    def progress(self, done: int, total: int) -> None:
        """There are so many answers of all."""
        now = time.monotonic()
        if self._before < 0:
            self._before = done
            if done:
                self.note(f"{self._name}: {done:,} of {total:,} answers are there already; going on")
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
        elif now - self._spoken >= self.every and done > self._before:
            left = (now - self._started) / (done - self._before) * (total - done)
            self.note(f"{self._name}: {done:,} of {total:,} answers, {_duration(left)} left")
            self._spoken = now

    def table(self, record: Mapping[str, Any]) -> None:
        """The scores of one exam, an entry of `exams` in `evaluation.json`."""
        limit = record["decoding"]["max_completion_length"]
        kinds = record["groups"] if 1 < len(record["groups"]) <= 6 else []
        headings = ("accuracy", "95% interval", "read", "tokens", *kinds)
        table = new_table(record["exam"], *headings, plain=self._bar is None)
        for player, score in record["scores"].items():
            interval = f"{100 * score['low']:.1f} - {100 * score['high']:.1f}"
            cells = [_percent(score["accuracy"]), interval, _percent(score["well_formed"]), f"{score['tokens']:.0f}"]
            table.add_row(player, *cells, *(_percent(score["groups"][kind]) for kind in kinds))
        self.console.print(table)
        generation, grading = (_duration(record["seconds"][part]) for part in ("generation", "grading"))
        self.note(
            f"{record['questions']} questions, at most {limit} tokens each; generation {generation}, grading {grading}"
        )
        for player, score in record["scores"].items():
            if score["spared"]:
                self.note(
                    f"{player}: {score['spared']} answers are in no share: the executor failed on them, twice. See "
                    "`populora doctor`."
                )


def _percent(value: float) -> str:
    return "-" if value is None or value != value else f"{100 * value:.1f}%"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
