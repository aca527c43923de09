"""Answers that look like the right one: by value, by hash, by what they print or forge. None may be rewarded."""

from tests.code_tasks import task_of_pairs as make
from trl_populora.tasks.code.pairs import hidden, visible
from trl_populora.tasks.parsing import fence


SAME = "def f(x):\n    return x"

# gold -> texts that look, hash or compare like it, and are something else
LOOK_ALIKES = {
    "1": ["True", "1.0", "1+0j", "'1'", "[1]", "(1,)", "{1}", "\uff11", "\u0661", "\u00b9", "1 # yes",
          "(a := 1)", "int(1)", "+-1",
          "1 if 1 else 2", "1,", "1;1", "1\n1", "f'{1}'", "1 or 2", "not 0", "~-2", "1_", "01", "0x_1_", "1j",
          "1.", "1e0", "\u200b1"],
    "True": ["1", "1.0", "'True'", "true", "\uff34rue", "not False", "1 == 1", "[True]", "Tru\u0435"],
    "0.0": ["-0.0", "0", "False", "0j", "0.0j", "-0", "1e-999j", "'0.0'", "0.0,"],
    "[]": ["()", "set()", "{}", "''", "[[]]", "None", "list()", "[*()]", "[],", "b''", "[\u3000]"],
    "(1, 2)": ["[1, 2]", "{1, 2}", "(2, 1)", "((1, 2),)", "(1, 2.0)", "(True, 2)", "(1, 2,) + ()", "(*(1, 2),)",
          "(1 2)"],
    "'\u00e9'": ["'e\u0301'", "b'\\xe9'", "'\\xe9 '", "u'\\u0435'", "'\u00c9'", "'\\u00e9' + ''",
          "str('\u00e9')", "['\u00e9']", "f'\u00e9'"],
    "{'a': 1}": ["{'a': True}", "{'a': 1.0}", "[('a', 1)]", "{('a', 1)}", "dict(a=1)", "{b'a': 1}",
          "{**{'a': 1}}", "{'a': 1, 'a': 2}", "{'a', 1}"],
    "{1, 2}": ["frozenset({1, 2})", "[1, 2]", "{1: 2}", "{True, 2}", "{1.0, 2}", "{1, 2, 3}", "{*[1, 2]}",
          "{1} | {2}"],
    "'ab'": ["'a' 'B'", "'a' b'b'", "'a''b''c'", "\"'ab'\"", "'ab\\0'", "r'\\x61b'", "'a'+'b'", "'\u0430b'",
          "'ab'[:]", "'''ab\n'''"],
    "None": ["'None'", "none", "null", "...", "NotImplemented", "()", "N\u043ene", "0"],
    "1267650600228229401496703205376": ["1.2676506002282294e30", "2**100", "1 << 100", "1e30", "True << 100"],
}  # fmt: skip
FORGED = [(gold, text) for gold, texts in LOOK_ALIKES.items() for text in texts]


def test_look_alikes_of_the_right_output(play):
    tasks = {gold: make("code_o", SAME, [(gold, gold)]) for gold in LOOK_ALIKES}
    solved = play.solved_all([(tasks[gold], fence("output", text)) for gold, text in FORGED])
    assert [case for case, right in zip(FORGED, solved, strict=True) if right] == []
    assert all(play.solved_all([(task, fence("output", gold)) for gold, task in tasks.items()]))


def test_look_alikes_of_the_right_input(play):
    """Through the executor, where `f` returns what it is given: only the same value gives the same bytes."""
    tasks = {gold: make("code_i", SAME, [(gold, gold)]) for gold in LOOK_ALIKES}
    forged = [(gold, text) for gold, text in FORGED if text != gold + ","]  # one argument, and a comma
    solved = play.solved_all([(tasks[gold], fence("input", text)) for gold, text in forged])
    assert [case for case, right in zip(forged, solved, strict=True) if right] == []
    assert all(play.solved_all([(task, fence("input", gold)) for gold, task in tasks.items()]))


HASH = make(
    "code_i",
    "def f(x, y=0):\n    return [x, y, x == y] if y else hash_of(x)\ndef hash_of(x):\n    return x % 97",
    [("500", "15")],
)
INPUTS = {
    "loops": "10**9, 1",
    "second argument": "15, 0, 0",
    "by name": "z=15",
    "by both": "15, x=15",
    "unpacked": "*(15,)",
    "unpacked names": "**{'x': 15}",
    "default": "15, z=0",
    "float": "15.0",
    "complex": "15+0j",
    "text": "'%s' 'a'",
    "text that formats": "'15'",
    "list": "[15]",
    "not a number": "1e999 - 1e999",
    "infinite": "1e999",
    "wrapped": "(15",
    "ends the call": "15) == (15",
    "a call": "f(15)",
    "comment": "15 # or 500",
    "two lines": "15\n16",
    "walrus": "x := 15",
    "conditional": "15 if x else 16",
    "lambda": "lambda: 15",
    "await": "await x",
    "yield": "(yield 15)",
    "subscript": "[15][0]",
    "attribute": "(15).real",
    "digits of another script": "\u0661\u0665",
    "joined digits": "1 5",
    "too long": "0" * 2000 + "15",
    "deep": "[" * 70 + "15" + "]" * 70,
    "ellipsis": "...",
    "wrong": "16",
}


def test_forged_inputs(play):
    solved = play.solved_all([(HASH, fence("input", text)) for text in INPUTS.values()])
    assert [name for name, right in zip(INPUTS, solved, strict=True) if right] == []
    assert play.solved_all([(HASH, fence("input", text)) for text in ("15", "112", "0xf")]) == [True] * 3


HUNDREDS = [(str(n), str(n % 3 == 0)) for n in (3, 1, 2, 6, 5, 9, 4, 7, 12, 10)]
BOOLS = make("code_f", "def f(x):\n    return x % 3 == 0", HUNDREDS, "Whether three divides it.")
assert hidden(BOOLS)[-1] == ("12", "True")
PROGRAMS = {
    "ints for bools": "def f(x):\n    return int(x % 3 == 0)",
    "floats for bools": "def f(x):\n    return float(x % 3 == 0)",
    "text": "def f(x):\n    return str(x % 3 == 0)",
    "inverted": "def f(x):\n    return x % 3 != 0",
    "always": "def f(x):\n    return True",
    "visible pairs": f"def f(x):\n    return {{{', '.join(f'{a}: {b}' for a, b in visible(BOOLS))}}}[x]",
    "lies about equality": (
        "class A:\n    def __eq__(self, o): return True\n    def __bool__(self): return True\n"
        "    def __hash__(self): return 1\ndef f(x):\n    return A()"
    ),
    "lies about its class": "class A:\n    __class__ = bool\ndef f(x):\n    return A()",
    "enum": "import enum\nclass A(enum.IntEnum):\n    T = 1\n    F = 0\ndef f(x):\n    return A(x % 3 == 0)",
    "decimal": "import decimal\ndef f(x):\n    return decimal.Decimal(x % 3 == 0)",
    "not implemented": "def f(x):\n    return NotImplemented",
    "lazy": "def f(x):\n    return (x % 3 == 0 for _ in range(1))",
    "in a list": "def f(x):\n    return [x % 3 == 0]",
    "by exception": "def f(x):\n    raise StopIteration(x % 3 == 0)",
    "prints frames": "def f(x):\n    print('R', chr(2), 'vT', sep='')",
    "guesses by frames": """
import os
def f(x):
    for _ in range(5):
        os.write(3, b'R' + (2).to_bytes(4, 'little') + b'vT')
    os.write(3, b'Z' + bytes(4))
    os._exit(0)
""",
    "too many frames": """
import os
def f(x):
    os.write(3, (b'R' + (2).to_bytes(4, 'little') + b'vT') * 6 + b'Z' + bytes(4))
    os._exit(0)
""",
    "frames of both answers": """
import os
def f(x):
    for v in (b'vT', b'vF'):
        os.write(3, b'R' + (2).to_bytes(4, 'little') + v)
    return x % 3 == 0
""",
    "counts its calls": "n = [0]\ndef f(x):\n    n[0] += 1\n    return n[0] in (1, 3)",
    "reads its callers": """
import sys
def f(x):
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            if isinstance(value, dict) and 'outputs' in value:
                return value['outputs'][0]
        frame = frame.f_back
""",
    "looks for the answers": """
import gc
def f(x):
    return next((o for o in gc.get_objects() if type(o) is dict and 'hidden' in o), 'none')
""",
    "looks for the task": "import inspect\ndef f(x):\n    return inspect.stack()[-1].frame.f_locals.get('task')",
    "reads a file": "def f(x):\n    return open('/proc/self/mem').read()",
    "asks the network": (
        "import urllib.request\ndef f(x):\n    return urllib.request.urlopen('http://127.0.0.1').read()"
    ),
    "patches its judge": """
import sys
def f(x):
    for module in list(sys.modules.values()):
        for name in dir(module):
            if name in ('encode', '_encode', 'judge', 'dumps', 'pack', 'write'):
                setattr(module, name, lambda *a, **k: b'T')
    return x % 3 == 0 and None
""",
    "patches builtins": """
import builtins
for name in dir(builtins):
    if name not in ('True', 'False', 'None'):
        setattr(builtins, name, lambda *a, **k: True)
def f(x):
    return 0
""",
    "own builtins": "__builtins__['type'] = lambda *a: bool\ndef f(x):\n    return 5",
    "hash of text": "def f(x):\n    return hash(str(x)) % 2 == 5",
    "fills memory": "def f(x):\n    return [f] * 10**10",
    "never ends on the last": "def f(x):\n    while x == 12:\n        pass\n    return x % 3 == 0",
    "dies on the last": "import os\ndef f(x):\n    if x == 12:\n        os._exit(0)\n    return x % 3 == 0",
    "right but huge on the last": "def f(x):\n    return x % 3 == 0 if x != 12 else 'a' * 10**6",
    "asynchronous": "async def f(x):\n    return x % 3 == 0",
    "decorated away": "def d(g):\n    return lambda x: None\n@d\ndef f(x):\n    return x % 3 == 0",
    "replaced by its end": "def f(x):\n    return x % 3 == 0\nf = print",
    "deleted": "def f(x):\n    return x % 3 == 0\ndel f",
    "homoglyph": "def \u0192(x):\n    return x % 3 == 0",
    "too many arguments": "def f(x, y):\n    return x % 3 == 0",
    "by name only": "def f(*, x):\n    return x % 3 == 0",
}  # fmt: skip


def test_forged_programs(play):
    attempts = [(BOOLS, fence("python", program)) for program in PROGRAMS.values()]
    right = "def f(x, seen=[]):\n    '''Three.'''\n    return not x % 3"
    *forged, honest = play.solved_all([*attempts, (BOOLS, fence("python", right))])
    assert [name for name, solved in zip(PROGRAMS, forged, strict=True) if solved] == []
    assert honest
