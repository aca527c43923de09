"""The records of the executor: what goes in (`Job`, `Limits`) and what comes out (`Execution`, `Value`, `Status`).

These are plain data. `executor.py` and `server.py` run jobs. `verdict.py` judges outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from . import canonical, literals


class SandboxError(RuntimeError):
    """Programs cannot run confined on this machine. The message says why, and what to do."""


class Status(StrEnum):
    """How a program, or one call of it, ended. Every status except `INFRA_ERROR` is caused by the program."""

    OK = "ok"
    """Every call returned a plain value."""
    EXCEPTION = "exception"
    """An `Exception` left the program or the call; also: the program does not define a function `f`."""
    BASE_EXCEPTION = "base_exception"
    """`SystemExit`, `KeyboardInterrupt` or another exception that is not an `Exception`."""
    UNPLAIN = "unplain"
    """The call returned something that has no canonical form: not plain data, too deep or too large."""
    SYNTAX_ERROR = "syntax_error"
    COMPILE_FAILED = "compile_failed"
    """The compiler gave up for another reason than syntax: memory, nesting, a bad encoding."""
    CPU_TIMEOUT = "cpu_timeout"
    """CPU limit reached; for a deterministic job: more than half of it used."""
    WALL_TIMEOUT = "wall_timeout"
    MEMORY = "memory"
    """`MemoryError`, as a rule from `Limits.memory_mb`."""
    KILLED = "killed"
    """The process died of a signal: a crash, a forbidden system call, the kernel's out-of-memory killer."""
    OUTPUT_LIMIT = "output_limit"
    """More bytes came back than the results may take."""
    PROTOCOL_VIOLATION = "protocol_violation"
    """The program forged or broke the frames in which results travel."""
    NO_RESULT = "no_result"
    """The process ended by itself before the result was complete, for example by `os._exit(0)`."""
    TOO_LARGE = "too_large"
    """Source or arguments are above the limits; nothing was run."""
    NONDETERMINISTIC = "nondeterministic"
    """The runs of a deterministic job differ."""
    INFRA_ERROR = "infra_error"
    """The executor itself failed, twice. Never reward or punish a program for it."""


@dataclass(frozen=True)
class Limits:
    """Limits of one run of a program with all its inputs.

    Args:
        cpu_seconds (`float`, *optional*, defaults to `0.5`):
            CPU time, user and system, enforced by the kernel's clock.
        wall_seconds (`float`, *optional*, defaults to `3.0`):
            Elapsed time.
        memory_mb (`int`, *optional*, defaults to `512`):
            Address space in MiB, including about 50 MiB of the interpreter.
        result_bytes (`int`, *optional*, defaults to `65536`):
            Size of one value in canonical form.
        source_bytes (`int`, *optional*, defaults to `65536`):
            Size of the program's text in UTF-8.
    """

    cpu_seconds: float = 0.5
    wall_seconds: float = 3.0
    memory_mb: int = 512
    result_bytes: int = 65536
    source_bytes: int = 65536

    def __post_init__(self) -> None:
        bounds = {
            "cpu_seconds": (0.01, 3600),
            "wall_seconds": (0.01, 3600),
            "memory_mb": (96, 1 << 20),
            "result_bytes": (16, 1 << 24),
            "source_bytes": (16, 1 << 24),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"Limits.{name} is {value!r}; choose a number from {low} to {high}.")


@dataclass(frozen=True)
class Job:
    """A program and the argument tuples on which its function `f` is called, all in one child process.

    Args:
        program (`str`):
            Python source that defines `f`.
        inputs (`tuple[tuple, ...]`):
            One tuple of plain values per call. The calls run in this order and share the program's globals, but each
            gets its own copy of its arguments.
        limits (`Limits`, *optional*):
            Limits of this job. Default: those of the executor.
        deterministic (`bool`, *optional*, defaults to `False`):
            Whether to run four times and accept only equal results. The runs differ in hash seed, addresses, recursion
            limit, memory limit, garbage collection, and in order and grouping of the inputs.
        modules (`tuple[str, ...]`, *optional*):
            Additional modules that this program may import, in the order of import, such as `("sqlite3",)` or
            `("math_verify",)`. Any module that the caller can import is allowed. The modules are trusted: a fork
            server imports them without isolation when a job first names them, and keeps them for all jobs with the
            same modules. They cannot import anything later, for example when a function is called. To solve this,
            write your own module that calls such a function at import time. This also saves time in every job.
        total_bytes (`int`, *optional*):
            Size of all values together in canonical form. Default: `Limits.result_bytes` for each.
        lazy (`bool`, *optional*, defaults to `False`):
            Whether a value is checked only when `Value.value` reads it. Reading a large value takes much longer than
            sending it. So a caller who reads value after value, and stops at the first wrong one, spends no time on
            the others.
        checked_bytes (`int`, *optional*):
            Values above this size are not checked either. It is for a caller who refuses them unread. Default: every
            value is checked.

    Raises:
        `ValueError`: if the program is not text, the inputs are not tuples of plain values, or the modules are not
        names.
    """

    program: str
    inputs: tuple[tuple, ...]
    limits: Limits | None = None
    deterministic: bool = False
    modules: tuple[str, ...] = ()
    total_bytes: int | None = None
    lazy: bool = False
    checked_bytes: int | None = None

    def __post_init__(self) -> None:
        if type(self.program) is not str:
            raise ValueError(f"Job.program is a {type(self.program).__name__}; pass the source as a str.")
        if type(self.inputs) is not tuple or any(type(arguments) is not tuple for arguments in self.inputs):
            raise ValueError("Job.inputs must be a tuple with one tuple of arguments per call, such as ((1,), (2,)).")
        if self.modules and not _are_names(self.modules):
            raise ValueError(f"Job.modules is {self.modules!r}; pass a tuple of module names, such as ('sqlite3',).")
        try:
            canonical.encode(self.inputs, max_bytes=None, max_depth=canonical.MAX_DEPTH + 2)
        except canonical.Unplain as error:
            raise ValueError(f"Job.inputs holds something that is not a plain value: {error}.") from None


def _are_names(modules: object) -> bool:
    return type(modules) is tuple and all(
        type(name) is str and all(part.isidentifier() for part in name.split(".")) for name in modules
    )


@dataclass(frozen=True)
class Value:
    """The outcome of one call of `f`.

    Args:
        status (`Status`):
            How the call ended.
        data (`bytes`, *optional*):
            Canonical bytes of the returned value if `status` is `OK`. Two values are equal exactly if these are. If
            the job was `lazy`, or they are more than its `checked_bytes`, nobody has checked yet that they are
            canonical.
        error (`str`, *optional*):
            Name of the exception's type, or the reason why a value is not plain.
    """

    status: Status
    data: bytes | None = None
    error: str | None = None

    @property
    def value(self) -> object:
        """The returned value as plain Python data. Raises `ValueError` if there is none, or if nobody has checked yet
        the bytes of the program and they are no value."""
        if self.data is None:
            raise ValueError(f"There is no value: the call ended with status {self.status.value!r}.")
        return canonical.decode(self.data)

    @property
    def literal(self) -> str:
        """The returned value as literal text. Raises `literals.NotLiteral` if it has none (nan, a frozenset)."""
        return literals.to_literal(self.value)


@dataclass(frozen=True)
class Execution:
    """The outcome of a job.

    Args:
        status (`Status`):
            `OK` if every value is, `NONDETERMINISTIC` if any differed between two runs, else the first status that
            is not `OK`.
        values (`tuple[Value, ...]`):
            One per input, in order; empty if the program failed before `f` was called. Calls that a dead process
            never reached carry the status of its death.
        seconds (`float`):
            CPU seconds, as the kernel counted them.
        peak_memory (`int`):
            Largest resident set in bytes.
        error (`str`, *optional*):
            Name of the exception's type if the program itself failed.
    """

    status: Status
    values: tuple[Value, ...]
    seconds: float
    peak_memory: int
    error: str | None = None
