"""Programs written to misbehave, by category, each with every outcome that is allowed.

An outcome is a status, a status with the name of the exception (`exception PermissionError`), or `ok` with the value.
The programs may import `os`, `ctypes`, `socket` and more: the tests assume that the language protects nothing.
"""

import platform
import signal
import sys

MACHINE = 0 if platform.machine() == "x86_64" else 1
with open(sys.executable, "rb") as file:
    STATIC = file.read(17)[16] == 2
"""Whether the interpreter has the same addresses in every process: its file says that it cannot be moved."""

HELPERS = """
import os, sys, ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[a if hasattr(a, "contents") or isinstance(a, (bytes, ctypes.Array)) else ctypes.c_long(a) for a in arguments])
    return errno.errorcode[ctypes.get_errno()] if result == -1 else result
def refused(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
def frame(tag, payload=b""):
    os.write(3, tag + len(payload).to_bytes(4, "little") + payload)
"""

TIMEOUT = {"cpu_timeout"}
CRASH = {"killed", "cpu_timeout"}
MEMORY = {"memory", "killed", "cpu_timeout"}
EPERM = {"exception PermissionError"}
COMPILER = {"syntax_error", "compile_failed", "killed", "memory", "cpu_timeout"}

CPU = {
    "endless loop": ("def f():\n while True: pass", TIMEOUT),
    "endless loop at the top": ("while True: pass", TIMEOUT),
    "infinite generator": ("import itertools\ndef f(): return sum(itertools.count())", TIMEOUT),
    "loop that catches everything": (
        "def f():\n while True:\n  try:\n   while True: pass\n  except BaseException: pass",
        TIMEOUT,
    ),
    "uninterruptible power": ("def f(): return 3 ** 10 ** 9 % 7", CRASH | MEMORY),
    "factorial": ("import math\ndef f(): return math.factorial(10 ** 7) % 7", TIMEOUT),
    "catastrophic regex": ("import re\ndef f(): return bool(re.match(r'(a+)+$', 'a' * 60 + 'b'))", TIMEOUT),
    "sort of much": ("import random\ndef f(): return sorted(random.random() for _ in range(10**7))", MEMORY),
    "text growing in a loop": ("def f():\n s = 'a'\n while True: s = (s * 2)[:10**6]", TIMEOUT),
    "sleep": ("import time\ndef f(): time.sleep(1000)", EPERM),
    "select": ("import select\ndef f(): select.select([], [], [], 1000)", EPERM),
    "deadlock": ("import _thread\ndef f():\n a = _thread.allocate_lock(); a.acquire(); a.acquire()", {"wall_timeout"}),
    "loop in __del__ after the return": (
        "class A:\n def __del__(self):\n  while True: pass\nkeep = []\ndef f():\n a = A()\n return 1",
        TIMEOUT,
    ),
    "loop in __del__ of the result": (
        "class A:\n def __del__(self):\n  while True: pass\ndef f(): return A()",
        TIMEOUT,
    ),
    "huge range": ("def f(): return sum(range(10 ** 18))", TIMEOUT),
    "huge containment": ("def f(): return -1.5 in range(10 ** 18)", TIMEOUT),
    "compile bomb by size": ("x = 0\n" * 10000 + "def f(): return x", {"ok 0", "cpu_timeout"}),
    "timer taken away": (
        "import signal\nsignal.setitimer(signal.ITIMER_PROF, 0)\ndef f():\n while True: pass",
        {f"exception {signal.ItimerError.__name__}"},
    ),
    "timer signal ignored": (
        "import signal\nsignal.signal(signal.SIGPROF, signal.SIG_IGN)\ndef f():\n while True: pass",
        EPERM,
    ),
    "timer signal blocked": (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])\ndef f():\n while True: pass",
        EPERM,
    ),
}

MEM = {
    "list bomb": ("def f(): return len([0] * 10 ** 9)", MEMORY),
    "doubling": ("def f():\n x = [0]\n while True: x += x", MEMORY),
    "doubling, errors swallowed": (
        "def f():\n x = [0]\n while True:\n  try: x += x\n  except MemoryError: pass",
        CRASH,
    ),
    "bytes bomb": ("def f(): return len(bytes(10 ** 12))", MEMORY),
    "nested dict": ("def f():\n d = {}\n for i in range(10**9): d = {i: d, -i: [d] * 1000}", MEMORY),
    "format width": ("def f(): return len('%2147483000d' % 1)", MEMORY),
    "format spec": ("def f(): return len(f'{1:>2147483000}')", MEMORY),
    "shift": ("def f(): return (1 << 10 ** 11).bit_length()", MEMORY | {"exception OverflowError"}),
    "constant folded": ("def f(): return len('a' * 10 ** 12)", MEMORY | {"compile_failed"}),
    "map a terabyte": (HELPERS + "import mmap\ndef f(): return refused(mmap.mmap, -1, 10 ** 12)", {"ok 'ENOMEM'"}),
    "map shared memory": (
        HELPERS
        + "import mmap\ndef f():\n keep = []\n try:\n  while True: keep.append(mmap.mmap(-1, 1 << 24))\n except OSError as e: return errno.errorcode[e.errno]",
        {"ok 'ENOMEM'", "ok 'EPERM'"},
    ),
    "break pointer": (
        HELPERS
        + "def f():\n libc.sbrk.restype = ctypes.c_void_p\n return libc.sbrk(ctypes.c_ssize_t(1 << 40)) in (None, 2**64 - 1)",
        {"ok True"},
    ),
    "str bomb in a set": ("def f(): return {str(i) * 10**6 for i in range(10**6)}", MEMORY),
}

STACK = {
    "infinite recursion": ("def f(): return f()", {"exception RecursionError"}),
    "recursion, limit raised": ("import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()", CRASH | MEMORY),
    "recursion in C": (
        "def f():\n x = []\n for _ in range(10**6): x = [x]\n return repr(x)",
        CRASH | MEMORY | {"exception RecursionError"},
    ),
    "recursion in C, limit raised": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f():\n x = []\n for _ in range(10**6): x = [x]\n return repr(x)",
        CRASH | MEMORY,
    ),
    "deep result": ("def f():\n x = []\n for _ in range(10**5): x = [x]\n return x", {"unplain nested too deeply"}),
    "result that holds itself": ("def f():\n x = []\n x.append(x)\n return x", {"unplain nested too deeply"}),
    "dict that holds itself": ("def f():\n x = {}\n x[0] = x\n return x", {"unplain nested too deeply"}),
    "nested parentheses": ("(" * 30000, COMPILER),
    "unary chain": ("x = " + "-" * 60000 + "1", COMPILER),
    "attribute chain": ("x = a" + ".a" * 30000, COMPILER | {"exception NameError"}),
    "operator chain": ("x = 1" + "+1" * 30000 + "\ndef f(): return x", COMPILER | {"ok 30001"}),
    "comparison chain": ("x = 1" + "<2" * 30000 + "\ndef f(): return 1", COMPILER | {"ok 1"}),
    "nested lambdas": ("x = " + "lambda:" * 9000 + "1", COMPILER | {"exception NameError"}),
    "nested eval": ("def f(n=0): return eval('f()')", {"exception RecursionError"}),
    "null byte": ("def f(): return 1\x00", {"syntax_error", "compile_failed"}),
    "lone surrogate": ("def f(): return '\ud800'", {"syntax_error", "compile_failed"}),
    "coding cookie": ("# coding: no-such-codec\ndef f(): return 1", {"ok 1", "syntax_error"}),
    "deep except": ("def f():\n try: f()\n except RecursionError: f()", CRASH | {"exception RecursionError"}),
}

PROC = {
    "fork": (HELPERS + "def f(): return refused(os.fork)", {"ok 'EPERM'"}),
    "raw clones": (
        HELPERS + f"def f(): return [call(n, 17, 0, 0, 0, 0) for n in {[(56, 57, 58, 435), (220, 435)][MACHINE]}]",
        {"ok ['EPERM', 'EPERM', 'EPERM', 'EPERM']", "ok ['EPERM', 'EPERM']"},
    ),
    "threads": (
        "import threading\ndef f():\n while True: threading.Thread(target=input).start()",
        {"exception RuntimeError"},
    ),
    "subprocess": ("import subprocess\ndef f(): return subprocess.run(['/bin/true'])", EPERM),
    "os.system": ("import os\ndef f(): return os.system('true') != 0", {"ok True"}),
    "execve": ("import os\ndef f(): os.execve('/bin/true', ['true'], {})", EPERM),
    "posix_spawn": ("import os\ndef f(): os.posix_spawn('/bin/true', ['true'], {})", EPERM),
    "multiprocessing": (
        "import multiprocessing as m\ndef f():\n p = m.get_context('fork').Process(target=print)\n p.start()",
        EPERM,
    ),
    "daemonise": (
        HELPERS + "def f(): return refused(os.setsid), refused(os.setpgid, 0, 0)",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "popen": ("import os\ndef f(): return os.popen('true').read()", EPERM),
}

SIGNALS = {
    "kill the parent": (
        HELPERS + "def f(): return refused(os.kill, 1, 9), refused(os.kill, os.getppid(), 9)",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "kill everyone": (HELPERS + "def f(): return refused(os.kill, -1, 9)", {"ok 'EPERM'"}),
    "kill the group": (
        HELPERS + "def f(): return refused(os.killpg, 0, 9), refused(os.kill, 0, 9)",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "kill itself": (HELPERS + "def f(): return refused(os.kill, os.getpid(), 9)", {"ok 'EPERM'"}),
    "stop itself": (HELPERS + "def f(): return refused(os.kill, os.getpid(), 19)", {"ok 'EPERM'"}),
    "tgkill": (
        HELPERS
        + f"def f(): return call({[234, 131][MACHINE]}, os.getpid(), os.getpid(), 9), call({[200, 130][MACHINE]}, os.getpid(), 9)",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "pidfd": (HELPERS + "def f(): return call(434, 1, 0), call(424, 0, 9, 0, 0)", {"ok ('EPERM', 'EPERM')"}),
    "handle all signals": (
        HELPERS
        + "import signal\ndef f(): return {refused(signal.signal, s, signal.SIG_IGN) for s in (1, 2, 11, 13, 14, 15, 24, 27)}",
        {"ok {'EPERM'}"},
    ),
    "alarm": (
        HELPERS
        + f"import signal\ndef f(): return refused(signal.setitimer, signal.ITIMER_REAL, 0), call({[222, 107][MACHINE]}, 0, 0, 0)",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "abort": ("import os\ndef f(): os.abort()", {"killed"}),
    "segfault": ("import ctypes\ndef f(): ctypes.string_at(1)", {"killed"}),
    "illegal write": ("import ctypes\ndef f(): ctypes.memset(1 << 40, 0, 8)", {"killed"}),
    "SIGPIPE handler": ("import signal\ndef f(): signal.signal(signal.SIGPIPE, lambda *_: None)", EPERM),
}

EXIT = {
    "sys.exit": ("import sys\ndef f(): sys.exit(0)", {"base_exception SystemExit"}),
    "exit at the top": ("raise SystemExit(71)", {"base_exception SystemExit"}),
    "os._exit": ("import os\ndef f(): os._exit(0)", {"no_result"}),
    "os._exit at the top": ("import os\nos._exit(0)", {"no_result"}),
    "pretended confinement failure": ("import os\nos._exit(71)", {"no_result"}),
    "KeyboardInterrupt": ("def f(): raise KeyboardInterrupt", {"base_exception KeyboardInterrupt"}),
    "own BaseException": ("class Own(BaseException): pass\ndef f(): raise Own", {"base_exception Own"}),
    "raw exit": (HELPERS + f"def f(): call({[231, 94][MACHINE]}, 0)", {"no_result"}),
    "atexit": ("import atexit\n@atexit.register\ndef late():\n while True: pass\ndef f(): return 1", {"ok 1"}),
    "exception with evil __str__": (
        "class E(Exception):\n def __str__(self):\n  while True: pass\n __repr__ = __str__\ndef f(): raise E",
        {"exception E"},
    ),
    "exception with evil __class__": (
        "class E(Exception):\n @property\n def __class__(self):\n  while True: pass\ndef f(): raise E",
        {"exception E"},
    ),
    "exception of an evil metaclass": (
        "class M(type):\n @property\n def __name__(cls):\n  while True: pass\n def __subclasscheck__(cls, other): return True\nclass E(Exception, metaclass=M): pass\ndef f(): raise E",
        {"exception E"},
    ),
    "exception with a huge name": ("def f(): raise type('E' * 10**6, (Exception,), {})", {"exception " + "E" * 100}),
    "exception with an odd name": (
        "def f(): raise type('\\n\\x1b[31m\\u20ac', (Exception,), {})",
        {"exception ??[31m?"},
    ),
    "exception group": ("def f(): raise ExceptionGroup('g', [ValueError()] * 10**4)", {"exception ExceptionGroup"}),
    "evil context": (
        "def f():\n e = ValueError()\n e.__context__ = e.__cause__ = TypeError()\n e.__traceback__ = None\n raise e",
        {"exception ValueError"},
    ),
}

FILES = {
    "read a file": (HELPERS + "def f(): return refused(open, '/etc/passwd')", {"ok 'EPERM'"}),
    "read the canary": (HELPERS + "def f(): return refused(open, CANARY)", {"ok 'EPERM'"}),
    "environment": ("import os\ndef f(): return dict(os.environ)", {"ok {}"}),
    "environment of the process": (HELPERS + "def f(): return refused(open, '/proc/self/environ')", {"ok 'EPERM'"}),
    "environment in memory": (
        HELPERS
        + "def f():\n libc.getenv.restype = ctypes.c_void_p\n return [libc.getenv(n) for n in (b'HOME', b'PATH', b'HOSTILE_SECRET')]",
        {"ok [None, None, None]"},
    ),
    "memory of the parent": (
        HELPERS + "def f(): return refused(open, f'/proc/{os.getppid()}/mem'), refused(open, '/proc/1/mem')",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "write": (
        HELPERS
        + "def f(): return [refused(open, p, 'w') for p in ('/tmp/hostile', '/dev/shm/hostile', 'hostile', CANARY, '/dev/null')]",
        {"ok ['EPERM', 'EPERM', 'EPERM', 'EPERM', 'EPERM']"},
    ),
    "unlink": (
        HELPERS
        + "def f(): return refused(os.unlink, CANARY), refused(os.rename, CANARY, '/tmp/x'), refused(os.truncate, CANARY, 0)",
        {"ok ('EPERM', 'EPERM', 'EPERM')"},
    ),
    "stat": (
        HELPERS
        + "def f(): return [refused(a, '/') for a in (os.stat, os.lstat, os.listdir, os.scandir, os.statvfs, os.readlink)] + [os.path.exists('/'), os.access('/', 0)]",
        {"ok ['EPERM', 'EPERM', 'EPERM', 'EPERM', 'EPERM', 'EPERM', False, False]"},
    ),
    "change": (
        HELPERS
        + "def f(): return {refused(os.chmod, CANARY, 0), refused(os.chown, CANARY, 0, 0), refused(os.symlink, 'a', '/tmp/b'), refused(os.link, CANARY, '/tmp/b'), refused(os.mkdir, '/tmp/hostile'), refused(os.mkfifo, '/tmp/hostile'), refused(os.utime, CANARY), refused(os.chdir, '/')}",
        {"ok {'EPERM'}"},
    ),
    "memfd": (HELPERS + "def f(): return refused(os.memfd_create, 'x')", {"ok 'EPERM'"}),
    "handles": (HELPERS + f"def f(): return call({[303, 264][MACHINE]}, -100, b'/', 0, 0, 0)", {"ok 'EPERM'"}),
    "open by handle": (HELPERS + f"def f(): return call({[304, 265][MACHINE]}, 0, 0, 0)", {"killed"}),
    "inherited descriptors": (
        HELPERS
        + "def f(): return {refused(a, d) for d in range(300) for a in (os.fstat, os.dup, os.isatty) if a is not os.isatty or a(d)}",
        {"ok {'EPERM'}"},
    ),
    "read descriptors": (HELPERS + "def f(): return {refused(os.read, d, 1) for d in range(100)}", {"ok {'EPERM'}"}),
    "write descriptors": (
        HELPERS + "def f(): return {refused(os.write, d, b'x') for d in range(100) if d != 3}",
        {"ok {'EPERM'}"},
    ),
    "import from disk": (
        "import sys\nsys.path.append('/usr/lib/python3/dist-packages')\nimport wave",
        {"exception ModuleNotFoundError"},
    ),
    "extension from disk": (
        "import importlib.machinery as m\ndef f(): m.ExtensionFileLoader('a', '/lib/x86_64-linux-gnu/libm.so.6').load_module()",
        {"exception ImportError", "exception PermissionError"},
    ),
    "library from disk": ("import ctypes\ndef f(): ctypes.CDLL('libm.so.6.none')", {"exception OSError"}),
    "shared memory": ("import _posixshmem\ndef f(): _posixshmem.shm_open('/hostile', 66, 384)", EPERM),
    "io_uring": (HELPERS + "def f(): return call(425, 1, 0)", {"killed SIGSYS"}),
    "print to a saved stream": (
        "import sys\ndef f():\n sys.__stdout__.write('x'); sys.__stderr__.flush(); print('y', file=sys.__stderr__)\n return sys.stdin",
        {"ok None"},
    ),
    "real standard output": ("def f():\n with open(1, 'w') as out: out.write('x')", EPERM),
}

NET = {
    "tcp": (
        HELPERS + "import socket\ndef f(): return refused(socket.create_connection, ('127.0.0.1', PORT))",
        {"ok 'EPERM'"},
    ),
    "every family": (
        HELPERS
        + "import socket\ndef f(): return {refused(socket.socket, a, t) for a in (1, 2, 10, 16, 17, 38, 40) for t in (1, 2, 3)}",
        {"ok {'EPERM'}"},
    ),
    "raw calls": (
        HELPERS
        + f"def f(): return {{call(n, 3, 0, 0, 0, 0, 0) for n in {[(41, 42, 43, 44, 45, 46, 47, 49, 50, 53, 288, 299, 307), (198, 199, 200, 201, 202, 203, 206, 207, 211, 212, 242, 243, 269)][MACHINE]}}}",
        {"ok {'EPERM'}"},
    ),
    "udp": (
        HELPERS
        + "import socket\ndef f(): return refused(lambda: socket.socket(2, 2).sendto(b'x', ('127.0.0.1', PORT)))",
        {"ok 'EPERM'"},
    ),
    "unix socket": (
        HELPERS
        + "import socket\ndef f(): return refused(socket.socketpair), refused(lambda: socket.socket(1).connect('\\0hostile'))",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "socket from the channel": (
        HELPERS
        + "import socket\ndef f(): return refused(lambda: socket.socket(1, 1, 0, 3).recv(1)), refused(lambda: socket.socket(fileno=3))",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "descriptors over the channel": (
        HELPERS
        + "import socket\ndef f(): return refused(lambda: socket.send_fds(socket.socket(1, 1, 0, 3), [b'x'], [3]))",
        {"ok 'EPERM'"},
    ),
    "name lookup": (
        "import socket\ndef f(): socket.getaddrinfo('example.org', 80)",
        {"exception gaierror", "exception PermissionError"},
    ),
    "system V": (
        HELPERS
        + f"def f(): return {{call(n, 0, 4096, 0o1777) for n in {[(29, 30, 64, 68), (194, 196, 190, 186)][MACHINE]}}}",
        {"ok {'EPERM'}"},
    ),
}

FATAL = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "io_uring_enter": (426, 426),
    "mount": (165, 40),
    "fsopen": (430, 430),
    "pivot_root": (155, 41),
    "unshare": (272, 97),
    "setns": (308, 268),
    "personality": (135, 92),
    "init_module": (175, 105),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
    "pidfd_getfd": (438, 438),
}

KERNEL = {
    name: (HELPERS + f"def f(): return call({numbers[MACHINE]}, 0, 0, 0, 0, 0, 0)", {"killed SIGSYS"})
    for name, numbers in FATAL.items()
}
KERNEL |= {
    "undo what prctl did": (
        HELPERS
        + f"def f(): return {{call({[157, 167][MACHINE]}, *a, 0, 0) for a in ((1, 0, 0), (4, 1, 0), (22, 0, 0), (38, 0, 0), (24, 1, 0))}}",
        {"ok {'EPERM'}"},
    ),
    "second filter": (
        HELPERS + f"def f(): return call({[317, 277][MACHINE]}, 1, 0, 0), call(444, 0, 0, 1), call(446, 0, 0)",
        {"ok ('EPERM', 'EPERM', 'EPERM')"},
    ),
    "raise limits": (
        HELPERS + "import resource\ndef f(): resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000))",
        {"exception ValueError"},
    ),
    "limits of the parent": (HELPERS + f"def f(): return call({[302, 261][MACHINE]}, 1, 0, 0, 0)", {"ok 'EPERM'"}),
    "writable code": (
        HELPERS + f"def f(): return [call({[9, 222][MACHINE]}, 0, 4096, p, 0x22, -1, 0) for p in (4, 5, 6, 7)]",
        {"ok ['EPERM', 'EPERM', 'EPERM', 'EPERM']"},
    ),
    "code by mprotect": (
        HELPERS
        + f"def f():\n b = ctypes.create_string_buffer(8192)\n return call({[10, 226][MACHINE]}, (ctypes.addressof(b) + 4095) & -4096, 4096, 7), call({[329, 288][MACHINE]}, 0, 4096, 7, -1)",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "map a file": (
        HELPERS
        + f"def f(): return call({[9, 222][MACHINE]}, 0, 4096, 1, 2, 3, 0), call({[9, 222][MACHINE]}, 0, 4096, 1, 1, 0, 0)",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "priority": (
        HELPERS
        + f"def f(): return {{call(n, 0, 0, 0) for n in {[(141, 203, 251, 144), (140, 122, 30, 119)][MACHINE]}}}",
        {"ok {'EPERM'}"},
    ),
    "become root": (
        HELPERS
        + f"def f(): return {{call(n, 0, 0, 0) for n in {[(105, 106, 117, 119, 116, 126), (146, 144, 147, 149, 159, 91)][MACHINE]}}}",
        {"ok {'EPERM'}"},
    ),
    "duplicate the channel": (
        HELPERS
        + f"def f(): return {{refused(os.dup, 3), refused(os.dup2, 3, 9), refused(os.close, 3), call({[436, 436][MACHINE]}, 0, 99, 0), call({[72, 25][MACHINE]}, 3, 0, 9)}}",
        {"ok {'EPERM'}"},
    ),
    "unknown numbers": (
        HELPERS
        + "def f(): return {call(n, 0, 0, 0, 0, 0, 0) for n in (447, 452, 470, 600, 1000, 100000, 0x3fffffff)}",
        {"ok {'EPERM'}"},
    ),
    "ftruncate, fallocate, vmsplice": (
        HELPERS
        + f"def f(): return {{call(n, 3, 0, 0, 0) for n in {[(77, 285, 278, 275, 40, 326), (46, 47, 75, 76, 71, 285)][MACHINE]}}}",
        {"ok {'EPERM'}"},
    ),
    "timers": (
        HELPERS
        + f"def f(): return {{call(n, 0, 0, 0, 0) for n in {[(38, 37, 222, 223, 226, 283, 35, 230), (103, 107, 110, 111, 85, 101, 115)][MACHINE]}}}",
        {"ok {'EPERM'}"},
    ),
}
if MACHINE == 0:
    KERNEL |= {
        "modify_ldt": (HELPERS + "def f(): return call(154, 0, 0, 0)", {"killed SIGSYS"}),
        "x32 write": (HELPERS + "def f(): return call(0x40000001, 1, b'x', 1)", {"killed SIGSYS"}),
        "x32 getpid": (HELPERS + "def f(): return call(0x40000027)", {"killed SIGSYS"}),
        "negative number": (HELPERS + "def f(): return call(-1), call(-2)", {"killed"}),
    }

OUTPUT = {
    "print flood": ("def f():\n while True: print('x' * 10**4)", TIMEOUT),
    "raw flood": (
        HELPERS + "def f(): return refused(os.write, 1, b'x' * 10**6), refused(os.write, 2, b'x')",
        {"ok ('EPERM', 'EPERM')"},
    ),
    "huge text": ("def f(): return 'a' * 10**7", {"unplain value too large"}),
    "huge list": ("def f(): return [0] * 10**6", {"unplain value too large"}),
    "huge number": ("def f(): return 10 ** 5000", {"unplain int too large"}),
    "wide text": ("def f(): return '\\u20ac' * 30000", {"unplain value too large"}),
    "flood of the channel": ("import os\ndef f():\n while True: os.write(3, b'x' * 4096)", {"output_limit"}),
    "flood of frames": (HELPERS + "def f():\n while True: frame(b'R', b'vN')", {"output_limit"}),
    "garbage, then normal": ("import os\ndef f():\n os.write(3, b'garbage')\n return 1", {"protocol_violation"}),
    "extra result": (HELPERS + "def f():\n frame(b'R', b'vi1;')\n return 1", {"protocol_violation"}),
    "second P": (HELPERS + "frame(b'P')\ndef f(): return 1", {"protocol_violation"}),
    "early F": (HELPERS + "frame(b'F')\ndef f(): return 1", {"protocol_violation"}),
    "early Z": (HELPERS + "def f():\n frame(b'Z')\n return 1", {"protocol_violation"}),
    "claims a syntax error": (HELPERS + "frame(b'S', b'SyntaxError')\ndef f(): return 1", {"protocol_violation"}),
    "forges everything": (HELPERS + "def f():\n frame(b'R', b'vi539;'); frame(b'Z'); os._exit(0)", {"ok 1337"}),
    "forges, then goes on": (HELPERS + "def f():\n frame(b'R', b'vi1;'); frame(b'Z')\n while True: pass", {"ok 1"}),
    "forges, then more": (
        HELPERS + "def f():\n frame(b'R', b'vi1;'); frame(b'Z'); os.write(3, b'x'); os._exit(0)",
        {"protocol_violation"},
    ),
    "forges a failure": (HELPERS + "frame(b'X', b'eForged')\nos._exit(0)", {"exception Forged"}),
    "forges an unknown failure": (HELPERS + "frame(b'X', b'zForged')\nos._exit(0)", {"protocol_violation"}),
    "frame of 4 GB": ("import os\ndef f():\n os.write(3, b'R' + b'\\xff' * 4)\n os._exit(0)", {"protocol_violation"}),
    "frame cut short": ("import os\ndef f():\n os.write(3, b'R\\x09\\0\\0\\0v')\n os._exit(0)", {"no_result"}),
    "unknown value": (HELPERS + "def f():\n frame(b'R', b'v?'); frame(b'Z'); os._exit(0)", {"protocol_violation"}),
    "value in another form": (
        HELPERS + "def f():\n frame(b'R', b'vi01;'); frame(b'Z'); os._exit(0)",
        {"protocol_violation"},
    ),
    "value too deep": (
        HELPERS + "def f():\n frame(b'R', b'v' + b'[' * 900 + b']' * 900); frame(b'Z'); os._exit(0)",
        {"protocol_violation"},
    ),
    "value too large": (
        HELPERS + "def f():\n frame(b'R', b'vs69999:' + b'a' * 69999); frame(b'Z'); os._exit(0)",
        {"protocol_violation", "output_limit"},
    ),
    "keys that collide": (
        HELPERS
        + "def f():\n frame(b'R', b'v<' + b''.join(b'i%x;' % (k * (2**61-1)) for k in range(3000)) + b'>'); frame(b'Z'); os._exit(0)",
        {"protocol_violation"},
    ),
    "pickle": (
        HELPERS + "import pickle\ndef f():\n frame(b'R', pickle.dumps(print)); frame(b'Z'); os._exit(0)",
        {"protocol_violation"},
    ),
    "patches the encoder": (
        "import sys\ndef f():\n sys._getframe(1).f_globals['encode'] = lambda *a: b'i2a;'\n return 1",
        {"ok 42"},
    ),
    "patches the builtins": (
        "import builtins\nfor name in ('len', 'type', 'int', 'sorted', 'bytes', 'isinstance', 'issubclass', 'BaseException'): setattr(builtins, name, None)\ndef f(): return [1, {2: 'a'}, 3]",
        {"ok [1, {2: 'a'}, 3]"},
    ),
    "patches os.write": ("import os\nos.write = None\ndef f(): return 1", {"ok 1"}),
    "traces the epilogue": (
        "import sys\ndef f():\n sys.setprofile(lambda *a: 1 / 0)\n return 1",
        {"no_result", "exception ZeroDivisionError", "ok 1"},
    ),
    "looks for other jobs": (
        "import gc, sys\ndef f():\n names = set(sys.modules)\n found = [o for o in gc.get_objects() if type(o) in (str, bytes) and 'SECRET' in str(o)]\n return found",
        {"ok []"},
    ),
    "patches a module": ("import math\nmath.sqrt = lambda x: 0\ndef f(): return math.sqrt(4)", {"ok 0"}),
}

VALUES = {
    "equal to everything": (
        "class A:\n def __eq__(self, o): return True\n __hash__ = None\ndef f(): return A()",
        {"unplain type A is not plain"},
    ),
    "subclass of int": ("class A(int): pass\ndef f(): return A(1)", {"unplain type A is not plain"}),
    "subclass of str in a list": (
        "class A(str): pass\ndef f(): return ['a', A('b')]",
        {"unplain type A is not plain"},
    ),
    "subclass as a key": ("class A(int): pass\ndef f(): return {A(1): 2}", {"unplain type A is not plain"}),
    "evil metaclass": (
        "class M(type):\n @property\n def __name__(c):\n  while True: pass\nclass A(metaclass=M): pass\ndef f(): return A()",
        {"unplain type A is not plain"},
    ),
    "named tuple": (
        "import collections\nA = collections.namedtuple('A', 'x')\ndef f(): return A(1)",
        {"unplain type A is not plain"},
    ),
    "generator": ("def f(): yield 1", {"unplain type generator is not plain"}),
    "function": ("def f(): return f", {"unplain type function is not plain"}),
    "module": ("import math\ndef f(): return math", {"unplain type module is not plain"}),
    "coroutine": ("async def f(): return 1", {"unplain type coroutine is not plain"}),
    "class": ("def f(): return int", {"unplain type type is not plain"}),
    "kinds of one": ("def f(): return [True, 1, 1.0, 1 + 0j]", {"ok [True, 1, 1.0, (1+0j)]"}),
    "odd floats": ("def f(): return [-0.0, float('nan'), float('-inf')]", {"ok [-0.0, nan, -inf]"}),
    "lone surrogate in a value": ("def f(): return '\\ud800'", {"ok '\\ud800'"}),
    "no f": ("g = 1", {"exception NameError"}),
    "f is no function": ("f = 1", {"exception NameError"}),
    "f is a class": ("class f:\n def __new__(cls): return 5", {"ok 5"}),
    "evil callable": (
        "class A:\n def __call__(self): return 7\n def __getattr__(self, n):\n  while True: pass\nf = A()",
        {"ok 7"},
    ),
    "two nan": (
        "def f(): return {float('nan'), float('inf') - float('inf')}",
        {"unplain two keys with the same canonical form"},
    ),
}

CATEGORIES = {
    "cpu": CPU,
    "mem": MEM,
    "stack": STACK,
    "proc": PROC,
    "sig": SIGNALS,
    "exit": EXIT,
    "fs": FILES,
    "net": NET,
    "kern": KERNEL,
    "out": OUTPUT,
    "val": VALUES,
}

# name: (program, whether it must be accepted; None if that depends on how the interpreter was built)
DETERMINISM = {
    "plain": ("def f(x): return x * 2", True),
    "set of str order": (
        "def f(x): return list({'alpha', 'beta', 'gamma', 'delta', 'eps', 'zeta', 'eta', 'theta'})",
        False,
    ),
    "set of int order": ("def f(x): return list({30, 1, 20, 7})", True),
    "hash of str": ("def f(x): return hash('a')", False),
    "hash of int": ("def f(x): return hash(x), hash((1, 2)), hash(2.5)", True),
    "id": ("def f(x): return id(object())", False),
    "object repr": ("def f(x): return repr(object())", False),
    "hash of None": ("def f(x): return hash(None)", None),
    "object keys": (
        "class A: pass\ndef f(x): return [a.n for a in {mk(i) for i in range(20)}]\ndef mk(i):\n a = A(); a.n = i\n return a",
        False,
    ),
    "time": ("import time\ndef f(x): return time.time()", False),
    "perf_counter": ("import time\ndef f(x): return [time.perf_counter_ns() // 100 % 2 for _ in range(64)]", False),
    "unseeded random": ("import random\ndef f(x): return random.random()", False),
    "seeded random": ("import random\ndef f(x): return random.Random(x).random()", True),
    "global seed": ("import random\ndef f(x):\n random.seed(x)\n return random.randrange(10**9)", True),
    "urandom": ("import os\ndef f(x): return os.urandom(4)", False),
    "uuid4": ("import uuid\ndef f(x): return str(uuid.uuid4())", False),
    "now": ("import datetime\ndef f(x): return str(datetime.datetime.now())", False),
    "getpid": ("import os\ndef f(x): return os.getpid()", False),
    "global counter": ("n = 0\ndef f(x):\n global n\n n += 1\n return n", True),
    "state in builtins": (
        "import builtins\ndef f(x):\n builtins.n = getattr(builtins, 'n', 0) + 1\n return builtins.n",
        True,
    ),
    "state in a module": ("import math\ndef f(x):\n math.n = getattr(math, 'n', 0) + 1\n return math.n", True),
    "mutable default": ("def f(x, seen=[]):\n seen.append(x)\n return seen", True),
    "lru_cache": ("import functools\n@functools.lru_cache\ndef f(x): return x + 1", True),
    "argument changed": ("def f(x):\n y = [x]; y.append(2)\n return y", True),
    "recursion depth": ("def f(x):\n try: return f(x + 1)\n except RecursionError: return x", False),
    "memory probe": (
        "def f(x):\n n = 1 << 20\n try:\n  while True: bytes(n); n += 1 << 20\n except MemoryError: return n",
        False,
    ),
    "exception": ("def f(x): raise ValueError(x)", True),
    "garbage collection": (
        "class A:\n def __del__(self): ends.append(self)\nends = []\ndef f(x):\n a = A(); a.a = a; del a\n keep = []\n while not ends: keep.append([])\n return len(keep)",
        False,
    ),
    "refcount of None": (
        "import sys\ndef f(x): return sys.getrefcount(None)",
        sys.version_info >= (3, 12),  # where it never changes
    ),
    "address of None": (
        "def f(x): return id(None)",
        None if STATIC else False,
    ),
    "float repr": ("def f(x): return repr(0.1 + 0.2)", True),
    "dict order": ("def f(x): return {'b': 1, 'a': 2}", True),
    "join of a set": ("def f(x): return ''.join({'alpha', 'beta', 'gamma', 'delta', 'eps'})", False),
    "max of equal keys": ("def f(x): return max({'ab', 'cd', 'ef', 'gh', 'ij', 'kl'}, key=len)", False),
}
