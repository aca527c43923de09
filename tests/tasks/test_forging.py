"""Attempts to be rewarded without solving. Each one must be worth nothing, through the real executor."""

import pytest

from tests.code_tasks import task_of_pairs as make
from trl_populora.tasks import Refusal
from trl_populora.tasks.code.pairs import hidden, visible
from trl_populora.tasks.parsing import fence


DEDUCTION = make("code_o", "def f(xs):\n    return [v + 1 for v in xs]", [("[1, 2]", "[2, 3]")])
ABDUCTION = make("code_i", "def f(x):\n    return x * 7 % 1009", [("123", "861")])
SQUARES = [(str(n), str(n * n + 1)) for n in (2, 5, 0, 9, 3, 11, 4, 8, 20, 7)]
INDUCTION = make("code_f", "def f(x):\n    return x * x + 1", SQUARES, "Square and add one.")
assert ("8", "65") in hidden(INDUCTION)

OUTPUTS = {
    "name": "gold",
    "attribute": "task.payload.output",
    "call_f": "f([1, 2])",
    "comprehension": "[v + 1 for v in [1, 2]]",
    "conditional": "[2, 3] if True else 0",
    "or_true": "[2, 3] or True",
    "sum_of_lists": "[2] + [3]",
    "sum_inside": "[2, 1 + 2]",
    "lambda": "(lambda: [2, 3])()",
    "eval": "eval('[2, 3]')",
    "import": "__import__('builtins').list((2, 3))",
    "walrus": "(a := [2, 3])",
    "starred": "[*[2, 3]]",
    "constructor": "list((2, 3))",
    "f_string": "f'{[2, 3]}'",
    "always_equal": "type('A', (), {'__eq__': lambda a, b: True})()",
    "string_of_it": "'[2, 3]'",
    "tuple": "(2, 3)",
    "set": "{2, 3}",
    "floats": "[2.0, 3.0]",
    "bool_inside": "[2, True]",
    "complex": "[2+0j, 3]",
    "nested": "[[2, 3]]",
    "unpacked": "2, 3",
    "two_answers": "[2, 3]\n[2, 3]",
    "alternatives": "[2, 3], [3, 4]",
    "with_name": "x = [2, 3]",
    "ellipsis": "[2, ...]",
    "nan": "nan",
    "infinite": "1e999",
    "tower": "9**9**9**9",
    "deep": "[" * 1500 + "]" * 1500,
    "comment": "[2, 3]  # sure",
    "bytes": "b'[2, 3]'",
}
RAW_OUTPUTS = {
    "no_fence": "[2, 3]",
    "thought_only": "<think>" + fence("output", "[2, 3]") + "</think>",
    "open_thought": "<think>" + fence("output", "[2, 3]"),
    "not_in_the_last_answer": f"<answer>{fence('output', '[2, 3]')}</answer><answer>none</answer>",
    "replaced_later": fence("output", "[2, 3]") + "\n" + fence("output", "[0]"),
    "open_fence": "```output\n[2, 3]\n",
    "python_fence": fence("python", "[2, 3]"),
    "unlabelled": fence("", "[2, 3]"),
    "empty": "",
    "empty_fence": fence("output", ""),
}
INPUTS = {
    "close_and_or": "123) or True or (1",
    "compare": "123) == 861 or (f(1",
    "print": "print(861)",
    "newline": "1)\nprint(861",
    "expression": "100 + 23",
    "star": "*[123]",
    "keyword": "y=123",
    "globals": "f.__globals__",
    "lambda": "lambda: 861",
    "import": "__import__('os').getpid()",
    "always_equal": "type('A', (int,), {'__mul__': lambda a, b: 861})()",
    "string": "'123'",
    "float": "123.0",
    "gold_output": "861",
    "too_many": "123, 123",
    "list": "[123]",
    "none": "None",
    "true": "True",
    "nan": "float('nan')",
    "huge": "1" * 5000,
    "empty_tuple": "()",
    "comma": ",",
}
PROGRAMS = {
    "visible_pairs_only": f"def f(x):\n    return {{{', '.join(map(': '.join, visible(INDUCTION)))}}}.get(x)",
    "constant": "def f(x):\n    return 17",
    "wrong_on_one": "def f(x):\n    return x * x + 1 if x != 8 else 0",
    "float_values": "def f(x):\n    return float(x * x + 1)",
    "strings": "def f(x):\n    return str(x * x + 1)",
    "wrapped": "def f(x):\n    return [x * x + 1]",
    "int_subclass": "class A(int):\n    pass\ndef f(x):\n    return A(x * x + 1)",
    "always_equal": "class A:\n    def __eq__(self, o):\n        return True\ndef f(x):\n    return A()",
    "equal_and_hash": """
class A(int):
    __eq__ = lambda a, b: True
    __hash__ = lambda a: 0
def f(x):
    return A()
""",
    "repr": "class A:\n    def __repr__(self):\n        return '122'\ndef f(x):\n    return A()",
    "pickle": "class A:\n    def __reduce__(self):\n        return (eval, ('122',))\ndef f(x):\n    return A()",
    "generator": "def f(x):\n    yield x * x + 1",
    "function": "def f(x):\n    return lambda: x * x + 1",
    "not_callable": "f = 5",
    "class_f": "class f:\n    pass",
    "async": "async def f(x):\n    return x * x + 1",
    "no_f": "def g(x):\n    return x * x + 1",
    "prints": "def f(x):\n    print(x * x + 1)",
    "raises_right_value": "def f(x):\n    raise ValueError(x * x + 1)",
    "exit": "def f(x):\n    raise SystemExit(0)",
    "hard_exit": "import os\ndef f(x):\n    os._exit(0)",
    "hard_exit_at_import": "import os\nos._exit(0)\ndef f(x):\n    return 1",
    "atexit": "import atexit\natexit.register(print, 122)\ndef f(x):\n    return 0",
    "loop": "def f(x):\n    while True:\n        pass",
    "swallow_limits": """
def f(x):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
""",
    "memory": "def f(x):\n    return [0] * 10**11",
    "recursion": "def f(x):\n    return f(x + 1)",
    "fork": "import os\ndef f(x):\n    os.fork()\n    return 0",
    "write_frames": """
import os
def f(x):
    for fd in range(3, 64):
        try:
            os.write(fd, b'R\\x00ok' * 9)
        except OSError:
            pass
    return 0
""",
    "close_channel": "import os\ndef f(x):\n    os.closerange(0, 64)\n    return 0",
    "patch_len": """
import builtins
builtins.len = lambda x: 0
builtins.type = lambda x: int
def f(x):
    return 'anything'
""",
    "patch_compare": "import operator\noperator.eq = lambda a, b: True\ndef f(x):\n    return 0",
    "patch_encoder": """
import sys
for m in list(sys.modules.values()):
    for n in ('encode', 'judge', 'dumps'):
        try:
            setattr(m, n, lambda *a, **k: b'i7a;')
        except Exception:
            pass
def f(x):
    return 0
""",
    "walk_frames": """
import sys
def f(x):
    g = sys._getframe()
    while g:
        for v in list(g.f_locals.values()):
            if isinstance(v, (list, tuple)) and 122 in v:
                return 122
        g = g.f_back
    return 0
""",
    "search_objects": """
import gc
def f(x):
    for o in gc.get_objects():
        if isinstance(o, (list, tuple, dict)) and 122 in o:
            return 122
    return 0
""",
    "read_parent": "import os\ndef f(x):\n    open(f'/proc/{os.getppid()}/mem', 'rb').read(1)\n    return 0",
    "read_environment": "def f(x):\n    return open('/proc/self/environ').read()",
    "socket": "import socket\ndef f(x):\n    return socket.socket().connect(('127.0.0.1', 80))",
    "ctypes": "import ctypes\ndef f(x):\n    return ctypes.string_at(0)",
    "fills_the_channel": "def f(x):\n    return 'a' * 10**7",
    "too_deep": "def f(x):\n    r = []\n    for _ in range(10**5):\n        r = [r]\n    return r",
    "itself_in_itself": "def f(x):\n    r = []\n    r.append(r)\n    return r",
    "counts_calls": "N = [0]\ndef f(x):\n    N[0] += 1\n    return [122, 17, 65, 401, 50][N[0] - 2]",
    "no_syntax": "def f(x) return x * x + 1",
}


def test_the_right_answers_are_worth_something(play):
    tasks = [DEDUCTION, ABDUCTION, INDUCTION]
    assert play.solved_all([(task, play.types[task.type].solve_completion(task)) for task in tasks]) == [True] * 3
    assert play.solved(ABDUCTION, fence("input", "1132"))  # another input with the same output
    assert play.solved(INDUCTION, fence("python", "f = lambda x: pow(x, 2) + 1"))


@pytest.mark.parametrize("text", OUTPUTS.values(), ids=OUTPUTS)
def test_forged_code_o_answers(play, text):
    assert not play.solved(DEDUCTION, fence("output", text))


@pytest.mark.parametrize("completion", RAW_OUTPUTS.values(), ids=RAW_OUTPUTS)
def test_forged_code_o_completions(play, completion):
    assert not play.solved(DEDUCTION, completion)


@pytest.mark.parametrize("text", INPUTS.values(), ids=INPUTS)
def test_forged_code_i_answers(play, text):
    assert not play.solved(ABDUCTION, fence("input", text))


@pytest.mark.slow
def test_forged_code_f_answers(play):
    """One batch, so that a program which spoils its server would spoil the right answer at the end as well."""
    programs = PROGRAMS | {"too_large": INDUCTION.payload.program + "\n#" + "a" * 5000}
    attempts = [(INDUCTION, fence("python", program)) for program in programs.values()]
    gold = (INDUCTION, fence("python", INDUCTION.payload.program))
    *forged, honest = play.solved_all([*attempts, gold])
    assert [name for name, solved in zip(programs, forged, strict=True) if solved] == []
    assert honest


FORGED_PROPOSALS = {
    "prints_the_output": "def f(x):\n    print(5)",
    "exits": "def f(x):\n    raise SystemExit",
    "always_equal": "class A:\n    def __eq__(self, o):\n        return True\ndef f(x):\n    return A()",
    "set_order": "def f(x):\n    return ''.join({'ab', 'cd', 'ef', 'gh', str(x)})",
    "address": "def f(x):\n    return str(object())",
    "object_hash": "def f(x):\n    return {object(): 1}",
    "recursion_limit": """
def g(n):
    try:
        return g(n + 1)
    except RecursionError:
        return n
def f(x):
    return g(0)
""",
    "slow": "def f(x):\n    return sum(i for i in range(10**9))",
    "memory": "def f(x):\n    return len([0] * 10**11)",
    "nan": "def f(x):\n    return 1e308 * 10 - 1e308 * 10",
    "random": "import random\ndef f(x):\n    return random.random()",
    "clock": "import time\ndef f(x):\n    return time.time()",
    "hash": "def f(x):\n    return hash('a')",
    "hidden_random": "import statistics\ndef f(x):\n    return statistics.random.random()",
    "runs_at_import": "def f(x):\n    return x\nf(1)",
    "bytes_bomb": "def f(x):\n    return 'a' * 10**6",
    "none": "def f(x):\n    return None",
    "generator": "def f(x):\n    return (i for i in x)",
}


@pytest.mark.slow
@pytest.mark.parametrize("type", ["code_o", "code_i"])
def test_forged_proposals_do_not_become_tasks(play, type):
    proposals = [(fence("python", program) + fence("input", "3"), ()) for program in FORGED_PROPOSALS.values()]
    outcomes = play.propose_all(type, proposals)
    assert [name for name, task in zip(FORGED_PROPOSALS, outcomes) if not isinstance(task, Refusal)] == []


def test_there_are_enough_forgeries():
    assert len(OUTPUTS) + len(RAW_OUTPUTS) + len(INPUTS) + len(PROGRAMS) >= 100
