"""Programs that go around Python by the C library, by raw memory and by modules that wrap system calls."""

import sys

from programs import CRASH, HELPERS, MEMORY, TIMEOUT

NATIVE = {
    "libc fork": (HELPERS + "def f(): return libc.fork(), errno.errorcode[ctypes.get_errno()]", {"ok (-1, 'EPERM')"}),
    "libc vfork": (
        HELPERS + "def f(): return libc.vfork(), errno.errorcode[ctypes.get_errno()]",
        {"ok (-1, 'EPERM')"},
    ),
    "libc system": (HELPERS + "def f(): return libc.system(b'true') != 0", {"ok True"}),
    "libc execv": (
        HELPERS + "def f(): return libc.execv(b'/bin/true', None), errno.errorcode[ctypes.get_errno()]",
        {"ok (-1, 'EPERM')"},
    ),
    "libc popen": (
        HELPERS + "def f():\n libc.popen.restype = ctypes.c_void_p\n return libc.popen(b'true', b'r')",
        {"ok None"},
    ),
    "libc pthread_create": (
        HELPERS
        + "def f():\n t = ctypes.c_ulong()\n return libc.pthread_create(ctypes.byref(t), None, libc.getpid, None)",
        {"ok 1", "ok 11"},
    ),
    "libc opens": (
        HELPERS
        + "def f():\n out = []\n for a in (lambda: libc.open(b'/etc/passwd', 0), lambda: libc.openat(-100, b'/tmp', 0), lambda: libc.creat(b'/tmp/hostile', 0o777)):\n  out.append((a(), errno.errorcode[ctypes.get_errno()]))\n return out",
        {"ok [(-1, 'EPERM'), (-1, 'EPERM'), (-1, 'EPERM')]"},
    ),
    "libc fopen": (
        HELPERS + "def f():\n libc.fopen.restype = ctypes.c_void_p\n return libc.fopen(b'/tmp/hostile', b'w')",
        {"ok None"},
    ),
    "libc dlopen": (
        "import ctypes\ndef f():\n try: ctypes.CDLL('/lib/hostile.so')\n except OSError as e: return str(e).rsplit(': ')[-1]",
        {"ok 'Operation not permitted'"},
    ),
    "libc printf": (
        HELPERS + "def f(): return libc.puts(b'x' * 10**5), libc.fflush(None)",
        {"ok (-1, 0)", "ok (-1, -1)"},
    ),
    "libc kill": (
        HELPERS
        + "def f(): return [(libc.kill(p, 9), ctypes.get_errno()) for p in (1, -1, 0)] + [libc.raise_(9) if hasattr(libc, 'raise_') else getattr(libc, 'raise')(9)]",
        {"ok [(-1, 1), (-1, 1), (-1, 1), -1]"},
    ),
    "libc signal": (
        HELPERS + "def f():\n libc.signal.restype = ctypes.c_long\n return [libc.signal(n, 1) for n in (14, 27, 24)]",
        {"ok [-1, -1, -1]"},
    ),
    "libc sigprocmask": (
        HELPERS
        + "def f(): return libc.sigprocmask(0, ctypes.create_string_buffer(b'\\xff' * 128), None), ctypes.get_errno()",
        {"ok (-1, 1)"},
    ),
    "libc alarm, then wait": (
        "import ctypes, _thread\ndef f():\n ctypes.CDLL(None).alarm(0)\n a = _thread.allocate_lock(); a.acquire(); a.acquire()",
        {"wall_timeout"},
    ),
    "libc socket": (
        HELPERS
        + "def f(): return {(libc.socket(a, t, 0), ctypes.get_errno()) for a in (1, 2, 10, 16, 17, 40) for t in (1, 2, 3)}",
        {"ok {(-1, 1)}"},
    ),
    "libc shutdown": (HELPERS + "def f(): return libc.shutdown(3, 2), ctypes.get_errno()", {"ok (-1, 1)"}),
    "libc close": (HELPERS + "def f(): return libc.close(3), ctypes.get_errno(), libc.dup2(3, 1)", {"ok (-1, 1, -1)"}),
    "libc prctl": (
        HELPERS
        + "def f(): return [libc.prctl(o, a, 0, 0, 0) for o, a in ((1, 0), (4, 1), (22, 0), (15, 0), (59, 0))]",
        {"ok [-1, -1, -1, -1, -1]"},
    ),
    "libc malloc": (
        HELPERS
        + "def f():\n libc.malloc.restype = ctypes.c_void_p\n return [libc.malloc(ctypes.c_size_t(n)) for n in (1 << 40, (1 << 63) - 1)]",
        {"ok [None, None]"},
    ),
    "libc free of nonsense": (HELPERS + "def f(): libc.free(ctypes.c_void_p(24))", {"killed"}),
    "libc setenv": (HELPERS + "def f(): return libc.setenv(b'HOSTILE_CHANGED', b'1', 1)", {"ok 0"}),
    "libc longjmp": (
        HELPERS + "def f(): libc.longjmp(ctypes.create_string_buffer(b'\\xff' * 200, 200), 1)",
        {"killed"},
    ),
    "libc stack of strings": (
        HELPERS
        + """
def f():
    here, text = ctypes.c_void_p.in_dll(libc, "program_invocation_name").value, b""
    while not text.endswith(bytes(8)):
        text += ctypes.string_at(here + len(text), 1)
    names = {word.split(b"=")[0] for word in text.split(bytes(1)) if b"=" in word}
    return names - {b"PYTHONHASHSEED", b"LD_BIND_NOW", b"LD_LIBRARY_PATH"}
""",
        {"ok set()"},
    ),
    "text of other jobs on the heap": (
        HELPERS
        + """
import re
def f():
    libc.sbrk.restype = ctypes.c_void_p
    top, size = libc.sbrk(0), 1 << 19
    return len(re.findall(rb"isq[r]t\\(x\\) \\+ l[e]n", ctypes.string_at(top - size, size)))
""",
        {"ok 0"},
    ),
    "python fatal error": (HELPERS + "def f(): ctypes.pythonapi._Py_FatalErrorFunc(b'f', b'fatal')", {"killed"}),
    "python finalize": (
        HELPERS + "def f():\n ctypes.pythonapi.Py_FinalizeEx()\n return 1",
        CRASH | {"no_result", "ok"},
    ),
    "python exit": (HELPERS + "def f(): ctypes.pythonapi.Py_Exit(0)", {"no_result"}),
    "python exit handler": (
        HELPERS + "c = ctypes.CDLL(None)\ndef f(): return ctypes.pythonapi.Py_AtExit(c.abort)",
        {"ok 0", "exception ArgumentError"},
    ),
    "python without a thread state": (
        HELPERS + "def f():\n ctypes.pythonapi.PyEval_SaveThread()\n ctypes.pythonapi.PyEval_SaveThread()",
        CRASH,
    ),
    "exception from nowhere": (
        HELPERS
        + "import _thread\ndef f():\n ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(_thread.get_ident()), ctypes.py_object(KeyboardInterrupt))\n for _ in range(10**5): pass",
        {"base_exception KeyboardInterrupt"},
    ),
    "interrupt from nowhere": (
        HELPERS + "def f():\n ctypes.pythonapi.PyErr_SetInterruptEx(2)\n for _ in range(10**5): pass\n return 1",
        {"base_exception KeyboardInterrupt", "ok 1", "exception KeyboardInterrupt"},
    ),
    "fewer references than there are": (
        HELPERS + "def f():\n while True: ctypes.pythonapi.Py_DecRef(ctypes.py_object(None))",
        {"killed"} if sys.version_info < (3, 12) else TIMEOUT,  # later, nothing takes references from `None`
    ),
    "two is three": (
        HELPERS + "def f():\n ctypes.c_int.from_address(id(2) + 24).value = 3\n return 2",
        {"ok 3", "no_result", "protocol_violation", *CRASH},
    ),
    "an object made of nothing": (
        HELPERS
        + "def f():\n b = ctypes.create_string_buffer(b'\\x08' * 64)\n return ctypes.cast(ctypes.c_void_p(ctypes.addressof(b)), ctypes.py_object).value + 1",
        {"killed"},
    ),
    "closures": (
        HELPERS + "def f():\n c = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 5)\n return c()",
        {"ok 5", "killed", *MEMORY},
    ),
    "callback into sort": (
        HELPERS
        + "def f():\n t = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)\n def compare(a, b):\n  while True: pass\n libc.qsort((ctypes.c_int * 9)(), 9, 4, t(compare))",
        TIMEOUT | {"killed", *MEMORY},
    ),
    "fcntl": (
        HELPERS
        + "import fcntl\ndef f(): return [refused(fcntl.fcntl, 3, c, 0) for c in (1, 2, 3, 4, 8, 1030, 1031)] + [refused(fcntl.ioctl, 3, 0x541B, b' ' * 8), refused(fcntl.flock, 3, 2)]",
        {"ok " + repr(["EPERM"] * 9)},
    ),
    "mmap of the channel": (HELPERS + "import mmap\ndef f(): return refused(mmap.mmap, 3, 10)", {"ok 'EPERM'"}),
    "open the channel": (
        HELPERS
        + "import io\ndef f():\n file = io.FileIO(3, 'r+')\n return [refused(a) for a in (lambda: file.read(1), lambda: file.truncate(0), lambda: file.seek(0), file.close, lambda: io.open_code('/etc/passwd'))]",
        {"ok ['EPERM', 'EPERM', 'EPERM', 'EPERM', 'EPERM']"},
    ),
    "pipes, pairs and terminals": (
        HELPERS
        + "def f(): return {refused(a) for a in (os.pipe, os.openpty, os.forkpty, os.epoll if hasattr(os, 'epoll') else os.pipe, lambda: os.eventfd(0), lambda: os.pidfd_open(os.getpid()), lambda: os.open('/', 0))}",
        {"ok {'EPERM'}", "ok {'EACCES', 'EPERM'}"},
    ),
    "epoll and poll": (
        HELPERS + "import select\ndef f(): return refused(select.epoll), refused(lambda: select.poll().poll(1))",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "named semaphore": (
        HELPERS
        + "import _multiprocessing\ndef f(): return refused(_multiprocessing.SemLock, 0, 1, 1, '/hostile', False)",
        {"ok 'EPERM'"},
    ),
    "fork_exec": (
        HELPERS
        + "import subprocess\ndef f(): return refused(subprocess.Popen, ['/bin/true']), refused(lambda: subprocess.Popen(['true'], preexec_fn=print, close_fds=False))",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "usage and limits": (
        HELPERS
        + "import resource\ndef f(): return [refused(resource.getrusage, 0), refused(resource.getrlimit, 7), refused(resource.prlimit, 0, 7), refused(os.getpriority, 0, 0), refused(os.nice, 1)]",
        {"ok ['EPERM', 'EPERM', 'EPERM', 'EPERM', 'EPERM']"},
    ),
    "raise a signal": (
        HELPERS + "import signal\ndef f(): return [refused(signal.raise_signal, s) for s in (9, 11, 14, 15, 27)]",
        {"ok " + repr(["EPERM"] * 5)},
    ),
    "signal masks and waits": (
        HELPERS
        + "import signal\ndef f(): return [refused(signal.sigwait, [14]), refused(signal.sigtimedwait, [14], 0), refused(signal.sigpending), refused(signal.siginterrupt, 14, True), refused(lambda: signal.set_wakeup_fd(3))]",
        {"ok ['EPERM', 'EPERM', 'EPERM', 'EPERM', 'EPERM']"},
    ),
}

CATEGORIES = {"native": NATIVE}
