"""Programs made of odd code: bytecode by hand, serialised objects, strange exceptions, strange definitions of `f`."""

from programs import CRASH, EPERM, MEMORY, TIMEOUT

CODE = {
    "bytecode of nonsense": (
        "def g(): pass\ng.__code__ = g.__code__.replace(co_code=bytes(range(0, 256)) * 4)\ndef f(): return g()",
        {"killed", "exception", "cpu_timeout", "memory"},
    ),
    "constants out of reach": (
        "def g(): return 1\ng.__code__ = g.__code__.replace(co_consts=())\ndef f(): return g()",
        {"killed", "exception", "ok", "unplain", "no_result"},
    ),
    "stack too small": (
        "def g(a): return (a, (a, (a, (a, (a, a, a, a)))))\ng.__code__ = g.__code__.replace(co_stacksize=0)\ndef f(): return g(1)",
        {"killed", "ok (1, (1, (1, (1, (1, 1, 1, 1)))))", "exception"},
    ),
    "stack too large": (
        "def g(): return 1\ng.__code__ = g.__code__.replace(co_stacksize=2**30)\ndef f(): return g()",
        {"killed", "exception OverflowError", *MEMORY, "ok 1"},
    ),
    "flags of another kind": (
        "def g(): return 1\ng.__code__ = g.__code__.replace(co_flags=0xFFFF)\ndef f(): return g()",
        {"killed", "unplain", "exception", "ok 1"},
    ),
    "marshalled nonsense": (
        "import marshal\ndef f(): return marshal.loads(b'c' + b'\\xff' * 99)",
        {"exception", "killed", "memory"},
    ),
    "marshalled recursion": (
        "import marshal\ndef f(): return marshal.loads(b'(\\x01\\0\\0\\0' * 10**6)",
        {"exception ValueError", "exception EOFError", "killed"},
    ),
    "marshalled size": (
        "import marshal\ndef f(): return marshal.loads(b'[' + b'\\xff\\xff\\xff\\x7f')",
        MEMORY | {"exception EOFError"},
    ),
    "marshalled code": (
        "import marshal, types\ndef f(): return types.FunctionType(marshal.loads(marshal.dumps(compile('6 * 7', 'a', 'eval'))), {})()",
        {"ok 42"},
    ),
    "pickled call": (
        "import pickle\ndef f(): return pickle.loads(b'cos\\nsystem\\n(S\"true\"\\ntR.') != 0",
        {"ok True"},
    ),
    "pickled recursion": (
        "import pickle\ndef f(): return pickle.loads(b'(' * 10**6 + b't' * 10**6 + b'.')",
        {"unplain nested too deeply", "exception", *CRASH, *MEMORY},
    ),
    "pickled size": (
        "import pickle\ndef f(): return pickle.loads(b'\\x80\\x04\\x8e' + b'\\xff' * 7 + b'\\x7f')",
        {"exception", "memory"},
    ),
    "exec in other globals": (
        'def f():\n g = {}\n exec(\'def h(): return h.__globals__["__builtins__"]["open"]("/etc/passwd")\', g)\n return g[\'h\']()',
        EPERM,
    ),
    "eval without builtins": (
        'def f(): return eval(\'[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == "FileLoader"][0]("a", "b").get_data("/etc/passwd")\', {\'__builtins__\': {}})',
        EPERM,
    ),
    "source from source": ("def f(): return eval(compile('f.__code__.co_filename', 'a', 'eval'))", {"ok '<program>'"}),
    "reads its own source": (
        "import inspect\ndef f(): return inspect.getsource(f)",
        {"exception OSError", "exception PermissionError"},
    ),
    "syntax error while it runs": ("def f(): exec('(')", {"exception SyntaxError"}),
    "syntax error at the top": ("raise SyntaxError", {"exception SyntaxError"}),
    "memory error of its own": ("class E(MemoryError): pass\ndef f(): raise E", {"memory E"}),
    "group of base exceptions": (
        "def f(): raise BaseExceptionGroup('g', [SystemExit()])",
        {"base_exception BaseExceptionGroup"},
    ),
    "stop": ("def f(): raise StopIteration(1)", {"exception StopIteration"}),
    "generator exit": ("def f(): raise GeneratorExit", {"base_exception GeneratorExit"}),
    "exception without a name": ("class E(Exception): pass\nE.__name__ = ''\ndef f(): raise E", {"exception"}),
    "exception whose construction loops": (
        "class E(Exception):\n def __init__(self):\n  while True: pass\ndef f(): raise E",
        TIMEOUT,
    ),
    "exception that becomes another": (
        "class E(Exception):\n def __new__(cls): return SystemExit()\ndef f(): raise E",
        {"exception TypeError", "base_exception SystemExit"},
    ),
    "exception changes its class": (
        "class A(Exception): pass\nclass B(BaseException): pass\ndef f():\n e = A()\n try: e.__class__ = B\n except TypeError: pass\n raise e",
        {"exception A", "base_exception B"},
    ),
    "cycle of causes": (
        "def f():\n a, b = ValueError(), KeyError()\n a.__cause__, b.__cause__ = b, a\n raise a from b",
        {"exception ValueError"},
    ),
    "exception chain": (
        "def f():\n e = None\n for _ in range(10**5):\n  n = ValueError(); n.__cause__ = e; e = n\n raise e",
        {"exception ValueError", *CRASH},
    ),
    "huge traceback": (
        "import sys\nsys.setrecursionlimit(10**5)\ndef f(n=0):\n if n > 20000: raise ValueError\n f(n + 1)",
        {"exception ValueError", *CRASH, *MEMORY},
    ),
    "f replaced while it runs": ("def f():\n globals()['f'] = lambda: 2\n return 1", {"ok 1"}),
    "f is built in": ("f = list", {"ok []"}),
    "f is a method": ("f = {1: 2}.copy", {"ok {1: 2}"}),
    "f is hidden in a module": ("import sys\nsys.modules['program'].f = lambda: 3", {"ok 3"}),
    "globals with a getter": ("def __getattr__(name): return lambda: 1", {"exception NameError"}),
    "dictionary of the module gone": ("import sys\nsys.modules['program'].__dict__.clear()", {"exception NameError"}),
}

CATEGORIES = {"code": CODE}
