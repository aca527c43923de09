"""The statements by which programs are compared."""

import pytest

from tests.code_tasks import code_task, code_types
from trl_populora.tasks.code.statements import UNREADABLE, statements


def body(*lines):
    return statements("def f(x):\n    " + "\n    ".join(lines)) - {"def v(v):"}


def test_names_numbers_and_layout_make_no_other_statement():
    one = statements("def f(x):\n    total = 0\n    for i in x:\n        total += i\n    return total")
    other = statements("def f( values ):\n  s=17\n  for value in values: s += value\n  return s")
    assert one == other == {"def v(v):", "v = int", "for v in v:", "v += v", "return v"}


@pytest.mark.parametrize(
    "program",
    [
        "def f(max):\n    max = max[::-1]\n    return max",
        "def f(x) -> None:\n    x = x[::-1]\n    return x",
        "@staticmethod\ndef f(x: int):\n    x: list = x[::-2]\n    return x",
    ],
)
def test_what_changes_no_step_makes_no_other_statement(program):
    assert statements(program) == {"def v(v):", "v = v[::-int]", "return v"}


def test_names_that_a_program_gives_are_alike_wherever_they_stand():
    text = "def {a}(y):\n    global {b}\n    import math as {c}\n    return y\ndef f(x):\n    return {a}(x) + len({b})"
    assert statements(text.format(a="g", b="u", c="m")) == statements(text.format(a="len2", b="w", c="n"))
    assert "return v(v) + len(v)" in statements(text.format(a="g", b="u", c="m"))


def test_what_a_statement_does_makes_another():
    lines = ["x[1:] + [3]", "x[2:] + x[:2]", "sorted(x)[::-1]", "x + 'a'", "f'{len(x)}'", "f'{x}'", "{x: None}"]
    assert len(body(*(f"x = {line}" for line in lines))) == len(lines)


def test_blocks_are_their_headers_and_what_is_in_them():
    lines = ["if x > 1:", "    x = len(x)", "else:", "    return 2", "try:", "    x = 0", "finally:", "    pass"]
    assert body(*lines) == {
        "if v > int:", "v = len(v)", "return int", "try:", "v = int", "pass"
    }  # fmt: skip
    assert body("match x:", "    case [a, *b]:", "        return a") == {"match v:", "return v"}


@pytest.mark.parametrize("text", ["def f(x:", "\0", "x = " + "(" * 5_000])
def test_text_that_is_no_program_is_one_and_the_same(text):
    assert statements(text) == {UNREADABLE}


def test_a_statement_that_is_too_deep_to_be_written_hides_no_other():
    for sign in "-+":
        assert statements(f"def f(x):\n    y = {sign * 2_000}x\n    return x") in (
            {"def v(v):", UNREADABLE, "return v"}, {UNREADABLE},
        )  # fmt: skip


def test_an_induction_task_is_compared_by_what_its_teacher_wrote():
    types = code_types()
    programs = ("def f(x):\n    return x", "def f(x):\n    return sorted(x)[0]")
    one, other = (
        code_task("code_f", program, inputs=["1", "2"], outputs=["1", "2"], message="as it is") for program in programs
    )
    assert types["code_f"].parts(one) == types["code_f"].parts(other)
    told = code_task("code_f", programs[0], inputs=["1", "2"], outputs=["1", "2"], message="another hint")
    assert types["code_f"].parts(one) != types["code_f"].parts(told)
