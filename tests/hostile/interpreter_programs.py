"""Programs that attack the interpreter around them: its hooks, its registries, its frames, its objects."""

from programs import CRASH, EPERM, HELPERS, MEMORY, TIMEOUT

# The module that runs programs, as a program finds it: by walking up.
HARNESS = HELPERS + "harness = sys._getframe(1).f_globals\n"

FRAMES = {
    "silences the reports": (HARNESS + "def f():\n harness['_send'] = lambda *a: None\n return 1", {"no_result"}),
    "empties the frames": (HARNESS + "def f():\n harness['pack'] = lambda *a: b''\n return 1", {"no_result"}),
    "claims for another call": (
        HARNESS
        + "harness['_call'].__code__ = (lambda function, arguments, result_bytes: b'vi7;').__code__\ndef f(): return 1",
        {"ok 7"},
    ),
    "claims an unknown kind": (
        HARNESS + "harness['_call'] = lambda *a: b'?'\ndef f(): return 1",
        {"protocol_violation"},
    ),
    "claims nothing": (HARNESS + "harness['_call'] = lambda *a: b''\ndef f(): return 1", {"protocol_violation"}),
    "claims too much": (
        HARNESS + "harness['_call'] = lambda *a: b'vs70000:' + b'a' * 70000\ndef f(): return 1",
        {"protocol_violation", "output_limit"},
    ),
    "claims a long failure": (
        HARNESS + "harness['_call'] = lambda *a: b'e' + b'a' * 50000\ndef f(): return 1",
        {"exception " + "a" * 100},
    ),
    "replaces the channel": (HARNESS + "harness['CHANNEL'] = 1\ndef f(): return 1", {"no_result"}),
    "forges the verdict of the compiler": (
        HELPERS + "frame(b'C', b'MemoryError')\nos._exit(0)",
        {"protocol_violation"},
    ),
    "runs the harness again": (
        HARNESS + "def f():\n harness['_execute'](b'def f(): return 2', ((),), 9999)\n return 1",
        {"protocol_violation"},
    ),
    "confines itself once more": (
        HARNESS
        + "def f():\n try: harness['lock'](None, 99, 99, 1 << 40)\n except BaseException as e: return type(e).__name__",
        {"ok 'ValueError'", "ok 'PermissionError'", "ok 'OSError'", "ok 'itimer_error'"},
    ),
    "reads the locals of the harness": (
        HELPERS
        + "import re\ndef f():\n frame, names = sys._getframe(), set()\n while frame:\n  names |= {n for n, v in frame.f_locals.items() if re.search('isq[r]t', repr(v))}\n  frame = frame.f_back\n return sorted(names)",
        {"ok []"},
    ),
    "traces its callers": (
        HELPERS
        + "def f():\n def trace(*a): raise SystemExit\n frame = sys._getframe(1)\n while frame: frame.f_trace = trace; frame = frame.f_back\n sys.settrace(trace)\n return 1",
        {"no_result", "base_exception SystemExit"},
    ),
    "profiles to the end": (
        HELPERS + "def f():\n def late(*a):\n  while True: pass\n sys.setprofile(late)\n return 1",
        TIMEOUT,
    ),
    "exits from the profiler": (
        HELPERS + "def f():\n sys.setprofile(lambda *a: os._exit(0))\n return 1",
        {"no_result"},
    ),
    "clears its callers": (
        HELPERS + "def f():\n try: sys._getframe(1).clear()\n except RuntimeError: return 'running'",
        {"ok 'running'"},
    ),
    "jumps in its caller": (
        HELPERS + "def f():\n try: sys._getframe(1).f_lineno = 1\n except ValueError: return 'refused'",
        {"ok 'refused'"},
    ),
    "traceback to the harness": (
        "def f():\n try: 1 / 0\n except ZeroDivisionError as e: e.__traceback__.tb_frame.f_back.f_globals.clear()\n return 1",
        {"no_result", "exception NameError"},
    ),
    "clears all modules": ("import sys\nsys.modules.clear()\ndef f(): return 1", {"ok 1"}),
    "clears every dict": (
        "import gc\ndef f():\n for d in gc.get_objects():\n  if type(d) is dict: d.clear()\n return 1",
        {"no_result", "exception NameError", "ok 1", "killed"},
    ),
    "thaws the collector": (
        "import gc\ndef f():\n gc.unfreeze()\n for _ in range(3): gc.collect()\n return 1",
        {"ok 1"} | TIMEOUT,
    ),
}

HOOKS = {
    "audit hook that fails": (
        "import sys\nsys.addaudithook(lambda *a: 1 / 0)\ndef f(): return 1",
        {"ok 1", "exception ZeroDivisionError"},
    ),
    "audit hook that listens": (
        "import sys\nseen = []\nsys.addaudithook(lambda name, arguments: seen.append(str(arguments)))\ndef f():\n compile('1', 'a', 'eval')\n return len(seen) > 0 and not any('SECRET' in text for text in seen)",
        {"ok True"},
    ),
    "exception hooks": (
        "import sys\ndef loop(*a):\n while True: pass\nsys.excepthook = sys.unraisablehook = sys.displayhook = sys.breakpointhook = loop\ndef f(): raise ValueError",
        {"exception ValueError"},
    ),
    "unraisable hook in a destructor": (
        "import sys\ndef loop(*a):\n while True: pass\nsys.unraisablehook = loop\nclass A:\n def __del__(self): 1 / 0\ndef f(): A()",
        TIMEOUT,
    ),
    "import hook": (
        "import sys\nclass F:\n def find_spec(*a):\n  while True: pass\nsys.meta_path.insert(0, F)\ndef f(): import hostile_module",
        TIMEOUT,
    ),
    "import replaced": ("__builtins__['__import__'] = None\ndef f():\n import math", {"exception TypeError"}),
    "import of a file": (
        "import importlib._bootstrap_external as b\ndef f(): return b.FileLoader('a', '/etc/passwd').get_data('/etc/passwd')",
        EPERM,
    ),
    "import of an extension": (
        "import _imp, importlib.machinery as m\ndef f(): _imp.create_dynamic(m.ModuleSpec('hostile', None, origin='/lib/hostile.so'))",
        {"exception ImportError"},
    ),
    "class builder replaced": (
        "__builtins__['__build_class__'] = lambda *a, **k: 7\nclass A: pass\ndef f(): return A",
        {"ok 7"},
    ),
    "all builtins gone": (
        "import builtins\nvars(builtins).clear()\ndef f(): return [1, 'a', {2: None}]",
        {"ok [1, 'a', {2: None}]"},
    ),
    "builtins of the harness": (
        "import sys\nb = sys._getframe(1).f_builtins\nb['len'] = b['type'] = b['isinstance'] = lambda *a: 0\ndef f(): return 'abc'",
        {"no_result", "unplain", "exception", "protocol_violation"},
    ),
    "codec for everything": (
        "import codecs\ncodecs.register(lambda name: 1 / 0)\ndef f(): return 'a'.encode('hostile')",
        {"exception ZeroDivisionError"},
    ),
    "error handlers replaced": (
        "import codecs\ndef loop(e):\n while True: pass\nfor name in ('replace', 'strict', 'surrogatepass', 'ignore'): codecs.register_error(name, loop)\ndef f(): return '\\ud800'",
        {"ok '\\ud800'"},
    ),
    "error handlers replaced, failing": (
        "import codecs\nfor name in ('replace', 'strict'): codecs.register_error(name, lambda e: (b'SECRET', e.end))\ndef f(): raise type('\\u20ac', (Exception,), {})",
        {"exception ?"},
    ),
    "error handler that goes back": (
        "import codecs\ncodecs.register_error('back', lambda e: (b'?', 0))\ndef f(): return '\\u20ac'.encode('ascii', 'back')",
        MEMORY,
    ),
    "warnings as errors": (
        "import warnings\nwarnings.simplefilter('error')\ndef f(): return eval(\"'\\\\\\\\d'\")",
        {"exception SyntaxError", "ok '\\\\d'"},
    ),
    "warnings that loop": (
        "import warnings\ndef loop(*a):\n while True: pass\nwarnings.showwarning = warnings.formatwarning = loop\nwarnings.simplefilter('always')\ndef f(): warnings.warn('x')",
        TIMEOUT,
    ),
    "exit handlers": ("import atexit, os\natexit.register(os.abort)\ndef f():\n atexit._run_exitfuncs()", {"killed"}),
    "copyreg": (
        "import copyreg, copy\nclass A: pass\ncopyreg.pickle(A, lambda a: (eval, ('6 * 7',)))\ndef f(): return copy.copy(A())",
        {"ok 42"},
    ),
    "int.__dict__": (
        "import gc\ngc.get_referents(vars(int))[0]['bit_length'] = lambda n: 0\ndef f(): return 1 << 20000",
        {"protocol_violation", "killed"},
    ),
    "str.__dict__": (
        "import gc\ngc.get_referents(vars(str))[0]['encode'] = lambda *a: b'\\xff\\xff'\ndef f(): return 'a'",
        {"protocol_violation", "ok 'a'", "killed"},
    ),
    "type.__dict__": (
        "import gc\nd = gc.get_referents(vars(type))[0]\ndef loop(*a):\n while True: pass\nd['__subclasscheck__'] = d['__instancecheck__'] = loop\ndef f(): raise ValueError",
        {"exception ValueError"} | TIMEOUT,
    ),
    "thread switches": ("import sys\nsys.setswitchinterval(1e-9)\ndef f(): return 1", {"ok 1"}),
    "context variables": (
        "import contextvars\ndef f(): return contextvars.copy_context().run(lambda: 4)",
        {"ok 4", "exception ModuleNotFoundError"},
    ),
    "stdin": ("def f(): return input()", {"exception RuntimeError"}),
    "stdout replaced": (
        "import sys\nclass Out:\n def write(self, text): 1 / 0\nsys.stdout = Out()\ndef f(): print(1)",
        {"exception ZeroDivisionError"},
    ),
    "stdout detached": (
        "import sys\ndef f(): return [hasattr(sys.stdout, n) for n in ('buffer', 'fileno', 'detach', 'raw')]",
        {"ok [False, False, False, False]"},
    ),
    "statistics of the allocator": ("import sys\ndef f(): return sys._debugmallocstats()", {"ok None"}),
    "stack dump": (
        HELPERS
        + "import faulthandler\ndef f(): return refused(faulthandler.register, 10, open) if False else faulthandler.dump_traceback(file=2)",
        {"ok None"},
    ),
    "fault handler": (
        "import faulthandler\ndef f(): return faulthandler.enable(file=2)",
        {"exception RuntimeError", "exception PermissionError", "ok None"},
    ),
    "fault on purpose": ("import faulthandler\ndef f(): faulthandler._sigsegv()", {"killed", "ok None"}),
    "read from nothing": ("import faulthandler\ndef f(): faulthandler._read_null()", {"killed"}),
    "stack overflow in C": ("import faulthandler\ndef f(): faulthandler._stack_overflow()", CRASH),
    "internal testing: fatal error": (
        "import _testcapi\ndef f(): _testcapi.fatal_error(b'x')",
        {"killed", "exception ModuleNotFoundError"},
    ),
    "internal testing: no memory": (
        "import _testcapi\n_testcapi.set_nomemory(1, 0)\ndef f(): return [1] * 1000",
        MEMORY | {"no_result", "exception ModuleNotFoundError", "exception"},
    ),
    "internal testing: write beyond": (
        "import _testcapi\ndef f():\n _testcapi.pymem_buffer_overflow()\n return 1",
        {"killed", "ok 1", "exception ModuleNotFoundError"},
    ),
    "subinterpreter": (
        "import _xxsubinterpreters as s\ndef f(): s.run_string(s.create(), 'import posix; posix.fork()')",
        {
            "wall_timeout",
            "exception RunFailedError",
            "exception ModuleNotFoundError",
            "exception RuntimeError",
            *CRASH,
        },
    ),
    "builtins of its own module": (
        "for name in ('len', 'type', 'bytes', 'sorted', 'issubclass'): __builtins__[name] = None\ndef f(): return [1]",
        {"ok [1]", "no_result"},
    ),
    "builtins without exceptions": (
        "__builtins__['BaseException'] = __builtins__['Exception'] = ()\ndef f(): raise ValueError",
        {"exception ValueError", "no_result"},
    ),
}

LIFETIMES = {
    "destructor that forges": (
        HELPERS + "class A:\n def __del__(self): frame(b'R', b'vi9;')\ndef f():\n a = A()\n return 1",
        {"protocol_violation"},
    ),
    "destructor that exits": (
        HELPERS + "class A:\n def __del__(self): os._exit(0)\ndef f():\n a = A()\n return 1",
        {"no_result"},
    ),
    "destructor at the exit": (
        "class A:\n def __del__(self):\n  while True: pass\nkeep = A()\ndef f(): return 1",
        {"ok 1"},
    ),
    "destructor in a cycle": (
        "import gc\nclass A:\n def __del__(self):\n  while True: pass\ndef f():\n a = A(); a.a = a; del a\n gc.collect()",
        TIMEOUT,
    ),
    "destructor that comes back": (
        "class A:\n def __del__(self):\n  global keep\n  keep = self\ndef f():\n A()\n return type(keep).__name__",
        {"ok 'A'"},
    ),
    "destructor without end": (
        "class A:\n def __del__(self): A()\ndef f(): A()",
        CRASH | {"no_result", "ok None", "exception RecursionError"},
    ),
    "weak reference with a callback": (
        "import weakref\nclass A: pass\ndef loop(_):\n while True: pass\ndef f():\n a = A()\n keep.append(weakref.ref(a, loop))\nkeep = []",
        TIMEOUT,
    ),
    "finalizer": (
        "import weakref\nclass A: pass\nkeep = A()\ndef loop():\n while True: pass\nweakref.finalize(keep, loop)\ndef f(): return 1",
        {"ok 1"},
    ),
    "generator left open": (
        "def g():\n try: yield 1\n finally:\n  while True: pass\nkeep = g(); next(keep)\ndef f(): return 1",
        {"ok 1"},
    ),
    "generator closed late": (
        "def g():\n try: yield 1\n finally:\n  while True: pass\ndef f():\n h = g()\n return next(h)",
        TIMEOUT,
    ),
    "generator that ignores its end": (
        "def g():\n while True:\n  try: yield 1\n  except GeneratorExit: pass\ndef f():\n h = g(); next(h)\n return h.close()",
        {"exception RuntimeError"},
    ),
    "coroutine by hand": (
        "async def g(): return 5\ndef f():\n try: g().send(None)\n except StopIteration as end: return end.value",
        {"ok 5"},
    ),
    "awaits forever": (
        "class A:\n def __await__(self):\n  while True: yield\nasync def g(): await A()\ndef f():\n c = g()\n while True: c.send(None)",
        TIMEOUT,
    ),
    "asynchronous generator": (
        "async def g(): yield 1\ndef f(): return g()",
        {"unplain type async_generator is not plain"},
    ),
    "event loop": ("import asyncio\ndef f(): asyncio.new_event_loop()", EPERM | {"exception ModuleNotFoundError"}),
    "lock at the exit": (
        "import _thread\nclass A:\n def __del__(self):\n  lock = _thread.allocate_lock(); lock.acquire(); lock.acquire()\ndef f():\n a = A()\n return 1",
        {"wall_timeout"},
    ),
    "raw thread": ("import _thread\ndef f(): _thread.start_new_thread(print, ())", {"exception RuntimeError"}),
    "pool of threads": ("import threading\ndef f(): threading.Timer(0, print).start()", {"exception RuntimeError"}),
    "wait for an event": ("import threading\ndef f(): threading.Event().wait()", {"wall_timeout"}),
    "growing while it is read": (
        "import gc\nkeep = [[]]\ndef f():\n gc.set_threshold(1, 1, 1)\n gc.callbacks.append(lambda *a: keep.append([[]]))\n return keep",
        {"unplain value too large", "ok", *MEMORY},
    ),
    "shrinking while it is read": (
        "import gc\nkeep = [[i] for i in range(9999)]\ndef f():\n gc.set_threshold(1, 1, 1)\n gc.callbacks.append(lambda *a: keep.clear())\n return keep",
        {"ok", "unplain", "cpu_timeout"},
    ),
    "dict growing while it is read": (
        "import gc\nkeep = {0: [[]]}\ndef f():\n gc.set_threshold(1, 1, 1)\n gc.callbacks.append(lambda *a: keep.update({len(keep): [[]]}))\n return keep",
        {"ok", "exception RuntimeError", "unplain", *MEMORY},
    ),
}

CATEGORIES = {"frames": FRAMES, "hooks": HOOKS, "lifetimes": LIFETIMES}
