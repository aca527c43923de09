"""Literal text: what a model may write becomes plain values, and nothing else does."""

import ast
import warnings
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_canonical import encode, values

from tests.drawn_examples import examples
from trl_populora.executor import canonical, literals


@given(values)
def test_every_text_reads_back_as_the_same_value(value):
    data = encode(value)
    try:
        text = literals.to_literal(value)
    except literals.NotLiteral:
        return
    assert canonical.encode(literals.parse_literal(text)) == data
    (argument,) = literals.parse_arguments(text + ",", 1 << 20)
    assert canonical.encode(argument) == data


@given(st.lists(values, max_size=3))
def test_arguments_read_back(arguments):
    try:
        text = ", ".join(map(literals.to_literal, arguments))
    except literals.NotLiteral:
        return
    assert canonical.encode(literals.parse_arguments(text, 1 << 20)) == canonical.encode(tuple(arguments))


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(plain)
def test_ordinary_values_have_a_text(value):
    assert literals.parse_literal(literals.to_literal(value)) == value
    assert literals.parse_literal(f"\n  {value!r} \r\n") == value


@given(st.text(max_size=30) | st.text("()[]{},:'\"\\+-.01eEjxbrfTNone \n", max_size=30))
@examples(500)
def test_any_text_is_a_literal_or_refused(text):
    try:
        value = literals.parse_literal(text)
    except literals.NotLiteral:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert canonical.encode(ast.literal_eval(f"({text})")) == canonical.encode(value)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("1, 'a'", (1, "a")),
        ("3", (3,)),
        ("3,", (3,)),
        ("", ()),
        (" \n", ()),
        ("(1, 2)", ((1, 2),)),
        ("(1, 2), [3]", ((1, 2), [3])),
        ("'a' 'b', b'c'", ("ab", b"c")),
        ("[\n 1,\n 2,\n],\n{'a': -1.5}", ([1, 2], {"a": -1.5})),
        ("set(), {1}, None, True", (set(), {1}, None, True)),
        ("-1+2j, 1e3, 0xff, 1_000, .5", (-1 + 2j, 1000.0, 255, 1000, 0.5)),
        ('"""a\n"b""", \'\', r"\\d", "\\d"', ('a\n"b', "", r"\d", r"\d")),
    ],
)
def test_argument_lists(text, arguments):
    assert canonical.encode(literals.parse_arguments(text)) == canonical.encode(arguments)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "f(1)",
        "x=1",
        "*[1]",
        "1), (2",
        "1, (2",
        "[1}",
        "1 # one",
        "1 + 1",
        "1 2",
        "[1][0]",
        "'a'.b",
        "'a' % 1",
        "f'{1}'",
        "1 if True else 2",
        "not 1",
        "...",
        "lambda: 0",
        "__import__('os')",
        "[x for x in (1,)]",
        "{**{}}",
        "{[]: 1}",
        ",",
        "1,,",
        "--1",
        "'a",
        "inf",
        "1;2",
        "a := 1",
        "frozenset()",
        "'\x00",
        "\ud800",
        "\u0661",
    ],
)
def test_other_text_is_refused(text):
    for parse in (literals.parse_arguments, literals.parse_literal):
        with pytest.raises(literals.NotLiteral):
            parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 8000,
        "[" * 4000 + "]" * 4000,
        "(" * 100 + ")" * 100,
        "-" * 8000 + "1",
        "- " * 4000 + "1",
        "1" + "+1" * 4000,
        "1" + "-1j" * 2700,
        "1" * 8000,
        "1e" + "9" * 8000 + "]",
        "0x" + "f" * 8000,
        "'" + "\\" * 8001,
        "'" * 8001,
        '"' * 8000 + "x",
        "{" * 8000,
        "'a'" * 2700 + "b",
        "a" * 8000,
        "1," * 4000 + "x",
        "()" * 4000,
        "'a'()" * 1600,
        "1,\\\n" * 2000,
    ],
    ids=count(),
)
def test_text_made_to_exhaust_a_parser_is_refused(text):
    for parse in (literals.parse_arguments, literals.parse_literal):
        with pytest.raises(literals.NotLiteral):
            parse(text)


def test_long_text_is_refused_before_it_is_read():
    assert literals.parse_arguments("'" + "a" * 8190 + "'")
    for text in ("'" + "a" * 8191 + "'", "'" + "\u20ac" * 3000 + "'"):
        with pytest.raises(literals.NotLiteral, match="more than 8192 bytes"):
            literals.parse_arguments(text)
    assert len(literals.parse_literal("1," * 30_000)) == 30_000
    assert len(literals.parse_literal("'a'" * 20_000)) == 20_000
    with pytest.raises(literals.NotLiteral):
        literals.parse_literal("1," * 40_000)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), [-float("inf")], frozenset(), complex(-0.0, 1), object(), [int]]
)
def test_values_without_a_text(value):
    with pytest.raises(literals.NotLiteral):
        literals.to_literal(value)


def test_text_does_not_depend_on_the_process():
    assert literals.to_literal({"b", "a", 10, 9}) == "{9, 10, 'a', 'b'}"
    assert literals.to_literal({"b": 1, "a": (2,)}) == "{'b': 1, 'a': (2,)}"
    assert literals.to_literal(set()) == "set()"
