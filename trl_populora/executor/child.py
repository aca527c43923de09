"""Runs one program in one forked child: confines the process, compiles the program, runs it, and reports.

This code runs in the same process as hostile code. So its report may be false, and the caller compares it with values
that only the caller knows. The module stores nothing about a job, and writes to one descriptor only.
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
    """Standard output of programs. It discards everything and has no descriptor."""

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


def run(channel: int, job: int, size: int, seccomp: Filter | None, memory_share: float, seed: Callable | None) -> None:
    """
    Reads the job of `size` bytes from descriptor `job` and runs it. Never returns.

    `seed` is `random.seed` if that is imported. Its new state differs between jobs and between servers, which have
    different hash seeds. So a program that uses `random` without a seed of its own gives different results. One that
    shows a single bit has a chance of one in eight to pass, with the same outcome in every run.
    """
    try:
        payload = pread(job, size, 0)
        dup2(channel, CHANNEL)
        closerange(0, CHANNEL)
        closerange(CHANNEL + 1, 64)
        source, inputs, cpu_seconds, wall_seconds, memory_bytes, result_bytes = loads(payload)
        if seed is not None:
            seed(hash(payload))
        lock(seccomp, cpu_seconds, wall_seconds, int(memory_bytes * memory_share))
    except BaseException:
        _exit(CONFINEMENT_FAILED)
    try:
        _execute(source, inputs, result_bytes)
    finally:
        _exit(0)


def lock(seccomp: Filter | None, cpu_seconds: float, wall_seconds: float, memory_bytes: int) -> None:
    """Confines this process irreversibly. If there is no filter (`None`), all other limits still apply."""
    die_with_parent()
    limit_child(cpu_seconds, memory_bytes)
    # When a timer fires, the kernel ends the process by the default action of its signal. The filter does not let the
    # program change that action, block a signal or change a timer.
    if not start_cpu_timer(cpu_seconds):
        setitimer(ITIMER_PROF, cpu_seconds)
    setitimer(ITIMER_REAL, wall_seconds)
    if seccomp is not None:
        seccomp.install()


def rehearse() -> None:
    """
    Runs a harmless program a few times in the server itself. The result channel is /dev/null.

    While it runs, the interpreter rewrites bytecode, resolves names and fills caches. What is done here need not be
    done in every child, where each changed page of memory is first copied by the kernel.
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
    sys.modules["program"] = module  # where parts of the standard library look for the module of a class
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
    """The value with its sets, from the form that `worker._spelled` has made."""
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
