"""Confinement by the kernel: some limits are set once for a fork server, the others in each child.

This runs inside the fork server. It calls the kernel by ctypes, without wrapper modules, because every page of memory
that a child changes is copied for it. Each docstring says whether a measure is required or best effort. `zygote.py`
decides the order.
"""

import ctypes
import os
import select
from _signal import SIGKILL, SIGPROF  # pyright: ignore[reportMissingImports]
from resource import (
    RLIM_INFINITY,
    RLIMIT_AS,
    RLIMIT_CORE,
    RLIMIT_CPU,
    RLIMIT_FSIZE,
    RLIMIT_NOFILE,
    RLIMIT_NPROC,
    getrlimit,
    setrlimit,
)

from . import syscalls


NOBODY = 65534

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_timer_call = ctypes.CDLL(None).syscall  # an object of its own, because argument types belong to the object
_timer_call.argtypes = [ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_CLONE_FLAGS = {
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "mount": 0x00020000,
    "cgroup": 0x02000000,
}
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446  # the same numbers on every architecture
_TIMER_CREATE, _TIMER_SETTIME, _TIMER_DELETE = {"x86_64": (222, 223, 226), "aarch64": (107, 110, 111)}.get(
    os.uname().machine, (-1, -1, -1)
)
_CLOCK_PROCESS_CPUTIME_ID = 2
# Made here once: making them in each child would cost it a third of a millisecond.
_sigevent = (ctypes.c_int * 16)(0, 0, SIGPROF)  # value, signal, SIGEV_SIGNAL
_timer = ctypes.c_int()
_when = (ctypes.c_long * 4)()  # struct itimerspec
_SIGEVENT_AT, _TIMER_AT, _WHEN_AT = map(ctypes.addressof, (_sigevent, _timer, _when))
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522


def drop_user() -> None:
    """Gives up uid 0 irreversibly. Required if the process has a capability. Raises `PermissionError`."""
    if os.geteuid() == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        except OSError as error:
            if _capabilities():
                raise PermissionError(
                    f"the executor runs as root and cannot become uid {NOBODY} ({error.strerror}): "
                    "start it as an ordinary user, or grant CAP_SETUID and CAP_SETGID"
                ) from None
    # A change of uid clears this flag, and a process that is not dumpable cannot write its own uid map.
    _prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def enter_namespaces() -> bool:
    """Puts processes that are forked from now on into new namespaces. Best effort; returns whether it worked."""
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(sum(_CLONE_FLAGS.values())) != 0:
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        _write_file(f"/proc/self/{name}", text)
    return True


def leave_watcher(client: int) -> None:
    """
    Continues in a new process. If there are new namespaces, it is their pid 1.

    The old process waits until the client ends, and then ends itself. The kernel then ends the new one. So the new
    process need not watch the client while it waits for a child.
    """
    try:
        handles = [os.pidfd_open(client)]
    except OSError:
        handles = []
    watcher, end = os.pipe()  # the watcher keeps `end` open as long as it lives
    pid = os.fork()
    if pid == 0:
        os.close(end)
        # Otherwise programs would have the same pid in two servers that have run the same number of jobs.
        _write_file("/proc/sys/kernel/ns_last_pid", str(1000 + int.from_bytes(os.urandom(2), "little") % 20000))
        die_with_parent()
        if select.select([watcher], [], [], 0)[0]:
            os._exit(1)  # it was killed before this process asked to die with it
        for descriptor in (watcher, *handles):
            os.close(descriptor)
        return
    os.close(0)  # only the server itself may hold the control channel
    os.close(watcher)
    poll = select.poll()
    for handle in [*handles, os.pidfd_open(pid)]:
        poll.register(handle, select.POLLIN)
    while not poll.poll(500) and os.getppid() == client:
        pass
    os._exit(0)  # the kernel then kills the other process, see `die_with_parent`, and what it has forked


def harden(machine: str) -> None:
    """Forbids new privileges, capabilities, tracing and core files, and limits descriptors."""
    _write_file("/proc/self/oom_score_adj", "1000")
    _drop_capabilities(machine)
    if _prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise PermissionError("the kernel refuses PR_SET_NO_NEW_PRIVS")
    _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    for name, value in ((RLIMIT_CORE, 0), (RLIMIT_FSIZE, 0), (RLIMIT_NOFILE, 64)):
        value = at_most(name, value)
        setrlimit(name, (value, value))


def at_most(name: int, value: int) -> int:
    """The value, or this process's hard limit of that name, if it is lower."""
    hard = getrlimit(name)[1]
    return value if hard == RLIM_INFINITY else min(value, hard)


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends. The parent must have only one thread."""
    _prctl(_PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)


def restrict_files() -> bool:
    """Landlock: forbids files, TCP, and signals and abstract sockets to other processes. Best effort: `True` if it
    works."""
    abi = _syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if abi < 1:
        return False
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    rules = (ctypes.c_uint64 * 3)(files, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _syscall(_LANDLOCK_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    held = _syscall(_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0
    os.close(ruleset)
    return held


class Filter:
    """A seccomp filter, assembled once in the server and installed in each child."""

    def __init__(self, machine: str) -> None:
        code = syscalls.seccomp_filter(machine)
        self._code = ctypes.create_string_buffer(code, len(code))
        # struct sock_fprog: count, padding, address
        head = (len(code) // 8).to_bytes(8, "little") + ctypes.addressof(self._code).to_bytes(8, "little")
        self._program = ctypes.create_string_buffer(head, 16)
        self._address = ctypes.addressof(self._program)

    def install(self) -> None:
        """Installs the filter. Required; raises `PermissionError` if the kernel refuses it."""
        if _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, self._address, 0, 0) != 0:
            raise PermissionError("the kernel refuses the seccomp filter")


def limit_child(cpu_seconds: float, memory_bytes: int) -> None:
    """Hard limits of one child. Required. The timers in `child.py` are more exact than the CPU limit here."""
    setrlimit(RLIMIT_AS, (memory_bytes, memory_bytes))
    seconds = int(2 * cpu_seconds) + 2  # the same coarse clock as `setitimer`
    setrlimit(RLIMIT_CPU, (seconds, seconds))
    setrlimit(RLIMIT_NPROC, (0, 0))


def start_cpu_timer(seconds: float) -> bool:
    """Makes the kernel send `SIGPROF` after this much CPU time. Best effort; `False` if there is no such timer.

    This clock is exact. The clock of `setitimer` counts whole ticks, and runs fast on a busy machine.
    """
    nanoseconds = int(seconds * 1_000_000_000)
    _when[2] = nanoseconds // 1_000_000_000
    _when[3] = nanoseconds % 1_000_000_000
    if _timer_call(_TIMER_CREATE, _CLOCK_PROCESS_CPUTIME_ID, _SIGEVENT_AT, _TIMER_AT, 0) != 0:
        return False
    return _timer_call(_TIMER_SETTIME, _timer.value, 0, _WHEN_AT, 0) == 0


def rehearse() -> None:
    """Starts a timer and deletes it, for `child.rehearse`."""
    start_cpu_timer(3600.0)
    _timer_call(_TIMER_DELETE, _timer.value, 0, 0, 0)


def unprivileged() -> bool:
    """Whether this process is an ordinary user without capabilities, or root without any."""
    return not _capabilities()


def _capabilities() -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
    return -1


def _drop_capabilities(machine: str) -> None:
    number = _CAPSET.get(machine)
    if number is not None:
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        _syscall(number, ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def _write_file(path: str, text: str) -> bool:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        return False
    return True
