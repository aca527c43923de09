"""The name of the command `populora` on this machine, and the common form of error messages."""

import os
import shlex
import shutil
import sys
from contextlib import suppress

from .output import is_first_rank, printable


WRONG_CALL, FAILURE, STOPPED = 2, 1, 130
"""Exit codes: an error in the call or the recipe; a failure during the work; Ctrl-C."""


def populora() -> str:
    """The command as it can be typed in this folder: `populora`, or with its path if it is not on PATH."""
    script = os.path.join(os.path.dirname(sys.executable), "populora")
    found = shutil.which("populora")
    if found is not None and os.path.realpath(found) == os.path.realpath(script):
        return "populora"
    if os.path.isfile(script):
        return shlex.quote(_short(script))
    return found and "populora" or f"{shlex.quote(_short(sys.executable))} -m trl_populora.cli"


def print_error(problem: object, code: int, *, every_rank: bool = False) -> int:
    """Writes `populora: error: ...` to standard error, once for all ranks or on every one, where those after the first
    add their number; returns the exit code."""
    if every_rank or is_first_rank():
        place = "" if is_first_rank() else f" (rank {os.environ['RANK']})"
        with suppress(OSError):
            sys.stderr.write(f"populora: error{place}: {printable(str(problem))}\n")
    return code


def _short(path: str) -> str:
    """The path from this folder, if it is below; a name alone would be looked for on PATH."""
    try:
        below = os.path.relpath(path)
    except FileNotFoundError:  # this folder was removed
        return path
    return path if below.startswith(os.pardir) else below if os.sep in below else os.path.join(os.curdir, below)
