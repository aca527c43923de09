"""The terminal view of a run: progress, and each round's members, games and replacements.

On a terminal, the tables of the latest round are updated in place, above a line with the progress of the phase and of
the run. If the output is not a terminal, plain lines are written without control codes. Only rank 0 writes. Numbers
come from `diagnostics`.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ..diagnostics import RoundSummary
from ..output import is_first_rank
from ..progress import Progress
from ..quiet import filter_messages
from .console import new_console, redraws
from .probes import probe_line
from .progress_line import ProgressLine, duration
from .tables import event_line, phases_line, round_line, round_tables


if TYPE_CHECKING:
    from ..training import PopulationSelfPlayTrainer


class LiveView:
    """Shows a run on the terminal. Use it as a context manager, and attach it to a trainer.

    Args:
        rounds (`int`, *optional*): Rounds of the whole run, for the progress line.
        file (`TextIO`, *optional*): Where to write; standard output if unset.
        table_every (`int`, *optional*, defaults to 1): If the output is not a terminal (a file or a pipe), write the
            tables every `table_every` rounds, and one line for other rounds.

    Example:
        ```python
        >>> with LiveView(rounds=150) as view:
        ...     trainer = PopulationSelfPlayTrainer(model, args=args)
        ...     view.attach(trainer)
        ...     trainer.train()
        ```
    """

    def __init__(self, *, rounds: int | None = None, file: TextIO | None = None, table_every: int = 1) -> None:
        if table_every < 1:
            raise ValueError(f"table_every={table_every} must be at least 1")
        self.rounds, self.table_every = rounds, table_every
        self.enabled = is_first_rank()
        self.console = new_console(file)
        self.redraws = redraws(self.console)
        self._live: Live | None = None
        self._line = ProgressLine()
        self._status = ""
        self._last: RoundSummary | None = None
        self._started = self._round_began = time.monotonic()
        self._seconds: list[float] = []  # of the rounds seen here

    def __enter__(self) -> "LiveView":
        self._begin_round()
        if self.enabled and self.redraws:
            self._live = Live(console=self.console, get_renderable=self._screen, refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._status = ""
            self._line.progress.end()
            self._live.stop()
            self._live = None

    def attach(self, trainer: "PopulationSelfPlayTrainer") -> None:
        """Shows the rounds, probes and progress of this trainer, in place of what transformers prints.

        The bar and the dictionaries of metrics are taken out, and so are messages that users cannot act on
        (`quiet.py`). A trainer's own `on_round` and `on_probe` are called after the view's.
        """
        from transformers import PrinterCallback, ProgressCallback, TrainerCallback

        view = self

        class Begin(TrainerCallback):
            """The first round begins after the trainer's own callback, which takes the first probe."""

            def on_train_begin(self, *_: Any, **__: Any) -> None:
                view._begin_round()

        filter_messages()
        trainer.on_round = _first(self.on_round, trainer.on_round)
        trainer.on_probe = _first(self.on_probe, trainer.on_probe)
        for callback in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(callback)
        trainer.add_callback(Begin())
        self.watch(trainer.progress)

    def watch(self, progress: Progress) -> None:
        """Shows this progress on a terminal. Does nothing if the output is not a terminal."""
        if self.enabled and self.redraws:
            self._line.watch(progress)

    def note(self, text: str) -> None:
        """Writes a line that stays on the screen."""
        if self.enabled:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def warm_start(self, step: int, total: int, losses: Mapping[str, float] | None = None) -> None:
        """Shows the progress of the supervised warm start, with the loss of each adapter: about ten lines if the
        output is not a terminal."""
        if not self.enabled:
            return
        values = ", ".join(f"{name} {loss:.3f}" for name, loss in (losses or {}).items())
        loss = values and f"  loss {values}"
        told = f"warm start {step}/{total}{loss}"
        if self._live is None:
            if step and (step in (1, total) or step % max(total // 10, 1) == 0):
                self.note(told)
            return
        progress = self._line.progress
        if not progress.name.startswith("warm start"):
            progress.begin("warm start", total, "steps")
        progress.name = f"warm start{loss}"
        progress.reach(step)
        if step == total:
            progress.end()
            self.note(f"{told}  done after {self._elapsed()}")
            self._begin_round()

    def on_round(self, summary: RoundSummary) -> None:
        """Shows a finished round, its replacements, and its new alarms."""
        known = self._last.alarms if self._last else ()
        self._last = summary
        last = self.rounds is not None and summary.round + 1 >= self.rounds
        self._status = "" if last else f"round {summary.round + 2}{f'/{self.rounds}' if self.rounds else ''}"
        self._seconds.append(time.monotonic() - self._round_began)
        self._begin_round()
        if not self.enabled:
            return
        if self._live is None:
            self._write_plain(summary)
        for event in summary.events:
            self.note(f"round {summary.round + 1}  {event_line(event)}")
        for alarm in summary.alarms:
            if alarm not in known:
                self.note(f"round {summary.round + 1}  alarm: {alarm}")
        self.console.file.flush()

    def on_probe(self, record: Mapping) -> None:
        """Shows a probe, in one line that stays on the screen. Its time is not part of a round."""
        if self._last is None and not record["step"]:
            self._begin_round()
        else:
            self._round_began += record["seconds"]  # it may be within a round
        self.note(probe_line(record))

    def _write_plain(self, summary: RoundSummary) -> None:
        self.note(round_line(summary, self.rounds))
        final = self.rounds is not None and summary.round + 1 == self.rounds
        if final or summary.round % self.table_every == 0:
            for table in round_tables(summary, plain=True):
                self.console.print(table)
                self.console.print()

    def _screen(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._last is not None:
            parts += [Text(round_line(self._last, self.rounds, phases=False)), *round_tables(self._last)]
            if self._last.seconds:
                parts.append(Text(f"seconds: {phases_line(self._last)}", style="dim"))
        if self._status or self._line.progress.name:
            # With the run's clock, so that a long phase is seen to be alive.
            parts.append(self._line.draw(before=self._status, after=f"run {self._elapsed()}{self._run_left()}"))
        return Group(*parts)

    def _run_left(self) -> str:
        """Time left in the run, from the mean time of a round without probes; nothing before the first round has ended
        and after the last."""
        left = self.rounds - self._last.round - 1 if self._last is not None and self.rounds else 0
        if left <= 0:
            return ""
        mean = sum(self._seconds) / len(self._seconds)
        probes = self._line.progress.name.startswith("probe")
        spent = 0.0 if probes else min(time.monotonic() - self._round_began, mean)
        return f", {duration(left * mean - spent)} left"

    def _begin_round(self) -> None:
        self._round_began = time.monotonic()

    def _elapsed(self) -> str:
        return duration(time.monotonic() - self._started)


def _first(call: Callable[[Any], None], then: Callable[[Any], None] | None) -> Callable[[Any], None]:
    def both(told: Any) -> None:
        call(told)
        if then is not None:
            then(told)

    return both
