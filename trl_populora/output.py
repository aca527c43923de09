"""Standard output and standard error that may fail, and which of several processes writes: a run does not end because
its log cannot be written."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


logger = logging.getLogger(__name__)


class SteadyStream:
    """A text stream whose errors are not raised, so that work goes on. The first one is a warning, unless the stream
    was closed in this process.

    A full disk may have space later, so each write is tried.

    Args:
        stream (`TextIO`, *optional*): Where to write. `None` is a standard stream that was closed before the start.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream: TextIO = open(os.devnull, "w") if stream is None else stream  # noqa: SIM115 - as long as it lives
        self._told = False

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError) as error:
            self._tell(error)
            return len(text)

    def writelines(self, lines: Any) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._tell(error)

    def __getattr__(self, name: str) -> Any:
        if name == "_stream":  # of a copy that is not complete yet
            raise AttributeError(name)
        return getattr(self._stream, name)

    def _tell(self, error: Exception) -> None:
        if not self._told and isinstance(error, OSError | UnicodeError):
            self._told = True
            name = getattr(self._stream, "name", "")
            logger.warning(f"The output to {name} is lost from here on: {error}. The work itself continues.")


def printable(text: str) -> str:
    """The text of a model, or of somebody else's file, with the characters that control a terminal as escapes."""
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)


def steady(stream: TextIO | SteadyStream | None) -> Any:
    """The stream as a [`SteadyStream`]."""
    return stream if isinstance(stream, SteadyStream) else SteadyStream(stream)


@contextmanager
def steady_output() -> Iterator[None]:
    """Context in which neither standard output nor standard error raises errors, for all code of this process."""
    prepare_output()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(steady, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in before:
            settle(stream)


def prepare_output() -> None:
    """Lets standard output write characters that its encoding does not have as escapes, as standard error does; and
    opens those that were closed before the start."""
    sys.stdout, sys.stderr = (steady(None) if stream is None else stream for stream in (sys.stdout, sys.stderr))
    with suppress(AttributeError):  # it is somebody's object
        sys.stdout.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]


def settle(stream: TextIO) -> None:
    """Drops what a stream cannot write any more. Otherwise, the interpreter tries at its end, and changes the exit
    code."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def is_first_rank() -> bool:
    """Whether this process writes for all. A `RANK` without a `WORLD_SIZE`, left by another program, says nothing."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"
