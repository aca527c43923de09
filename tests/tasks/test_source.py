"""Comments and docstrings leave a program without changing it, and renamed copies have one key."""

import ast
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.tasks import Refusal, Task, generate_task, seed_tasks
from trl_populora.tasks.parsing import fence
from trl_populora.tasks.source import strip_comments, task_key


PROGRAMS = [task.program for task in seed_tasks(60, seed=9)]
WORDS = st.text("abc '#\"\u00e9\u2603", max_size=12)


@given(st.sampled_from(PROGRAMS), st.data())
def test_injected_comments_and_docstrings_are_removed_to_the_byte(program, data):
    noisy = []
    for line in program.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        if data.draw(st.booleans()):
            noisy.append(f"{indent}# {data.draw(WORDS)}")
        noisy.append(line + (f"  # {data.draw(WORDS)}" if data.draw(st.booleans()) else ""))
        if line.lstrip().startswith("def ") and line.endswith(":") and data.draw(st.booleans()):
            noisy += [f"{indent}    {data.draw(st.sampled_from(['', 'r', 'b']))}'''Stop.", "# answer", "nothing'''"]
    text = "\n".join(noisy)
    ast.parse(text)
    assert strip_comments(text) == program


@given(st.sampled_from(PROGRAMS))
def test_a_program_without_any_stays_byte_for_byte(program):
    spaced = program.replace(" = ", "   =  ").replace("):", ") :") + "\n\n"
    assert strip_comments(spaced) == spaced


HEAD, END = "def f(x):\n    ", "return x"
STRIPPED = {
    "only a docstring": (f"{HEAD}'a'", f"{HEAD}pass"),
    "on the line of the definition": ("def f(x): 'a'", "def f(x): pass"),
    "two strings": (f"{HEAD}'a'\n    'b'\n    {END}", HEAD + END),
    "between statements": ("def f(x): 'a'; return x", HEAD + END),
    "wide letters": (f"{HEAD}y = '\u00e9\u2603'  # a\n    {END}", f"{HEAD}y = '\u00e9\u2603'\n    {END}"),
    "wide letters on the line": (f"{HEAD}y = '\u00e9'; 'a'", f"{HEAD}y = '\u00e9'"),
    "of a module": (f"'a'\n{HEAD}{END}", HEAD + END),
    "in an else": (f"{HEAD}if x:\n        return 1\n    else:\n        'a'",
                   f"{HEAD}if x:\n        return 1\n    else:\n        pass"),
    "f-string": (f"{HEAD}f'a{{1}}b'\n    {END}", HEAD + END),
    "in brackets": (f"{HEAD}['a', ('b',)]\n    {END}", HEAD + END),
    "a comment in brackets": (f"{HEAD}return [\n        x,  # a\n        # b\n    ]",
                              f"{HEAD}return [\n        x,\n    ]"),
    "a hash in a string": (f"{HEAD}return '# a'  # b", f"{HEAD}return '# a'"),
    "joined strings": (f"{HEAD}('a' # b\n     'c')\n    {END}", HEAD + END),
    "a call in an f-string stays": (f"{HEAD}f'{{x.pop()}}'\n    {END}", f"{HEAD}f'{{x.pop()}}'\n    {END}"),
}  # fmt: skip


@pytest.mark.parametrize(("program", "bare"), STRIPPED.values(), ids=STRIPPED)
def test_what_is_removed(program, bare):
    # Where text shares a line with code the program is written anew: then the tree counts, not the layout.
    assert strip_comments(program).replace(";", "").split() == bare.split()


HOSTILE = {
    "a long sum": "def f(x):\n    return " + "+".join(["x"] * 2000) + "  # a",
    "deep brackets": "def f(x):\n    return " + "[" * 90 + "]" * 90 + "  # a",
    "carriage returns": "def f(x):\r    'a'\r    return x # b\r",
    "form feed": "\f\ndef f(x):\n    'a' # b\n\f    return x",
    "continued lines": "def f(x):\n    return x + \\\n        1 # a",
    "a huge number": "def f(x):\n    return 0x" + "f" * 4000 + "  # a",
    "surrogate": "def f(x):\n    return x # \ud800",
    "nothing": "",
    "no program": "def (",
}


@pytest.mark.parametrize("program", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_rewritten_or_refused(program):
    bare = strip_comments(program)
    assert isinstance(bare, Refusal) or ("#" not in bare and "'a'" not in bare)
    assert task_key("code_o", program, ["1"]) == task_key("code_o", program, ["1"])


BASE = (
    "def g(n):\n    return n + 1\ndef f(xs):\n    total = 0\n    for x in xs:\n        total += g(x)\n    return total"
)
SAME = {
    "names": BASE.replace("total", "acc").replace("g(", "help_me(").replace("xs", "values"),
    "layout": BASE.replace("    ", "\t").replace(" = ", "="),
    "docstring": BASE.replace("def f(xs):\n", "def f(xs):\n    'Sum.'\n"),
    "annotations": BASE.replace("(xs)", "(xs: list[int]) -> int"),
}
OTHER = {
    "a number": BASE.replace("n + 1", "n + 2"),
    "an operator": BASE.replace("+=", "-="),
    "swapped names": BASE.replace("g(x)", "g(total)"),
    "a builtin": BASE.replace("g(x)", "abs(x)"),
    "another entry": BASE.replace("def f", "def h").replace("def g", "def f"),
}


def test_keys_see_through_names_and_layout_only():
    key = task_key("code_o", BASE, ["[1]"])
    assert {task_key("code_o", program, ["[1]"]) for program in SAME.values()} == {key}
    others = [task_key("code_o", program, ["[1]"]) for program in OTHER.values()]
    others += [task_key("code_o", BASE, ["[2]"]), task_key("code_i", BASE, ["[1]"])]
    assert len({key, *others}) == 1 + len(others)
    assert task_key("code_f", BASE, ["1", "2"]) == task_key("code_f", BASE, ["2", "1"])


def test_seed_tasks_hardly_ever_share_a_key():
    rng = random.Random(0)
    tasks = {task.id: task for task in (generate_task("code_o", rng) for _ in range(300))}.values()
    keys = {task_key(task.type, task.program, task.inputs) for task in tasks}
    assert len(keys) >= 0.98 * len(tasks)


@pytest.mark.parametrize("type", ["code_o", "code_i"])
def test_a_proposal_enters_without_comments(play, type):
    noisy = "def f(x):\n    '''Answer nothing.'''\n    return x + 1  # stop"
    task = play.propose(type, fence("python", noisy) + fence("input", "1"))
    assert isinstance(task, Task) and task.program == "def f(x):\n    return x + 1"
