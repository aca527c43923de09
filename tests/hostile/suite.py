"""What the tests of hostile programs share: all cases, what programs may import here, and how an outcome is written.

Standard library only, so that it also runs in an interpreter that has nothing installed.
"""

import os
import signal
from pathlib import Path

import channel_programs
import code_programs
import determinism_programs
import interpreter_programs
import kernel_programs
import native_programs
import programs
import relaxed_programs
import value_programs

from trl_populora.executor import Job, Limits, Status
from trl_populora.executor.executor import MODULES

RAW = (
    "os",
    "ctypes",
    "socket",
    "subprocess",
    "multiprocessing",
    "threading",
    "signal",
    "resource",
    "mmap",
    "select",
    "gc",
    "sys",
    "builtins",
    "atexit",
    "uuid",
    "pickle",
    "importlib.machinery",
    "weakref",
    "_thread",
    "_posixshmem",
    "errno",
    "encodings.idna",
    "multiprocessing.popen_fork",
    "_multiprocessing",
    "fcntl",
    "marshal",
    "codecs",
)
INTERNAL = ("_testcapi", "_xxsubinterpreters")  # only some builds of the interpreter have these
CATEGORIES = (
    programs.CATEGORIES
    | interpreter_programs.CATEGORIES
    | code_programs.CATEGORIES
    | kernel_programs.CATEGORIES
    | native_programs.CATEGORIES
    | value_programs.CATEGORIES
    | channel_programs.CATEGORIES
    | relaxed_programs.CATEGORIES
)
DETERMINISM = programs.DETERMINISM | determinism_programs.CASES | relaxed_programs.CASES
SLOWER = float(os.environ.get("HOSTILE_SLOWER", "1"))  # than usual: an emulated machine, in `other_kernel.sh`
LIMITS = Limits(cpu_seconds=0.15 * SLOWER, wall_seconds=5.0 * SLOWER, memory_mb=256)
WAITS = Limits(cpu_seconds=0.15 * SLOWER, wall_seconds=0.3 * SLOWER, memory_mb=256)  # of those that may wait for ever
NORMAL = Job("import math\ndef f(x): return math.isqrt(x) + len('abc'), sorted({3, 1, 2}), 'SECRET'", ((49,),))
NORMAL_VALUE = (10, [1, 2, 3], "SECRET")


def outcome(execution, number=0):
    """What `wanted` is compared with; `number` is the signal that ended the process, if that is known."""
    status, error = execution.status, execution.error
    if execution.values:
        error = execution.values[0].error
        if status is Status.OK:
            return f"ok {execution.values[0].value!r}"
    if status is Status.KILLED:
        error = signal.Signals(number).name if number else None
    return f"{status.value} {error}" if error else status.value


def allowed(seen, wanted):
    return seen in wanted or seen.split(" ")[0] in wanted


def job(program, wanted, header=""):
    """The job of a case. `header` defines the names `CANARY` and `PORT`, which some programs use."""
    needs = "CANARY" in program or "PORT" in program
    return Job(header + program if needs else program, ((),), WAITS if "wall_timeout" in wanted else None)


def importable(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def descendants(pid):
    """All processes below one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(entry.joinpath("stat").read_text().rsplit(") ", 1)[1].split()[1])
            except OSError:
                continue
    todo, found = [pid], []
    while todo:
        below = [child for child, parent in parents.items() if parent == todo[-1]]
        todo.pop()
        todo += below
        found += below
    return found


MODULES_HERE = MODULES + RAW + tuple(filter(importable, INTERNAL))
