"""One program in one forked child: confine, compile, run, report.

Everything here runs next to hostile code, so a result is a claim: the caller compares it with what only the caller
knows. The module keeps nothing of a job, and writes to one descriptor only.
"""

import builtins
import sys
from _collections_abc import Callable, Iterable  # which `os` imports in any case
from _signal import ITIMER_PROF, ITIMER_REAL, setitimer  # pyright: ignore[reportMissingImports]
from marshal import dumps, loads
from os import _exit, closerange, dup2, pread, write
from types import ModuleType

from .canonical import Unplain, encode
from .confine import Filter, die_with_parent, limit_child, start_cpu_timer
from .confine import rehearse as rehearse_confinement
from .frames import CHANNEL, CONFINEMENT_FAILED, pack


TYPE_CHECKING = False  # `typing` itself stays out of the children
if TYPE_CHECKING:
    from typing import Any


class Sink:
    """What programs print to: nothing. There is no descriptor behind it."""

    encoding = "utf-8"
    errors = "strict"
    closed = False

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def run(channel: int, job: int, size: int, seccomp: Filter | None, memory_share: float) -> None:
    """Run the job of `size` bytes that can be read from descriptor `job`, and never return."""
    try:
        payload = pread(job, size, 0)
        dup2(channel, CHANNEL)
        closerange(0, CHANNEL)
        closerange(CHANNEL + 1, 64)
        source, inputs, cpu_seconds, wall_seconds, memory_bytes, result_bytes = loads(payload)
        lock(seccomp, cpu_seconds, wall_seconds, int(memory_bytes * memory_share))
    except BaseException:
        _exit(CONFINEMENT_FAILED)
    try:
        _execute(source, inputs, result_bytes)
    finally:
        _exit(0)


def lock(seccomp: Filter | None, cpu_seconds: float, wall_seconds: float, memory_bytes: int) -> None:
    """Confine this process for good. With no filter (`None`), everything else still applies."""
    die_with_parent()
    limit_child(cpu_seconds, memory_bytes)
    # The kernel ends the process when a timer fires: their signals keep their default action, because the filter
    # refuses to change it, to block a signal or to touch a timer.
    if not start_cpu_timer(cpu_seconds):
        setitimer(ITIMER_PROF, cpu_seconds)
    setitimer(ITIMER_REAL, wall_seconds)
    if seccomp is not None:
        seccomp.install()


def rehearse() -> None:
    """
    Run an honest program a few times in the server itself, with the result channel going nowhere.

    The interpreter rewrites bytecode, resolves names and fills caches as it runs. What it has done here, no child does
    again, in pages that the kernel must first copy for it.
    """
    source = b"import math\ndef f(x): return [x, (x, 'a', 1.5, None, True), {x: 'b'}, {x}]"
    for _ in range(20):
        rehearse_confinement()
        _execute(*loads(dumps((source, ((1,), (-2,)), 65536), 2)))
    del sys.modules["program"]


def _execute(source: bytes, inputs: tuple, result_bytes: int) -> None:
    try:
        code = compile(source.decode("utf-8", "surrogatepass"), "<program>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return _send(b"S", _name(error))
    except BaseException as error:
        return _send(b"C", _name(error))
    module = ModuleType("program")
    # The public builtins: this file has a private copy, see `zygote.load`.
    module.__dict__["__builtins__"] = builtins.__dict__
    sys.modules["program"] = module  # some of the standard library looks a class's module up there
    _send(b"P")
    try:
        exec(code, module.__dict__)
        function = module.__dict__.get("f")
        if not callable(function):
            raise NameError("f")
    except BaseException as error:
        return _send(b"X", _failure(error))
    _send(b"F")
    for arguments in inputs:
        _send(b"R", _call(function, _built(arguments), result_bytes))
    _send(b"Z")


def _built(value: "Any") -> "Any":
    """The value with its sets, see `worker._spelled`."""
    kind = type(value)
    if kind is tuple:
        if value and value[0] is ...:
            return set(value[1])
        return tuple([_built(item) for item in value])
    if kind is list:
        return [_built(item) for item in value]
    if kind is dict:
        return {key: _built(item) for key, item in value.items()}
    return value


def _call(function: Callable, arguments: tuple, result_bytes: int) -> bytes:
    try:
        value = function(*arguments)
    except BaseException as error:
        return _failure(error)
    try:
        return b"v" + encode(value, result_bytes)
    except Unplain as error:
        return b"u" + str(error).encode("ascii", "replace")
    except BaseException as error:
        return _failure(error)


def _failure(error: BaseException) -> bytes:
    kind = type(error)  # `isinstance` would ask the object for its `__class__`
    tag = b"m" if issubclass(kind, MemoryError) else b"e" if issubclass(kind, Exception) else b"b"
    return tag + _name(error)


def _name(error: BaseException) -> bytes:
    # Read from the type itself: a metaclass could compute another answer, or none.
    return type.__dict__["__name__"].__get__(type(error))[:100].encode("ascii", "replace")


def _send(tag: bytes, payload: bytes = b"") -> None:
    data = pack(tag, payload)
    while data:
        data = data[write(CHANNEL, data) :]
