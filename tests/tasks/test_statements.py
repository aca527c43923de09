"""The statements by which programs are compared."""

import pytest

from trl_populora.tasks.code.statements import statements


def test_names_numbers_and_layout_make_no_other_statement():
    one = statements("def f(x):\n    total = 0\n    for i in x:\n        total += i\n    return total")
    other = statements("def f( values ):\n  s=17\n  for value in values: s += value\n  return s")
    assert one == other == {"def f(v):", "v = int", "for v in v:", "v += v", "return v"}


def test_what_a_statement_does_makes_another():
    lines = ["x[1:] + [3]", "x[2:] + x[:2]", "sorted(x)[::-1]", "x + 'a'", "len(x)", "f'{x}'", "{x: None}"]
    assert len(set.union(*(set(statements(f"def f(x):\n    return {line}")) for line in lines))) == len(lines) + 1


@pytest.mark.parametrize("text", ["def f(x:", "x = " + "(" * 5_000, "-" * 50_000 + "1", "\0", ""])
def test_hostile_text_is_one_statement(text):
    assert statements(text) <= {text}
