"""Programs that call the kernel and the C library directly, past everything that Python would say about it."""

from programs import FATAL as NAMED
from programs import HELPERS, MACHINE, TIMEOUT


def numbers(x86_64, aarch64):
    return [x86_64, aarch64][MACHINE]


# What compute-only programs need, apart from the table under test, and what kills.
ALLOWED = numbers(
    {1, 9, 10, 11, 12, 15, 24, 25, 28, 39, 60, 96, 186, 201, 202, 228, 229, 231, 318},
    {64, 93, 94, 98, 113, 114, 124, 139, 169, 172, 178, 214, 215, 216, 222, 226, 233, 278},
)
FATAL = numbers(
    {101, 154, 155, 161, 135, 165, 166, 167, 168, 169, 172, 173, 175, 176, 246, 248, 249, 250, 272, 298, 304, 308, 310}
    | {311, 312, 313, 320, 321, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 440, 442},
    {39, 40, 41, 51, 92, 97, 104, 105, 106, 117, 142, 217, 218, 219, 224, 225, 241, 265, 268, 270, 271, 272, 273, 280}
    | {282, 294, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 440, 442},
)
PROBES = numbers({335, 336}, set())  # uretprobe, uprobe

CALLS = {
    # Every number there is but two: new kernels handle those before any filter, and end whoever calls them.
    "all other numbers": (
        HELPERS
        + f"def f(): return {{call(n, -1, 0, 0, 0, 0, 0) for n in set(range(470)) - {ALLOWED | FATAL | PROBES}}}",
        {"ok {'EPERM'}"},
    ),
    "all other numbers on the channel": (
        HELPERS
        + f"def f(): return {{call(n, 3, 0, 0, 0, 0, 0) for n in set(range(470)) - {ALLOWED | FATAL | PROBES}}}",
        {"ok {'EPERM'}"},
    ),
    "write by other names": (
        HELPERS
        + f"def f(): return {{call(n, 3, b'x', 1, 0, 0, 0) for n in {numbers((20, 18, 296, 328, 40, 275, 276), (66, 68, 70, 287, 71, 76, 77))}}}",
        {"ok {'EPERM'}"},
    ),
    "signal calls": (
        HELPERS
        + f"def f(): return {{call(n, 0, 0, 0, 8) for n in {numbers((13, 14, 127, 128, 129, 130, 131, 282, 289, 297), (132, 133, 134, 135, 136, 137, 138, 240, 74))}}}",
        {"ok {'EPERM'}"},
    ),
    "descriptors from nothing": (
        HELPERS
        + f"def f(): return {{call(n, 0, 0, 0) for n in {numbers((22, 293, 284, 290, 283, 253, 294, 213, 291, 300, 319, 447), (59, 19, 85, 26, 20, 262, 279, 447))}}}",
        {"ok {'EPERM'}"},
    ),
    "waiting": (
        HELPERS
        + f"def f(): return {{call(n, 0, 0, 0, 0, 0) for n in {numbers((34, 35, 230, 23, 7, 270, 271, 61, 247, 232, 281), (101, 115, 72, 73, 260, 95, 22))}}}",
        {"ok {'EPERM'}"},
    ),
    "memory of the machine": (
        HELPERS
        + f"def f(): return {{call(n, 0, 4096, 0, 0, 0, 0) for n in {numbers((149, 150, 151, 27, 26, 216, 237, 238, 256, 279, 325, 329), (228, 229, 230, 232, 227, 234, 235, 237, 238, 239, 284, 288))}}}",
        {"ok {'EPERM'}"},
    ),
    "clocks of the machine": (
        HELPERS
        + f"def f(): return {{call(n, 0, 0, 0) for n in {numbers((159, 164, 227, 305, 170, 171, 163, 103, 153), (170, 171, 112, 266, 161, 162, 89, 116, 58))}}}",
        {"ok {'EPERM'}"},
    ),
    "facts about the machine": (
        HELPERS
        + f"def f(): return {{call(n, 0, 0, 0) for n in {numbers((63, 99, 98, 100, 97, 110, 102, 104, 107, 309, 204, 145), (160, 179, 165, 153, 163, 173, 174, 176, 168, 123, 120))}}}",
        {"ok {'EPERM'}"},
    ),
    "rings, tokens and new mount calls": (
        HELPERS
        + "def f(): return {call(n, 0, 0, 0) for n in (434, 435, 436, 437, 439, 441, 443, 444, 445, 446, 448, 449)}",
        {"ok {'EPERM'}"},
    ),
    "thread area": (
        HELPERS
        + f"def f(): return {{call(n, 0x1002, 0, 0) for n in {numbers((158, 205, 211, 218, 273, 274, 334, 324), (96, 99, 100, 293, 283))}}}",
        {"ok {'EPERM'}"},
    ),
    "limits": (
        HELPERS
        + f"def f(): return {{call(n, r, 0, 0, 0) for n in {numbers((97, 160, 302), (163, 164, 261))} for r in range(16)}}",
        {"ok {'EPERM'}"},
    ),
    "high half of the number": (
        HELPERS + f"def f(): return call((1 << 32) + {numbers(39, 172)}) == os.getpid()",
        {"ok True"},
    ),
    "high half of the descriptor": (
        HELPERS
        + f"def f(): return call({numbers(1, 64)}, (1 << 32) + 1, b'x', 1), call({numbers(1, 64)}, -1, b'x', 1)",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "high half of the protection": (
        HELPERS
        + f"def f(): return {{call({numbers(9, 222)}, 0, 4096, p, 0x22, -1, 0) for p in ((1 << 32) + 4, (1 << 32) + 7)}}",
        {"ok {'EPERM'}"},
    ),
    "write from nowhere": (
        HELPERS + f"def f(): return call({numbers(1, 64)}, 3, 8, 8), call({numbers(1, 64)}, 3, -4096, 8)",
        {"ok ('EFAULT', 'EFAULT')"},
    ),
    "write from nowhere, then work": (  # longer than the caller waits before it begins to read
        HELPERS
        + f"import time\ndef f():\n r = call({numbers(1, 64)}, 3, 8, 8)\n while time.process_time() < 0.05: pass\n return r",
        {"ok 'EFAULT'"},
    ),
    "write all its memory": (
        HELPERS
        + f"def f():\n b = ctypes.create_string_buffer(1 << 16)\n return call({numbers(1, 64)}, 3, ctypes.addressof(b), 1 << 40)",
        {"output_limit", "protocol_violation"},
    ),
}
CALLS |= {
    f"fatal call {number}": (HELPERS + f"def f(): return call({number}, 0, 0, 0, 0, 0, 0)", {"killed SIGSYS"})
    for number in sorted(FATAL - {numbers[MACHINE] for numbers in NAMED.values()})
}
if MACHINE == 0:
    CALLS |= {
        "uretprobe": (HELPERS + "def f(): return call(335)", {"killed", "ok 'EPERM'"}),
        "uprobe": (HELPERS + "def f(): return call(336)", {"killed", "ok 'EPERM'", "ok 'ENXIO'"}),
        "x32 calls of its own": (HELPERS + "def f(): return call(0x40000000 + 520, 0, 0, 0)", {"killed SIGSYS"}),
        "x32 mmap": (HELPERS + "def f(): return call(0x40000009, 0, 4096, 7, 0x22, -1, 0)", {"killed SIGSYS"}),
        "number of 32 bits": (HELPERS + "def f(): return call(0xFFFFFFFF)", {"killed SIGSYS"}),
        # The two bytes of `int 0x80` occur by chance in code that is mapped already.
        "the 32-bit gate": (
            HELPERS
            + """
def f():
    start = ctypes.cast(libc.syscall, ctypes.c_void_p).value - 0x40000
    found = ctypes.string_at(start, 0x80000).find(bytes([0xCD, 0x80]))
    return ctypes.CFUNCTYPE(ctypes.c_long)(start + found)() if found >= 0 else "absent"
""",
            {"killed SIGSYS", "ok 'absent'"},
        ),
        "vsyscall getcpu": (
            HELPERS
            + "def f(): return ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_void_p] * 3)(0xffffffffff600800)(None, None, None)",
            {"killed", "ok -1"},
        ),
        "vsyscall time": (
            HELPERS
            + "def f(): return ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(0xffffffffff600400)(None) > 10**9",
            {"killed", "ok True"},
        ),
    }

FUTEX, MREMAP, MADVISE, RANDOM = numbers((202, 25, 28, 318), (98, 216, 233, 278))
PLACE = "b = ctypes.create_string_buffer(1 << 16); a = (ctypes.addressof(b) + 4095) & -4096\n"

ALLOWED_CALLS = {
    "futex wait": (HELPERS + PLACE + f"def f(): return call({FUTEX}, a, 0, 0, 0, 0, 0)", {"wall_timeout"}),
    "futex with a lock of nobody": (
        HELPERS
        + PLACE
        + f"def f():\n ctypes.memmove(a, b'\\xff\\xff\\xff\\x0f', 4)\n return call({FUTEX}, a, 6, 0, 0, 0, 0)",
        {"ok 'ESRCH'", "ok 'EPERM'", "ok 'ENOSYS'"},
    ),
    "futex lock of the parent": (
        HELPERS
        + PLACE
        + f"def f():\n ctypes.memmove(a, (1).to_bytes(4, 'little'), 4)\n return call({FUTEX}, a, 6 + 128, 0, 0, 0, 0)",
        {"ok 'ESRCH'", "ok 'EPERM'", "ok 'ENOSYS'", "wall_timeout"},
    ),
    "futex of all kinds": (
        HELPERS
        + PLACE
        + f"def f():\n for op in (*range(1, 6), *range(7, 11), 12, 14, 15, 99): call({FUTEX}, a, op, 1, 1, a + 8, 0)\n return 1",
        {"ok 1", "wall_timeout"},
    ),
    "grow by remapping": (
        HELPERS + PLACE + f"def f(): return call({MREMAP}, a, 4096, 1 << 42, 1, 0)",
        {"ok 'ENOMEM'"},
    ),
    "remap over the program": (
        HELPERS
        + PLACE
        + f"def f(): return call({MREMAP}, a, 4096, 4096, 3, ctypes.cast(libc.syscall, ctypes.c_void_p).value & -4096)",
        {"ok 'EPERM'"},
    ),
    "memory at a chosen address": (
        HELPERS
        + "def f():\n libc.mmap.restype = ctypes.c_void_p\n m = libc.mmap(ctypes.c_void_p(1 << 44), ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_long(0))\n return m == 2**64 - 1 and errno.errorcode[ctypes.get_errno()]",
        {"ok 'EPERM'"},
    ),
    "double by remapping": (
        HELPERS
        + f"import mmap\ndef f():\n libc.mmap.restype = ctypes.c_void_p\n m = libc.mmap(None, ctypes.c_size_t(1 << 27), 3, 0x21, -1, ctypes.c_long(0))\n return [call({MREMAP}, m, 0, 1 << 27, 1, 0) for _ in range(8)][-1]",
        {"ok 'ENOMEM'"},
    ),
    "many mappings": (
        HELPERS
        + "def f():\n n = 0\n libc.mmap.restype = ctypes.c_void_p\n while libc.mmap(None, ctypes.c_size_t(4096), n % 2, 0x22, -1, ctypes.c_long(0)) != 2**64 - 1: n += 1\n return n < 10**6",
        {"ok True"} | TIMEOUT,
    ),
    "unmap itself": (
        HELPERS + "def f(): return libc.munmap(ctypes.c_void_p(0), ctypes.c_size_t((1 << 47) - 4096))",
        {"killed"},
    ),
    "unmap the channel's words": (
        HELPERS + PLACE + "def f():\n libc.munmap(ctypes.c_void_p(a), 4096)\n return b.raw",
        {"killed"},
    ),
    "protect all of itself": (
        HELPERS
        + f"def f():\n libc.mprotect(ctypes.c_void_p(ctypes.cast(libc.syscall, ctypes.c_void_p).value & -4096), 4096, 0)\n return call({[39, 172][MACHINE]})",
        {"killed"},
    ),
    "rewrite code": (
        HELPERS
        + "def f():\n a = ctypes.cast(libc.syscall, ctypes.c_void_p).value & -4096\n return [libc.mprotect(ctypes.c_void_p(a), 8192, p) for p in (7, 5, 6)]",
        {"ok [-1, -1, -1]"},
    ),
    "poisoned memory": (
        HELPERS + PLACE + f"def f(): return [call({MADVISE}, a, 4096, advice) for advice in (100, 101)]",
        {"ok ['EPERM', 'EPERM']", "ok ['EINVAL', 'EINVAL']"},
    ),
    "drop the heap": (
        HELPERS
        + f"def f():\n top = libc.sbrk\n top.restype = ctypes.c_void_p\n call({MADVISE}, (top(0) & -4096) - (1 << 20), 1 << 20, 4)\n return [[] for _ in range(10**5)]",
        {"killed", "unplain value too large", "ok 0", "no_result", "protocol_violation", "memory", "exception"},
    ),
    "random bytes without end": (
        HELPERS
        + f"def f():\n b = ctypes.create_string_buffer(1 << 24)\n while True: call({RANDOM}, ctypes.addressof(b), 1 << 24, 0)",
        TIMEOUT,
    ),
    "random bytes to nowhere": (HELPERS + f"def f(): return call({RANDOM}, 8, 4096, 0)", {"ok 'EFAULT'"}),
    "break pointer flood": (
        HELPERS
        + "def f():\n libc.sbrk.restype = ctypes.c_void_p\n n = 0\n while libc.sbrk(ctypes.c_ssize_t(1 << 20)) not in (None, 2**64 - 1): n += 1\n return n < 512",
        {"ok True"},
    ),
    # beside other work, it may get so little of the processor that its time runs out first
    "yielding": (HELPERS + f"def f():\n while True: call({numbers(24, 124)})", TIMEOUT | {"wall_timeout"}),
    "exit of one thread": (HELPERS + f"def f(): call({numbers(60, 93)}, 0)", {"no_result"}),
    "raw exit with the code of the fork server": (HELPERS + f"def f(): call({numbers(231, 94)}, 71)", {"no_result"}),
    "map page zero": (
        HELPERS + f"def f(): return call({numbers(9, 222)}, 0, 4096, 3, 0x32, -1, 0)",
        {"ok 'EPERM'", "ok 'EACCES'"},
    ),
    "map code that grows down": (
        HELPERS
        + f"def f(): return [call({numbers(9, 222)}, 0, 4096, p, f, -1, 0) for p in (4, 7) for f in (0x122, 0x21, 0x40022)]",
        {"ok ['EPERM', 'EPERM', 'EPERM', 'EPERM', 'EPERM', 'EPERM']"},
    ),
    "map a file as if anonymous": (
        HELPERS
        + f"def f():\n a = call({numbers(9, 222)}, 0, 4096, 1, 0x22, 3, 0)\n return ctypes.string_at(a, 4096) == bytes(4096)",
        {"ok True"},
    ),
}

CATEGORIES = {"calls": CALLS, "allowed calls": ALLOWED_CALLS}
