"""Canonical bytes: one form per value, and nothing else is accepted."""

import math
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drawn_examples import examples
from trl_populora.executor import canonical


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(exclude_categories=()), max_size=8)
    | st.binary(max_size=8)
)
keys = st.recursive(scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
values = st.recursive(
    scalars | keys,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.sets(keys, max_size=4)
    ),
    max_leaves=12,
)


def encode(value):
    """The bytes, or None for the one odd case that has none: two NaN as keys."""
    try:
        return canonical.encode(value)
    except canonical.Unplain as error:
        assert "same canonical form" in str(error)


def same(a, b) -> bool:
    """An independent definition of equality: exact types, all NaN one, zeros told apart, order of keys ignored."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b) or a != a and b != b
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        pairs = list(b.items())
        return len(a) == len(b) and all(any(same(k, m) and same(v, w) for m, w in pairs) for k, v in a.items())
    if isinstance(a, set | frozenset):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    return a == b


@given(values)
def test_round_trip(value):
    data = encode(value)
    if data is not None:
        assert same(canonical.decode(data), value)
        assert canonical.encode(canonical.decode(data)) == data


@given(values, values)
def test_equal_bytes_mean_equal_values(a, b):
    first, second = encode(a), encode(b)
    if first is not None and second is not None:
        assert (first == second) == same(a, b)


@given(st.lists(st.tuples(keys, values), max_size=5), st.randoms())
def test_order_of_insertion_does_not_show(pairs, random):
    shuffled = list(dict(pairs).items())
    random.shuffle(shuffled)
    assert encode(dict(pairs)) == encode(dict(shuffled))
    assert encode({key for key, _ in pairs}) == encode({key for key, _ in shuffled})


@given(st.binary(max_size=40) | st.text("iscfbNTF[](){}<|>0123456789-:;ae", max_size=40).map(str.encode))
@examples(500)
def test_only_canonical_bytes_are_decoded(data):
    try:
        value = canonical.decode(data)
    except ValueError:
        return
    assert canonical.encode(value, None) == data


@given(values, st.data())
def test_damaged_bytes_never_pass_as_the_same_value(value, choice):
    data = encode(value) or b"N"
    position = choice.draw(st.integers(0, len(data) - 1))
    damaged = data[:position] + bytes([choice.draw(st.integers(0, 255))]) + data[position + 1 :]
    for candidate in (damaged, data[:position], data + b"N"):
        try:
            other = canonical.decode(candidate)
        except ValueError:
            continue
        assert canonical.encode(other) == candidate
        assert candidate == data or not same(other, value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"i;",
        b"i-0;",
        b"i01;",
        b"iF;",
        b"i+1;",
        b"i1",
        b"i" + b"f" * 4000 + b";",
        b"s1:",
        b"s01:a",
        b"s-1:",
        b"s1:\xff",
        b"f\x7f\xf8\x00\x00\x00\x00\x00\x01",
        b"f1234567",
        b"[N",
        b"(N]",
        b"{N}",
        b"{[]N}",
        b"<i2;i1;>",
        b"<i1;i1;>",
        b"<Ti1;>",
        b"<i1;N>",
        b"[" * 100 + b"]" * 100,
        b"NN",
        b"x",
    ],
)
def test_bytes_in_another_form_are_refused(data):
    with pytest.raises(ValueError):
        canonical.decode(data)


class Liar(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class Loop(type):
    @property
    def __name__(cls):
        raise AssertionError("a foreign method was called")


class Looping(metaclass=Loop):
    def __repr__(self):
        raise AssertionError("a foreign method was called")


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


own = []
own.append(own)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Liar(1), "type Liar"),
        ([{"a": (Liar(1),)}], "type Liar"),
        (Looping(), "type Looping"),
        (object(), "type object"),
        (range(3), "type range"),
        ((x for x in "a"), "type generator"),
        (int, "type type"),
        (bytearray(b"a"), "type bytearray"),
        (own, "deeply"),
        (nested(61), "deeply"),
        (2**14_000, "int too large"),
        ("a" * 70_000, "too large"),
        ("\u20ac" * 30_000, "too large"),
        (b"a" * 70_000, "too large"),
        ([[]] * 40_000, "too large"),
        ([None] * 70_000, "too large"),
        ({index * (2**61 - 1) for index in range(200)}, "collide"),
        ({float("nan"), float("nan") + 0}, "same canonical form"),
    ],
    ids=count(),
)
def test_what_is_not_plain(value, reason):
    with pytest.raises(canonical.Unplain, match=reason):
        canonical.encode(value)


def test_keys_made_to_collide_are_refused_before_they_are_hashed():
    data = b"<" + b"".join(b"i%x;" % (index * (2**61 - 1)) for index in range(3000)) + b">"
    with pytest.raises(ValueError, match="collide"):
        canonical.decode(data)


def keys_on_one_path(bits):
    """Ints with different hashes. In a dict of `2 ** bits` places, the first ones fill a path along which CPython
    searches, and the others begin to search near its start."""
    size, path = 1 << bits, [0]
    while len(path) < size * 3 // 5:
        path.append((5 * path[-1] + 1) % size)
    first, early, others, draw = set(path), set(path[: size // 5]), set(), Random(0)
    while len(others) < size // 20:
        key = draw.getrandbits(bits + 5) | size
        place = perturb = key
        while perturb and place % size in first:
            perturb >>= 5
            place = 5 * place + perturb + 1
        if place % size in early:
            others.add(key)
    return [*sorted(first), *sorted(others)]


@pytest.mark.parametrize("form", [b"{%b}", b"<%b>", b"|%b>"], ids=["dict", "set", "frozenset"])
def test_keys_with_different_hashes_that_lead_to_the_same_places(form):
    """Such a dict of 1 MB took 24 s to build, in one call of C."""
    item = b"N" if form[:1] == b"{" else b""
    data = form % b"".join(b"i%x;%b" % (key, item) for key in keys_on_one_path(14))
    with pytest.raises(ValueError, match="collide"):
        canonical.decode(data)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "key",
    [
        lambda i: i,
        lambda i: i << 20,
        lambda i: i << 50,
        lambda i: i * 10**18,
        lambda i: i / 2**17,
        lambda i: i**7,
        str,
        lambda i: (i % 90, i // 90),
        lambda i: complex(i, -i),
    ],
    ids=count(),
)
def test_usual_keys_may_be_many(key):
    value = {key(index): index for index in range(8000)}
    assert canonical.decode(canonical.encode(value, None)) == value
    assert canonical.decode(canonical.encode(set(value), None)) == set(value)


def test_limits_are_exact():
    assert canonical.decode(canonical.encode(nested(60))) == nested(60)
    assert canonical.encode(2**14_000 - 1)
    data = canonical.encode(["abc", 1])
    assert canonical.encode(["abc", 1], len(data)) == data
    with pytest.raises(canonical.Unplain):
        canonical.encode(["abc", 1], len(data) - 1)


def test_decoded_keys_read_in_natural_order():
    value = {16: 0, 2: 0, "b": 0, "aa": 0, -1: 0}
    assert list(canonical.decode(canonical.encode(value))) == [-1, 2, 16, "aa", "b"]
    assert canonical.ordered({16, 2, -1}) == [-1, 2, 16]
