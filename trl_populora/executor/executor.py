"""`Executor`: passes jobs to workers and collects their results. `worker.py` runs a job."""

from __future__ import annotations

import _thread
import os
import resource
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from . import levels
from .pool import Batch, Pool
from .records import Execution, Job, Limits, SandboxError, Status
from .server import ServerLost
from .worker import Worker


T = TypeVar("T")

# fmt: off
MODULES = (
    "__future__", "abc", "array", "base64", "bisect", "calendar", "cmath", "collections", "collections.abc",
    "contextlib", "copy", "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions", "functools", "hashlib",
    "heapq", "inspect", "io", "itertools", "json", "math", "numbers", "operator", "random", "re", "statistics",
    "string", "struct", "textwrap", "time", "types", "typing", "unicodedata",
)
# fmt: on
"""Modules of the standard library that programs can import. Others fail with `ModuleNotFoundError`."""


class Executor:
    """
    Runs untrusted programs. Use it as a context manager, or call `close`.

    Fork servers start on first use. All methods may be called from several threads at the same time. Jobs start in the
    order in which they arrive. After `os.fork`, the child process gets its own servers.

    Args:
        workers (`int`, *optional*):
            Number of programs that run at the same time. Default: the cores that this process may use.
        limits (`Limits`, *optional*):
            Limits of jobs without their own limits. A program may use all of `memory_mb`.
        accept_unsafe (`bool`, *optional*, defaults to `False`):
            Whether to run programs even if the kernel has no seccomp (isolation level `L0`). Only for programs that
            you trust.
        modules (`Sequence[str]`, *optional*):
            Names of standard library modules that programs can import.

    Raises:
        `ValueError`: for a worker count below one.
        `SandboxError`: on first use, if programs cannot be confined on this machine, or may not have `memory_mb`.

    Example:

    ```python
    with Executor() as executor:
        execution = executor.run("def f(x): return x + 1", ((1,), (2,)))
        print(execution.status, [value.value for value in execution.values])  # ok [2, 3]
    ```
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
        self._accept_unsafe = accept_unsafe
        self._modules = list(modules)
        self._without: list[str] = []  # measures to leave out, for benchmarks/executor.py
        self._reset()

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._changing = threading.RLock()  # a signal handler may close while a server starts
        self._pool: Pool | None = None
        self._counts = dict.fromkeys(Status, 0)

    @property
    def isolation(self) -> str:
        """The isolation level from the self-test, `"L3"` (strongest) to `"L0"` (none). Starts a fork server if
        needed."""
        return levels.level(self._started().held)

    @property
    def missing(self) -> dict[str, str]:
        """The protections that do not work on this machine, and what to do about each. Starts a fork server if
        needed."""
        return levels.missing(self._started().held)

    @property
    def pids(self) -> list[int]:
        """Process ids of the fork servers that run now, for monitoring. Programs run in processes below them. Starts
        no server."""
        own = self._pool if self._owner == os.getpid() else None
        return [pid for worker in own.workers for pid in worker.pids] if own is not None else []

    @property
    def counts(self) -> dict[Status, int]:
        """Executions so far by status, of this process."""
        return dict(self._counts)

    def run(
        self,
        program: str,
        inputs: tuple[tuple, ...],
        limits: Limits | None = None,
        *,
        deterministic: bool = False,
        modules: tuple[str, ...] = (),
    ) -> Execution:
        """Run one job, see `Job`."""
        return self.run_many([Job(program, inputs, limits, deterministic, modules)])[0]

    def run_many(self, jobs: Sequence[Job]) -> list[Execution]:
        """
        Run jobs, as many at a time as there are workers.

        Args:
            jobs (`Sequence[Job]`):
                Any number of jobs. Only running jobs need additional memory.

        Returns:
            `list[Execution]`: in the order of the jobs. No program can cause an exception here.

        Raises:
            `SandboxError`: if programs cannot be confined or may not have their `memory_mb`, or a module of a job
            cannot be imported.
            `RuntimeError`: if the executor is closed meanwhile.
        """
        batch = Batch(jobs)
        if not batch.jobs:
            return []
        _check_memory(max(job.limits.memory_mb if job.limits is not None else 0 for job in batch.jobs))
        try:
            pool = self._started()
            pool.put(batch)
            # With a time limit: a signal just before the call does not end it.
            while not batch.over.acquire(timeout=0.2) and not pool.closed:
                pass
        except BaseException:  # an interrupt: nothing must go on behind the caller's back
            self.close()
            raise
        if batch.error is not None:
            raise batch.error
        if batch.left:
            raise RuntimeError("The executor was closed while this job ran.")
        return batch.results  # pyright: ignore[reportReturnType]

    def close(self) -> None:
        """Ends all fork servers and their programs. Waiting calls raise `RuntimeError`. The next call starts new
        servers."""
        if self._owner == os.getpid():
            self._alone(self._ended)

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        pool = getattr(self, "_pool", None)
        if pool is not None and self._owner == os.getpid():
            # Garbage is collected in any thread, holding any lock: this one must not wait for another.
            with suppress(RuntimeError):  # the interpreter ends, and the servers with it
                _thread.start_new_thread(pool.close, ())

    def _started(self) -> Pool:
        if self._owner != os.getpid():  # forked: the servers belong to the parent process
            self._reset()
        return self._alone(self._running)

    def _alone(self, call: Callable[[], T]) -> T:
        """
        Calls it while no other thread starts or ends the servers.

        Since Python 3.14, a signal handler may raise between the two parts of `with lock:`, and the lock then stays
        locked. Here one call of built-in functions locks it and notes that.
        """
        locked: list[bool] = []
        try:
            locked.extend(map(self._changing.acquire, (True,)))
            return call()
        finally:
            if locked:
                self._changing.release()

    def _ended(self) -> None:
        pool = self._pool
        if pool is not None:
            try:
                pool.close()
            except BaseException:  # an interrupt: the rest goes on without the caller
                _thread.start_new_thread(pool.close, ())
                raise
            finally:
                self._pool = None

    def _running(self) -> Pool:
        if self._pool is not None:
            return self._pool
        if sys.platform != "linux":
            raise SandboxError(f"Programs can be confined only on Linux, not on {sys.platform}: use a container.")
        _check_memory(self.limits.memory_mb)
        settings = {"without": self._without, "accept_unsafe": self._accept_unsafe}
        workers = [Worker(self.limits, self._modules, settings) for _ in range(self.workers)]
        pool = Pool(workers, self._counts)
        try:
            pool.start()
            self._pool = pool
        except BaseException as error:  # an interrupt, too
            self._pool = None
            pool.close()
            if isinstance(error, ServerLost):
                raise SandboxError(f"The executor cannot start: {error}.") from None
            raise
        if levels.level(pool.held) == "L1":
            warnings.warn(
                "Programs are confined only by seccomp: Landlock and namespaces do not work here "
                '(page "Security" of the documentation).',
                stacklevel=5,
            )
        return pool


def _check_memory(memory_mb: int) -> None:
    """Raises a `SandboxError` if a program cannot have so much address space. Otherwise each would fail."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY and hard >> 20 < memory_mb:
        raise SandboxError(
            f"memory_mb={memory_mb} is more than a process may have here: the hard limit of its address space is "
            f"{hard >> 20} MiB. Raise that limit (`ulimit -Hv`), or set a smaller memory_mb."
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
