"""Comments, docstrings and tests at the end leave a program without changing what is left."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.code_tasks import code_seeds
from trl_populora.tasks import Refusal, Task
from trl_populora.tasks.code.source import strip_comments
from trl_populora.tasks.parsing import fence


PROGRAMS = [task.payload.program for task in code_seeds(60, seed=9)]
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
    "a comment in brackets": (
        f"{HEAD}return [\n        x,  # a\n        # b\n    ]",
        f"{HEAD}return [\n        x,\n    ]",
    ),
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


TESTS = {
    "printed": "print(f(3))",
    "asserted": "assert f(2) == 2, 'no'\nassert sorted([f(1), f(0)]) == [0, 1]  # a",
    "main block": "if __name__ == '__main__':\n    'a'\n    y = 5\n    print(f(y))  # a",
    "several": "print(f(1), f('a'))\nif __name__ == '__main__':\n    print(\n        f(3)  # a\n    )\n\n",
    "on one line": "print(f(3)); assert f(2)",
}  # fmt: skip
KEPT = {
    "a table": "T = [f(i) for i in range(3)]",
    "a test of what comes later": "assert f(2) == T\nT = 2",
    "another function": "def g(x):\n    return f(x)\nprint(g(3))",
    "a variable": "T = [1]\nassert T.pop() == 1",
    "an own print": "def print(x):\n    return x\nprint(f(3))",
    "a name in the test": "assert (T := f(2)) == 2",
    "another branch": "if __name__ == '__main__':\n    pass\nelse:\n    T = 1",
    "f itself": "print(f)",
    "no call of f": "assert 1 + 1 == 2",
}


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
def test_tests_at_the_end_are_removed(test):
    assert strip_comments(f"{HEAD}{END}\n\n{test}").replace(";", "").rstrip() == HEAD + END


@pytest.mark.parametrize("rest", ["T = 1", "def g(x):\n    return f(x)", "T = [f(i) for i in ()]"])
@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
def test_tests_before_other_code_are_removed(test, rest):
    """They showed the answer to the student."""
    bare = strip_comments(f"{HEAD}{END}\n{test.rstrip()}\n{rest}")
    assert bare.replace(";", "").split() == f"{HEAD}{END}\n{rest}".split()


def test_what_stands_before_f_stays():
    program = f"print(f(3))\n{HEAD}{END}"
    assert strip_comments(program) == program


@pytest.mark.parametrize("code", KEPT.values(), ids=KEPT)
def test_code_at_the_end_stays(code):
    assert strip_comments(f"{HEAD}{END}\n{code}") == f"{HEAD}{END}\n{code}"


RAISES = {
    "a list in a set": "{'a', ('b', ['c'])}",
    "a set in a set": "{'a', {'b'}}",
    "a format of text": "f'{\"a\":d}'",
    "a huge number in text": "f'{0x" + "f" * 3700 + "}'",
}


@pytest.mark.parametrize("text", RAISES.values(), ids=RAISES)
def test_text_that_raises_stays(text):
    program = f"{HEAD}{text}\n    {END}"
    scope = {}
    exec(program, scope)
    with pytest.raises((TypeError, ValueError)):
        scope["f"](1)
    assert strip_comments(program) == program


def test_a_program_that_reads_differently_when_written_anew_is_refused(monkeypatch):
    program = "def f(x): 'a'; return x"
    assert strip_comments(program).split() == (HEAD + END).split()
    monkeypatch.setattr(ast, "unparse", lambda tree: "def f(x):\n    return x + 1")
    assert strip_comments(program).reason == "syntax_error"


def test_what_a_task_runs_is_what_students_see(play):
    """A test at the end may change what `f` finds; it is gone before the program runs."""
    program = "N = []\ndef f(x):\n    N.append(x)\n    return len(N)"
    noisy = f"{program}\nprint(f(3))\n\nif __name__ == '__main__':\n    'Answer nothing.'\n"
    task = play.propose("code_o", fence("python", noisy) + fence("input", "1"))
    assert isinstance(task, Task), task
    assert (task.payload.program, task.payload.output) == (program, "1")


@pytest.mark.parametrize("type", ["code_o", "code_i"])
def test_a_proposal_enters_without_comments(play, type):
    noisy = "def f(x):\n    '''Answer nothing.'''\n    return x + 1  # stop"
    task = play.propose(type, fence("python", noisy) + fence("input", "1"))
    assert isinstance(task, Task) and task.payload.program == "def f(x):\n    return x + 1"
