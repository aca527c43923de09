"""`Worker`: runs jobs one after the other, in children of its fork servers.

It repeats deterministic jobs on servers with other settings, on which the result of a program must not depend. A job
that failed because of the machine is run again.
"""

from __future__ import annotations

import _thread
import marshal
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from random import Random
from typing import Any

from . import canonical, verdict
from .records import Execution, Job, Limits, Status, Value
from .server import Server, ServerLost


MAX_INPUT_BYTES = 1 << 20

# Settings that a program can observe. The result of a deterministic job must not depend on them. The first kind of
# server runs every job, and the others repeat deterministic jobs. Two hash seeds give two strings in a set the same
# order half of the time, four seeds one time in eight. The seeds are fixed: a job has the same verdict in every run.
KINDS = (
    {"hash_seed": 1, "recursion_limit": 1200, "memory_share": 1.0, "gc_threshold": 700, "ballast": 0, "heap": 0},
    {"hash_seed": 2, "recursion_limit": 1000, "memory_share": 0.875, "gc_threshold": 451, "ballast": 509, "heap": 1},
    {"hash_seed": 3, "recursion_limit": 1100, "memory_share": 0.9375, "gc_threshold": 613, "ballast": 251, "heap": 2},
    {"hash_seed": 4, "recursion_limit": 1050, "memory_share": 0.9, "gc_threshold": 521, "ballast": 127, "heap": 3},
)
_GENERIC_CLASS = re.compile(r"\bclass\s+\w+\s*\[")
NO_VALUES = Execution(Status.INFRA_ERROR, (), 0.0, 0)


class Worker:
    """
    One thread with its fork servers. A server is started when it is first needed.

    There are four kinds of servers (`KINDS`). Jobs that are not deterministic use only the first. Of each kind there
    is a server without preloaded modules, one with `modules`, and one with `modules` and `Job.modules` for each
    different `Job.modules`.

    Args:
        limits (`Limits`):
            Limits of jobs without limits of their own.
        modules (`list[str]`):
            Modules that the servers load before they fork, for programs that import something ([`needs_modules`]).
        settings (`dict`):
            Further settings of all servers, see `Server`.
    """

    def __init__(self, limits: Limits, modules: list[str], settings: dict) -> None:
        self._limits = limits
        self._modules = modules
        self._settings = settings
        self._servers: dict[tuple[int, bool | tuple[str, ...]], Server] = {}
        self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def pids(self) -> list[int]:
        """Process ids of the servers that run now."""
        found = [server.pid for server in list(self._servers.values())]  # to which the thread may add
        return [pid for pid in found if pid is not None]

    def probe(self) -> list[str]:
        """Starts a server and returns the measures that work (see `levels`). Raises `SandboxError` or `ServerLost`."""
        server = self._server(0, True)
        server.start()
        return server.held

    def start(self, work: Callable[[], None]) -> None:
        """Starts the thread. Raises `RuntimeError` if no more threads can be started."""

        def begin() -> None:
            self._thread = threading.current_thread()
            work()

        _start_thread(threading.Thread(target=begin, name="populora-executor", daemon=True))

    def close(self) -> None:
        """Kills the program that is running, if any, and ends the thread and the servers. No job may be waiting."""
        self._closing = True
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            while thread.join(0.02) or thread.is_alive():
                for server in list(self._servers.values()):  # to which the thread may add
                    server.interrupt()
        for server in self._servers.values():
            server.close()

    def run(self, job: Job) -> Execution:
        """
        Runs one job.

        Raises:
            `RuntimeError`: If the worker is closed. `SandboxError`: If a module of the job cannot be imported.
        """
        limits = job.limits or self._limits
        first = self._run(0, job, job.inputs, limits)
        if not job.deterministic or not first.values:
            return first
        if first.status in (Status.CPU_TIMEOUT, Status.WALL_TIMEOUT, Status.INFRA_ERROR):
            return first
        if first.seconds > limits.cpu_seconds / 2:
            # On a slower machine it might not end in time.
            return replace(first, status=Status.CPU_TIMEOUT, values=(Value(Status.CPU_TIMEOUT),) * len(first.values))
        middle = (len(job.inputs) + 1) // 2
        for kind in range(1, len(KINDS)):
            order = _another_order(job, kind)
            inputs = tuple(job.inputs[index] for index in order)
            parts = [part for part in (inputs[:middle], inputs[middle:]) if part] if kind == 1 else [inputs]
            again = [self._run(kind, job, part, limits) for part in parts]
            first = _compare(first, again, order)
            if first.status in (Status.NONDETERMINISTIC, Status.INFRA_ERROR):
                break
        return first

    def _server(self, kind: int, modules: bool | tuple[str, ...]) -> Server:
        """The server of this kind without modules (`False`), with `modules` (`True`), or with those and a tuple."""
        server = self._servers.get((kind, modules))
        if server is None:
            more = modules if isinstance(modules, tuple) else ()
            preload = {"modules": [*self._modules, *more] if modules else [], "third_party": bool(more)}
            server = self._servers[kind, modules] = Server(KINDS[kind] | self._settings | preload)
        return server

    def _run(self, kind: int, job: Job, inputs: tuple, limits: Limits) -> Execution:
        source = job.program.encode("utf-8", "surrogatepass")
        numbers = (limits.cpu_seconds, limits.wall_seconds, limits.memory_mb << 20, limits.result_bytes)
        # Format 2 has no shared references: each call gets its own copy of its arguments.
        payload = marshal.dumps((source, _spelled(inputs), *numbers), 2)
        if len(source) > limits.source_bytes or len(payload) > limits.source_bytes + MAX_INPUT_BYTES:
            return replace(NO_VALUES, status=Status.TOO_LARGE)
        server = self._server(kind, job.modules or needs_modules(job.program))
        execution = NO_VALUES
        for _ in range(2):
            if self._closing:
                raise RuntimeError("The executor was closed while this job ran.")
            try:
                most = verdict.max_report_bytes(len(inputs), limits, job.total_bytes)
                end = server.execute(payload, limits.wall_seconds, most)
            except ServerLost:
                continue
            # When a job is repeated, values that equal those of the first run need no check, and others are refused.
            lazy = job.lazy or kind > 0
            execution = verdict.judge(end, len(inputs), limits, lazy=lazy, checked_bytes=job.checked_bytes)
            if execution.status is not Status.INFRA_ERROR:
                break
            server.close()  # the next attempt starts a new one
        return execution


def needs_modules(program: str) -> bool:
    """Whether a program may import: by itself, or through the interpreter, which imports codecs for `encode`,
    `unicodedata` for `\\N{...}` and for names that are not ASCII, and `typing` for `class A[T]`."""
    words = any(word in program for word in ("import", "code", "\\N{"))
    return words or not program.isascii() or _GENERIC_CLASS.search(program) is not None


def _start_thread(thread: threading.Thread) -> None:
    """Starts a thread from another one, in which no signal handler can raise an error during the start."""
    answers: SimpleQueue[RuntimeError | None] = SimpleQueue()

    def start() -> None:
        try:
            thread.start()
            answers.put(None)
        except RuntimeError as error:
            answers.put(error)

    _thread.start_new_thread(start, ())
    if (error := answers.get()) is not None:
        raise error


def _another_order(job: Job, kind: int) -> list[int]:
    """A permutation of the inputs. It is always the same, and a program cannot choose it."""
    order = list(range(len(job.inputs)))[::-1]
    if len(order) > 3:
        Random(f"{kind} {job.program}").shuffle(order)
    return order


def _spelled(value: Any) -> Any:
    """The value with each set as `(..., [elements])`, in the order in which its text lists them.

    A program can show the order of a set, and models see only the text of the set. So the child must add the elements
    in the order of the text, as `ast.literal_eval` does. marshal would sort them in another way. No plain value
    contains an Ellipsis, so the form is unambiguous.
    """
    kind = type(value)
    if kind is set:
        return (..., canonical.ordered(value))
    if kind is list or kind is tuple:
        return kind([_spelled(item) for item in value])
    if kind is dict:
        return {key: _spelled(item) for key, item in value.items()}
    return value


def _compare(first: Execution, again: list[Execution], order: list[int]) -> Execution:
    """The first execution, in which values that differ in the second one are marked. The second one has parts, with
    the inputs in this order."""
    spoiled = next((part for part in again if part.status is Status.INFRA_ERROR), None)
    if spoiled is not None:
        return spoiled
    seconds = max(first.seconds, sum(part.seconds for part in again))
    peak_memory = max(first.peak_memory, *(part.peak_memory for part in again))
    found = dict(zip(order, (value for part in again for value in part.values)))
    if len(found) == len(order):
        second = tuple(found[index] for index in range(len(order)))
    else:  # the program itself failed
        second = (Value(Status.NONDETERMINISTIC),) * len(order)
    if second == first.values:
        return replace(first, seconds=seconds, peak_memory=peak_memory)
    values = tuple(a if a == b else Value(Status.NONDETERMINISTIC) for a, b in zip(first.values, second))
    return Execution(Status.NONDETERMINISTIC, values, seconds, peak_memory)
