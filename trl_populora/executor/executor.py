"""`Executor`: spreads jobs over fork servers, repeats deterministic ones, retries what the machine spoiled.

One worker is one thread with up to four fork servers: the plain and the twin one, each with and without a preloaded
standard library. A worker has one child at a time.
"""

from __future__ import annotations

import marshal
import os
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from . import verdict
from .records import Execution, Job, Limits, Status, Value
from .server import Server, ServerLost


# fmt: off
MODULES = (
    "__future__", "abc", "array", "base64", "bisect", "calendar", "cmath", "collections", "collections.abc",
    "contextlib", "copy", "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions", "functools", "hashlib",
    "heapq", "inspect", "io", "itertools", "json", "math", "numbers", "operator", "random", "re", "statistics",
    "string", "struct", "textwrap", "time", "types", "typing", "unicodedata",
)
# fmt: on
"""Modules of the standard library that programs can import. Others fail with `ModuleNotFoundError`."""

MAX_INPUT_BYTES = 1 << 20

# What a program might notice, and must not depend on. The twin runs the second half of a deterministic job.
_PLAIN = {"hash_seed": 1, "recursion_limit": 1200, "memory_share": 1.0, "gc_threshold": 700, "ballast": 0}
_TWIN = {"hash_seed": 2, "recursion_limit": 1000, "memory_share": 0.875, "gc_threshold": 451, "ballast": 509}
_NO_VALUES = Execution(Status.INFRA_ERROR, (), 0.0, 0)


class Executor:
    """
    Runs untrusted programs. Use it as a context manager, or call `close`.

    Fork servers start on first use. Not safe for use from several threads at once. After `os.fork`, the child process
    gets servers of its own.

    Args:
        workers (`int`, *optional*):
            Programs run at the same time; by default the number of cores this process may use.
        limits (`Limits`, *optional*):
            Limits of jobs that bring none of their own. A worker may use all of `memory_mb`.
        accept_unsafe (`bool`, *optional*, defaults to `False`):
            Run even where the kernel gives no seccomp (isolation level `L0`). Only for programs you trust.
        modules (`Sequence[str]`, *optional*):
            Names of standard library modules that programs can import.

    Attributes:
        counts (`dict[Status, int]`):
            Executions so far by status.
        executions (`int`):
            Their number.
        busy_seconds (`float`):
            Wall seconds spent inside `run_many`.

    Raises:
        `ValueError`: for a worker count below one.
        `RuntimeError`: where programs cannot be confined, on first use.
    """

    def __init__(
        self,
        workers: int | None = None,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        *,
        accept_unsafe: bool = False,
        modules: Sequence[str] = MODULES,
    ) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers is {workers}; choose at least 1, or None for one per core.")
        self.workers = workers or _cores()
        self.limits = limits
        self.counts: dict[Status, int] = dict.fromkeys(Status, 0)
        self.executions = 0
        self.busy_seconds = 0.0
        self._accept_unsafe = accept_unsafe
        self._modules = list(modules)
        self._without: list[str] = []  # measures to leave out, for tests
        self._workers: list[_Worker] = []
        self._owner = os.getpid()
        self._level: str | None = None

    @property
    def isolation(self) -> str:
        """The level proven by the self-test, `"L3"` (strongest) to `"L0"` (none); starts a fork server if need be."""
        self._start()
        assert self._level is not None
        return self._level

    def run(
        self,
        program: str,
        inputs: tuple[tuple, ...],
        limits: Limits | None = None,
        *,
        deterministic: bool = False,
    ) -> Execution:
        """Run one job, see `Job`."""
        return self.run_many([Job(program, inputs, limits, deterministic)])[0]

    def run_many(self, jobs: Sequence[Job]) -> list[Execution]:
        """
        Run jobs, as many at a time as there are workers.

        Args:
            jobs (`Sequence[Job]`):
                Any number; only the jobs in flight take memory beyond their own.

        Returns:
            `list[Execution]`: in the order of the jobs. No program can make this raise.

        Raises:
            `RuntimeError`: where programs cannot be confined.
        """
        if not jobs:
            return []
        begin = time.monotonic()
        self._start()
        results: list[Execution] = [_NO_VALUES] * len(jobs)
        failures: list[BaseException] = []
        queue = iter(range(len(jobs)))
        lock = threading.Lock()

        def work(worker: _Worker) -> None:
            try:
                while not failures:
                    with lock:
                        index = next(queue, None)
                    if index is None:
                        return
                    results[index] = worker.run(jobs[index], jobs[index].limits or self.limits)
            except BaseException as error:
                failures.append(error)

        first, *others = self._workers[: len(jobs)]
        threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in others]
        try:
            for thread in threads:
                thread.start()
            work(first)
            for thread in threads:
                if not failures:
                    thread.join()
        except BaseException as error:
            failures.append(error)
        if failures:
            self._abandon(threads)
            raise failures[0]
        for status, count in Counter(result.status for result in results).items():
            self.counts[status] += count
        self.executions += len(jobs)
        self.busy_seconds += time.monotonic() - begin
        return results

    def close(self) -> None:
        """End all fork servers. The next call starts new ones."""
        workers, self._workers = self._workers, []
        if self._owner == os.getpid():
            for worker in workers:
                worker.close()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_workers", None):
            self.close()

    def _abandon(self, threads: list[threading.Thread]) -> None:
        """End what is running: a thread whose server is killed under it stops after at most one more try."""
        while running := [thread for thread in threads if thread.is_alive()]:
            for worker in self._workers:
                worker.interrupt()
            running[0].join(0.02)
        self.close()

    def _start(self) -> None:
        if self._owner != os.getpid():  # forked: the servers belong to the parent process
            self._workers, self._owner = [], os.getpid()
        if self._workers:
            return
        if sys.platform != "linux":
            raise RuntimeError(f"Programs can be confined on Linux only, not on {sys.platform}: use a container.")
        settings = {"without": self._without, "accept_unsafe": self._accept_unsafe}
        workers = [_Worker(self._modules, settings) for _ in range(self.workers)]
        try:
            self._level = workers[0].start()
        except ServerLost as error:
            raise RuntimeError(f"The executor cannot start: {error}.") from None
        if self._level == "L1":
            warnings.warn(
                "Programs are confined by seccomp alone: Landlock and namespaces do not work here (docs/security.md).",
                stacklevel=3,
            )
        self._workers = workers


class _Worker:
    """One lane of work: a set of fork servers, started when first needed, and one child at a time."""

    def __init__(self, modules: list[str], settings: dict) -> None:
        self._servers = {
            (twin, full): Server(kind | settings | {"modules": modules if full else []})
            for twin, kind in ((False, _PLAIN), (True, _TWIN))
            for full in (False, True)
        }

    def start(self) -> str:
        server = self._servers[False, True]
        server.start()
        return server.level

    def interrupt(self) -> None:
        for server in self._servers.values():
            server.interrupt()

    def close(self) -> None:
        for server in self._servers.values():
            server.close()

    def run(self, job: Job, limits: Limits) -> Execution:
        if not job.deterministic:
            return self._run(False, job.program, job.inputs, limits)
        first = self._run(False, job.program, job.inputs, limits)
        if not first.values or first.status in (Status.CPU_TIMEOUT, Status.WALL_TIMEOUT, Status.INFRA_ERROR):
            return first
        if first.seconds > limits.cpu_seconds / 2:
            # Whether it ends in time would depend on the machine.
            return replace(first, status=Status.CPU_TIMEOUT, values=(Value(Status.CPU_TIMEOUT),) * len(first.values))
        return _compare(first, self._run_twin(job, limits))

    def _run_twin(self, job: Job, limits: Limits) -> list[Execution]:
        """The same inputs in reverse, in two children."""
        inputs, middle = job.inputs[::-1], (len(job.inputs) + 1) // 2
        return [self._run(True, job.program, part, limits) for part in (inputs[:middle], inputs[middle:]) if part]

    def _run(self, twin: bool, program: str, inputs: tuple[tuple, ...], limits: Limits) -> Execution:
        source = program.encode("utf-8", "surrogatepass")
        numbers = (limits.cpu_seconds, limits.wall_seconds, limits.memory_mb << 20, limits.result_bytes)
        # Format 2 has no shared references: each call gets its own copy of its arguments.
        payload = marshal.dumps((source, inputs, *numbers), 2)
        if len(source) > limits.source_bytes or len(payload) > limits.source_bytes + MAX_INPUT_BYTES:
            return replace(_NO_VALUES, status=Status.TOO_LARGE)
        server = self._servers[twin, "import" in program]
        execution = _NO_VALUES
        for _ in range(2):
            try:
                end = server.execute(payload, limits.wall_seconds, verdict.max_report_bytes(len(inputs), limits))
            except ServerLost:
                continue
            execution = verdict.judge(end, len(inputs), limits)
            if execution.status is not Status.INFRA_ERROR:
                break
            server.close()  # whatever is wrong with it, the next one is new
        return execution


def _compare(first: Execution, twin: list[Execution]) -> Execution:
    """One execution from two: the first one, with what differs marked."""
    spoiled = next((part for part in twin if part.status is Status.INFRA_ERROR), None)
    if spoiled is not None:
        return spoiled
    seconds = max(first.seconds, sum(part.seconds for part in twin))
    peak_memory = max(first.peak_memory, *(part.peak_memory for part in twin))
    second = tuple(value for part in twin for value in part.values)[::-1]
    if len(second) != len(first.values):  # the program itself failed
        second = (Value(Status.NONDETERMINISTIC),) * len(first.values)
    if second == first.values:
        return replace(first, seconds=seconds, peak_memory=peak_memory)
    values = tuple(a if a == b else Value(Status.NONDETERMINISTIC) for a, b in zip(first.values, second))
    return Execution(Status.NONDETERMINISTIC, values, seconds, peak_memory)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
