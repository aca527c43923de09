"""Where the views of runs, evaluations and experiments write."""

import sys
from typing import Any, TextIO

from rich.console import Console

from ..output import steady


PLAIN_WIDTH = 119


def new_console(file: TextIO | None = None) -> Console:
    """Writes to a file, or to standard output. Errors of writing are a warning, because the work must go on."""
    stream = steady(sys.stdout if file is None else file)
    plain: dict[str, Any] = {} if stream.isatty() else {"width": PLAIN_WIDTH, "color_system": None}
    # In a notebook, rich would show all in the cell.
    # Names of users are no markup.
    return Console(file=stream, **plain, force_jupyter=None if file is None else False, markup=False, emoji=False)


def redraws(console: Console) -> bool:
    """Whether it is a terminal on which lines can be drawn again."""
    return console.file.isatty() and not console.is_dumb_terminal  # FORCE_COLOR makes `is_terminal` true of a file
