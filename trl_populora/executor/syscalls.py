"""The system calls that a child may make, as a seccomp filter in BPF (the kernel's language for filters).

A child may use what computation needs: memory, locks, clocks, random numbers, writing to the result channel, and exit.
It cannot open or read files, create processes or threads, send signals, connect, map code or change a limit. Calls
that no harmless Python program makes kill the process. Every other call fails with EPERM, so that a library that tries
one gets an exception.
"""

import struct

from .frames import CHANNEL


# name -> (x86_64, aarch64); None where the architecture has no such call.
_ALLOWED = {
    "exit": (60, 93),
    "exit_group": (231, 94),
    "brk": (12, 214),
    "munmap": (11, 215),
    "madvise": (28, 233),
    "futex": (202, 98),
    "sched_yield": (24, 124),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "getrandom": (318, 278),
    "getpid": (39, 172),
    "gettid": (186, 178),
}
_CHECKED = {
    "write": (1, 64),
    "mmap": (9, 222),
    "mremap": (25, 216),
    "mprotect": (10, 226),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
}
_FATAL = {
    "rt_sigreturn": (15, 139),  # with a false stack frame it could block the signals of the timers
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "open_by_handle_at": (304, 265),
    "kcmp": (312, 272),
}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH constant
_X32 = 0x40000000
_MAP_ANONYMOUS, _PROT_EXEC, _MREMAP_MAYMOVE = 0x20, 0x4, 0x1

# struct sock_filter: code, jump if true, jump if false, operand
_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; the low word of an argument comes first
_ALLOW = [(_RETURN, 0, 0, 0x7FFF0000)]
_DENY = [(_RETURN, 0, 0, 0x00050000 | 1)]  # EPERM
_KILL = [(_RETURN, 0, 0, 0x80000000)]  # the whole process


def supported(machine: str) -> bool:
    """Whether there is a table for this machine, as `os.uname().machine` names it."""
    return machine in _MACHINES


def seccomp_filter(machine: str) -> bytes:
    """
    The filter for a machine.

    Args:
        machine (`str`):
            `"x86_64"` or `"aarch64"`.

    Returns:
        `bytes`: An array of `struct sock_filter`, eight bytes each.
    """
    column, arch = _MACHINES[machine]
    actions = {}
    for table, action in ((_ALLOWED, _ALLOW), (_FATAL, _KILL)):
        actions.update({numbers[column]: action for numbers in table.values() if numbers[column] is not None})
    actions[_CHECKED["write"][column]] = [*_argument(0), (_JEQ, 0, 1, CHANNEL), *_ALLOW, *_DENY]
    actions[_CHECKED["mprotect"][column]] = [*_argument(2), (_JSET, 1, 0, _PROT_EXEC), *_ALLOW, *_DENY]
    # Clocks of the machine and of this process, not those that name another process by a negative number.
    for clock in ("clock_gettime", "clock_getres"):
        actions[_CHECKED[clock][column]] = [*_argument(0), (_JGE, 1, 0, 16), *_ALLOW, *_DENY]
    # Anonymous memory only, never executable, and where the kernel wants it. Pages far apart need page tables, which
    # no limit counts.
    actions[_CHECKED["mremap"][column]] = [
        *_argument(3),
        (_JSET, 1, 0, ~_MREMAP_MAYMOVE & 0xFFFFFFFF),
        *_ALLOW,
        *_DENY,
    ]
    actions[_CHECKED["mmap"][column]] = [
        *_argument(0),
        (_JEQ, 0, 7, 0),
        *_argument(0, high=1),
        (_JEQ, 0, 5, 0),
        *_argument(3),
        (_JSET, 0, 3, _MAP_ANONYMOUS),
        *_argument(2),
        (_JSET, 1, 0, _PROT_EXEC),
        *_ALLOW,
        *_DENY,
    ]
    # Intervals of numbers, each with one action. A search tree over them takes fewer steps than a list of comparisons.
    # This matters, because the kernel runs the filter for every number when it is installed.
    intervals = [(0, _DENY)]
    for number in sorted(actions):
        intervals += [(number, actions[number]), (number + 1, _DENY)]
    if machine == "x86_64":
        intervals.append((_X32, _KILL))  # the x32 ABI, which has other numbers
    program = [(_LOAD, 0, 0, _ARCH), (_JEQ, 1, 0, arch), *_KILL, (_LOAD, 0, 0, _NUMBER), *_tree(_merge(intervals))]
    return b"".join([struct.pack("<HBBI", *instruction) for instruction in program])


def _argument(index: int, high: int = 0) -> list:
    """Loads the low word of an argument, or the high one."""
    return [(_LOAD, 0, 0, _ARGUMENTS + 8 * index + 4 * high)]


def _merge(intervals: list) -> list:
    merged = []
    for position, (start, action) in enumerate(intervals):
        shadowed = position + 1 < len(intervals) and intervals[position + 1][0] == start
        if not shadowed and not (merged and merged[-1][1] == action):
            merged.append((start, action))
    return merged


def _tree(intervals: list) -> list:
    if len(intervals) == 1:
        return intervals[0][1]
    middle = len(intervals) // 2
    low, high = _tree(intervals[:middle]), _tree(intervals[middle:])
    return [(_JGE, len(low), 0, intervals[middle][0]), *low, *high]
