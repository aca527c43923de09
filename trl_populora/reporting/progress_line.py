"""The progress line of all views on a terminal: the current work, a bar, the amount done, and the time left."""

from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ..progress import Progress


BAR = 12  # columns


class ProgressLine:
    """Draws a [`Progress`]. rich calls it several times a second.

    Attributes:
        progress ([`Progress`]): The progress to draw, set by `watch`.
    """

    def __init__(self) -> None:
        self._spinner = Spinner("dots")
        self.progress = Progress()

    def watch(self, progress: Progress) -> None:
        """Sets the progress to draw."""
        self.progress = progress

    def draw(self, *, before: str = "", after: str = "") -> Table:
        """The line, between other texts.

        Args:
            before (`str`): Text before the phase, such as the round.
            after (`str`): Text about the whole run.
        """
        row = Table.grid(padding=(0, 1))
        row.add_row(self._spinner, *self._parts(before), Text(after, style="dim", no_wrap=True))
        return row

    def _parts(self, before: str) -> list:
        progress = self.progress
        title = Text("  ".join(filter(None, (before, progress.name))), no_wrap=True, overflow="ellipsis")
        if not progress.total:
            return [title]
        done = min(progress.done, progress.total)
        left = progress.seconds_left()
        told = f"{int(done):,}/{int(progress.total):,} {progress.unit}" + (f", {duration(left)} left" if left else "")
        return [title, ProgressBar(progress.total, done, width=BAR), Text(told, no_wrap=True)]


def duration(seconds: float) -> str:
    """`75` -> `"1:15"`, `3675` -> `"1:01:15"`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
