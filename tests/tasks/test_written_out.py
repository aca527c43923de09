"""Literals of answers that leave work to Python's parser, and other forms of what `repr` shows."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.code_tasks import task_of_pairs as make
from trl_populora.executor import literals
from trl_populora.tasks.code.written_out import check_written
from trl_populora.tasks.parsing import fence


SAME = "def f(x):\n    return x"
LEFT = {
    "727": ["0b1011010111", "0x2d7", "0X2D7", "0o1327", "+0x2d7"],
    "[-1, 2]": ["[-0b1, 2]", "[-1, 0B10]"],
    "{1, 3}": ["{3, 3, 1}", "{1, 3, 1,}"],
    "{3: 5, 1: 4}": ["{3: 0, 1: 4, 3: 5}", "{3: 5, 1: 4, 3: 5}"],
    "[{'a': {1}}]": ["[{'a': {1, 1}}]", "[{'a': {2, 3}, 'a': {1}}]"],
    "'abc'": ["'a' 'bc'", "'a'\n'bc'", "('ab' \"c\")", "'''ab''''c'", "'ab\\\nc'"],
    "'Hel'": [r"'\x48el'", r"'H\u0065l'", r"'He\154'", r"'H\U00000065l'", r"'H\N{LATIN SMALL LETTER E}l'"],
    "b'Hel'": [r"b'\x48el'", r"b'He\154'", "b'H' b'el'"],
}
KEPT = {
    "727": ["+727", "7_27", "(727)", " 727\n"],
    "1000.0": ["1e3", "1000.", "1_000.0", "1E+3"],
    "[1, 2]": ["[1,2,]", "[\n    1,\n    2,\n]"],
    "{1: 'b'}": ['{1:"b",}', "{\n 1: 'b'}"],
    r"'it\'s'": ['"it\'s"', "'''it's'''"],
    r"'\n\t\\'": [r'"\n\t\\"', r"'\x0a\x09\\'", "'''\n\\t\\\\'''"],
    r"'é\x00'": [r"'\xe9\0'", r"'\u00e9\x00'"],
    r"b'\xe9a'": [r'b"\351a"', r"B'\xe9a'"],
    r"b'\\u0041'": [r"b'\u0041'"],
    r"'\\x41'": [r"r'\x41'"],
    "(1, -2.5, 1j)": ["1, -2.5, 1j", "(1, -2.5, 1j,)"],
    "{(1, 2), 'x'}": ["{'x', (1,2)}"],
    "set()": [],
    "{}": ["{ }"],
}


@pytest.mark.parametrize("gold, text", [(gold, text) for gold, texts in LEFT.items() for text in texts])
def test_literals_that_leave_work(play, gold, text):
    """Each of them has the right value. As an input it counts, since a student chooses its input."""
    task = make("code_o", SAME, [(gold, gold)])
    assert play.types["code_o"].parse_answer(task, fence("output", text)).reason == "not_literal"
    assert play.solved_all([(make("code_i", SAME, [(gold, gold)]), fence("input", text))]) == [True]


@pytest.mark.parametrize("gold, text", [(gold, text) for gold, texts in KEPT.items() for text in [gold, *texts]])
def test_other_ways_to_write_what_repr_shows(play, gold, text):
    assert play.solved_all([(make("code_o", SAME, [(gold, gold)]), fence("output", text))]) == [True]


atoms = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
plain = st.recursive(
    atoms | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        | st.sets(st.text() | st.integers() | st.tuples(st.integers()), max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
def test_what_repr_shows_is_worked_out(value):
    for text in (repr(value), literals.to_literal(value)):
        check_written(text, literals.parse_literal(text))


@given(st.text(alphabet="[]{}(),:'\"\\\n\r\t 01xbuN_r.e-+é", max_size=40))
def test_any_literal_gets_a_verdict(text):
    with contextlib.suppress(literals.NotLiteral):
        check_written(text, literals.parse_literal(text))


@pytest.mark.parametrize("type, label", [("code_o", "output"), ("code_i", "input")])
def test_an_answer_has_room_for_one_number_a_line(play, type, label):
    text = f"[{', '.join(map(str, range(100, 300)))}]"
    assert 900 <= len(text) <= 1024
    task = make(type, SAME, [(text, text)])
    assert play.solved_all([(task, fence(label, text.replace(" ", "\n    ")))]) == [True]
    assert play.types[type].parse_answer(task, fence(label, f"[{'1, ' * 1500}]")).reason == "too_large"
