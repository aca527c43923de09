"""What the kernel is asked to forbid: once for a fork server, and once more for each child.

Runs inside the fork server, by ctypes and without any wrapper module, because every page that a child touches is
copied for it. Each function says whether it is required or best effort; `zygote.py` decides the order.
"""

import ctypes
import os
import resource
import select
from _signal import SIGKILL, SIGPROF  # pyright: ignore[reportMissingImports]

from . import syscalls


NOBODY = 65534

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long

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
_TIMER_CALLS = {"x86_64": (222, 223), "aarch64": (107, 110)}.get(os.uname().machine)  # create, settime
_CLOCK_PROCESS_CPUTIME_ID = 2
_SIGEVENT = (ctypes.c_int * 16)(0, 0, SIGPROF)  # value, signal, SIGEV_SIGNAL
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522


def drop_user() -> None:
    """Leave uid 0 for good; required unless the process has no capability anyway. Raises `PermissionError`."""
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
    """Move into new namespaces, in a new process that is pid 1 there. Best effort; returns whether it worked.

    The old process stays behind to wait for the new one, and never returns.
    """
    uid, gid, parent = os.geteuid(), os.getegid(), os.getppid()
    if _libc.unshare(sum(_CLONE_FLAGS.values())) != 0:
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        _write_file(f"/proc/self/{name}", text)
    pid = os.fork()
    if pid == 0:
        # Two servers with the same count of jobs would otherwise show their programs the same pid.
        _write_file("/proc/sys/kernel/ns_last_pid", str(1000 + int.from_bytes(os.urandom(2), "little") % 20000))
        return True
    os.close(0)  # only the server itself may hold the control channel
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    while not poll.poll(1000) and os.getppid() == parent:
        pass
    os._exit(0)  # the kernel then kills what is left of the namespace, see `harden`


def harden(machine: str) -> None:
    """No new privileges, no capability, no tracing, no core file, few descriptors; dies with its parent."""
    _write_file("/proc/self/oom_score_adj", "1000")
    _drop_capabilities(machine)
    if _prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise PermissionError("the kernel refuses PR_SET_NO_NEW_PRIVS")
    _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    for name, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NOFILE, 64)):
        resource.setrlimit(name, (value, value))


def die_with_parent() -> None:
    """Be killed when the parent process ends. To be called where the parent has one thread only."""
    _prctl(_PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)


def restrict_files() -> bool:
    """Landlock: no file, no TCP, no signal or abstract socket beyond this domain. Best effort; True if it holds."""
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
        """Required: raises `PermissionError` if the kernel does not take the filter."""
        if _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, self._address, 0, 0) != 0:
            raise PermissionError("the kernel refuses the seccomp filter")


def limit_child(cpu_seconds: float, memory_bytes: int) -> None:
    """Hard limits of one child; required. The timers in `child.py` are finer than the CPU limit here."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    seconds = int(2 * cpu_seconds) + 2  # the same coarse clock as `setitimer`
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def start_cpu_timer(seconds: float) -> bool:
    """Have the kernel send `SIGPROF` after this much CPU time. Best effort: False if there is no such timer.

    Unlike `setitimer`, whose clock counts whole ticks and runs fast on a busy machine, this clock is exact.
    """
    if _TIMER_CALLS is None:
        return False
    timer = ctypes.c_int()
    when = (ctypes.c_long * 4)(0, 0, int(seconds), int(seconds % 1 * 1e9))
    create, settime = _TIMER_CALLS
    if _syscall(create, _CLOCK_PROCESS_CPUTIME_ID, _SIGEVENT, ctypes.byref(timer)) != 0:
        return False
    return _syscall(settime, timer, 0, when, None) == 0


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
