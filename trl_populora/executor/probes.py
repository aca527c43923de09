"""Self-test of a fork server: children try what a child must not be able to do.

An isolation level is reported only if this test has shown, in this process, that the filter works.
"""

import ctypes
import errno
import os
from _collections_abc import Callable
from _signal import SIGSYS  # pyright: ignore[reportMissingImports]
from _socket import AF_UNIX, SOCK_STREAM, socket
from resource import RLIMIT_AS

from . import child
from .confine import Filter, at_most


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_PROT_READ_EXEC, _MAP_PRIVATE_ANONYMOUS = 5, 0x22
_X32_GETPID = 0x40000000 + 39


def filter_holds(seccomp: Filter, machine: str) -> bool:
    """Whether every attempt of a child under the filter fails, in the way in which the filter makes it fail."""
    fatal = [lambda: _libc.ptrace(0, 0, 0, 0)]
    if machine == "x86_64":
        fatal.append(lambda: _libc.syscall(ctypes.c_long(_X32_GETPID)))
    return _outcome(seccomp, _refusals) == 0 and all(_outcome(seccomp, attempt) == -SIGSYS for attempt in fatal)


def _refusals() -> int:
    attempts = (
        os.fork,
        lambda: os.open("/", os.O_RDONLY),
        lambda: socket(AF_UNIX, SOCK_STREAM),
        lambda: os.kill(os.getpid(), 0),
        lambda: os.sched_getaffinity(0),
        lambda: os.write(1, b"x"),
        _map_code,
    )
    for number, attempt in enumerate(attempts, start=1):
        try:
            attempt()
        except OSError as error:
            if error.errno == errno.EPERM:
                continue
        return number
    return 0


def _map_code() -> None:
    address = _libc.mmap(None, ctypes.c_size_t(4096), _PROT_READ_EXEC, _MAP_PRIVATE_ANONYMOUS, -1, ctypes.c_long(0))
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")


def _outcome(seccomp: Filter, attempt: Callable[[], int | None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            child.lock(seccomp, cpu_seconds=1.0, wall_seconds=2.0, memory_bytes=at_most(RLIMIT_AS, 1 << 29))
            os._exit(attempt() or 0)
        finally:
            os._exit(child.CONFINEMENT_FAILED)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
