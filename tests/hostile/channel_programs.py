"""Programs that forge, cut or flood what travels on the result channel; and those that once got further than that."""

from programs import HELPERS, MACHINE


def forged(payload: str, *, more: str = "") -> str:
    """A program that reports `payload` as its result, and ends."""
    return HELPERS + f"def f():\n frame(b'R', {payload}); frame(b'Z'); {more}os._exit(0)"


CHANNEL = {
    "header without a body": ("import os\ndef f():\n os.write(3, b'R\\x05')\n os._exit(0)", {"no_result"}),
    "nothing of a header": ("import os\ndef f():\n os.write(3, b'')\n os._exit(0)", {"no_result"}),
    "cut short, then killed": (
        HELPERS + "def f():\n os.write(3, b'R\\x09\\0\\0\\0v')\n ctypes.string_at(0)",
        {"killed"},
    ),
    "cut short, then silence": (
        HELPERS
        + "import _thread\ndef f():\n os.write(3, b'R\\x09\\0\\0\\0v')\n a = _thread.allocate_lock(); a.acquire(); a.acquire()",
        {"wall_timeout"},
    ),
    "swallows what follows": (
        HELPERS + "def f():\n os.write(3, b'R\\x12\\0\\0\\0vb14:')\n return 1",
        {"no_result", "protocol_violation"},
    ),
    "byte by byte": (
        HELPERS
        + "def f():\n for byte in b'R\\x04\\0\\0\\0vi5;Z\\0\\0\\0\\0': os.write(3, bytes([byte]))\n os._exit(0)",
        {"ok 5"},
    ),
    "length of zero": (HELPERS + "def f():\n frame(b'R'); frame(b'Z'); os._exit(0)", {"protocol_violation"}),
    "length just above": (
        "import os\ndef f():\n os.write(3, b'R' + (65537 + 129).to_bytes(4, 'little'))\n os._exit(0)",
        {"protocol_violation"},
    ),
    "flood of empty frames": (
        HELPERS + "def f():\n while True: os.write(3, bytes(5000))",
        {"output_limit", "protocol_violation"},
    ),
    "results out of order": (HELPERS + "frame(b'R', b'vi1;')\ndef f(): return 1", {"protocol_violation"}),
    "failure and result": (HELPERS + "frame(b'X', b'eA')\ndef f(): return 1", {"protocol_violation"}),
    "failure after the start": (HELPERS + "def f():\n frame(b'X', b'eA'); os._exit(0)", {"protocol_violation"}),
    "failure of a compiler": (HELPERS + "frame(b'C', b'MemoryError'); os._exit(0)", {"protocol_violation"}),
    "failure with no kind": (HELPERS + "frame(b'X'); os._exit(0)", {"protocol_violation"}),
    "result of a failure, forged": (forged("b'mForged'"), {"memory Forged"}),
    "result not plain, forged": (forged("b'uanything'"), {"unplain anything"}),
    "control characters in a name": (forged("b'e\\x1b[31m\\r\\n\\xff'"), {"exception ?[31m???"}),
    "finished, then crashes": (forged("b'vi1;'", more="ctypes.string_at(0); "), {"ok 1"}),
    "finished, then a forbidden call": (
        forged("b'vi1;'", more=f"call({[101, 117][MACHINE]}); "),
        {"ok 1"},
    ),
    "claims to be the infrastructure": (forged("b'einfra_error'", more="os._exit(71); "), {"exception infra_error"}),
}
CHANNEL |= {
    f"forged bytes {number}": (forged(f"b'v' + {data!r}"), {"protocol_violation"})
    for number, data in enumerate(
        (
            b"i-0;", b"i+1;", b"i 1;", b"i1_0;", b"iA;", b"i;", b"i1", b"i0x1;", b"i" + b"f" * 3600 + b";",
            b"s-1:", b"s 1:a", b"s1_0:aaaaaaaaaa", b"s01:a", b"s2:a", b"s99999999999999999999:", b"s1:\xff",
            b"s3:\xed\xa0", b"s2:\xc0\x80", b"b1:", b"f\x7f\xf8\0\0\0\0\0\1", b"f\xff\xf8\0\0\0\0\0\0", b"f123",
            b"c" + bytes(15), b"[", b"]", b"[)", b"(]", b"{i1;}", b"{N", b"<>>", b"<i1;i1;>", b"<i2;i1;>",
            b"<[]>", b"{{}N}", b"{<>N}", b"|<>>", b"<Ti1;>", b"{Fi0;i0;i0;}", b"<f" + bytes(8) + b"i0;>",
            b"[" * 61 + b"]" * 61, b"N ", b"n", b"\0", b"TT", b"cos\nsystem\n", b"\x80\x04N.", b"\xe3\0\0\0",
        )
    )
}  # fmt: skip

REGRESSIONS = {  # what once got further than it should
    "clock of another process": (
        HELPERS + "import time\ndef f(): return refused(time.clock_gettime_ns, (~1 << 3) | 2)",
        {"ok 'EPERM'", "ok 'EINVAL'"},
    ),
    "keys with a hash of their own": (
        "class A:\n armed = False\n def __hash__(self):\n  while A.armed: pass\n  return 5\ndef f():\n keys = {A(): 0 for _ in range(200)}\n A.armed = True\n return keys",
        {"unplain type A is not plain"},
    ),
    "swallows the end": (
        HELPERS + "def f():\n frame(b'R', b'vi1;')\n os.write(3, b'Z\\x0e\\0\\0\\0')\n return 1",
        {"protocol_violation"},
    ),
    "end with a payload": (
        HELPERS + "def f():\n frame(b'R', b'vi1;'); frame(b'Z', b'junk'); os._exit(0)",
        {"protocol_violation"},
    ),
    "start with a payload": (
        HELPERS + "frame(b'F', b'junk'); frame(b'R', b'vi1;'); frame(b'Z'); os._exit(0)",
        {"protocol_violation"},
    ),
    # A frame as the kernel leaves it for a signal handler, with all signals blocked: those of the time limits, too.
    "forged signal frame": (
        HELPERS
        + """
def f():
    python = ctypes.PyDLL(None)
    text = ctypes.create_string_buffer(b"while True: pass")
    stack = ctypes.create_string_buffer(1 << 20)
    words = [0] * 60
    for offset, value in (
        (24, 2),  # no alternate stack
        (40 + 8 * 8, ctypes.addressof(text)),
        (40 + 15 * 8, ((ctypes.addressof(stack) + (1 << 20) - 4096) & -16) - 8),
        (40 + 16 * 8, ctypes.cast(python.PyRun_SimpleString, ctypes.c_void_p).value),
        (176, 0x202),
        (184, 0x2b << 48 | 0x33),
        (296, (1 << 64) - 1),
    ):
        words[offset // 8 - 1] = value
    python.syscall.restype = ctypes.c_long
    return python.syscall(*map(ctypes.c_ulong, [15, 0, 0, 0, 0, 0, *words]))
"""
        if MACHINE == 0
        else HELPERS + "def f(): return call(139)",
        {"killed", "ok -1", "ok 'EPERM'"},
    ),
}

CATEGORIES = {"channel": CHANNEL, "regressions": REGRESSIONS}
