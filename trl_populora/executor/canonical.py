"""The canonical form of plain values: one byte string for each value. Results are sent and compared in this form only.

Plain types are exactly `int`, `bool`, `None`, `float`, `complex`, `str`, `bytes`, `list`, `tuple`, `dict`, `set` and
`frozenset`. Subclasses are refused, so no method of a foreign class is called. Equal bytes mean equal values of the
same types at every level: `1`, `1.0` and `True` differ, and so do `0.0` and `-0.0`. All NaN are equal. Dicts and sets
are sorted by key, numbers and text in their natural order. So the bytes do not depend on insertion order or the hash
seed.

`encode` also runs inside the child process, beside hostile code. Therefore this module imports only `math` and
`struct`, and the fork server gives it a private copy of the builtins. `decode` accepts exactly the bytes that `encode`
writes.
"""

from math import isnan
from struct import Struct


TYPE_CHECKING = False  # `typing` itself stays out of the children
if TYPE_CHECKING:
    from typing import Any


MAX_DEPTH = 60
MAX_INT_BITS = 14_000  # below CPython's limit of 4,300 digits for text, so that every plain int has a literal
MAX_COLLISIONS = 100  # of hashes, between the keys of one dict or set
FEW_KEYS = 2_000  # whose dict is built in milliseconds, whatever their hashes
MAX_TRIES = 32  # to find a free place for a key, on average. Usual keys need two, multiples of 2 ** 40 seven

_DOUBLE = Struct(">d")
_NAN = _DOUBLE.pack(float("nan"))
_CLOSERS = {"[": b"]", "(": b")", "{": b"}", "<": b">", "|": b">"}


class Unplain(Exception):
    """The value has no canonical form. The message says why."""


def encode(value: object, max_bytes: int | None = 65536, *, max_depth: int = MAX_DEPTH) -> bytes:
    """
    Encode a plain value.

    Args:
        value (`object`):
            Any object. None of its methods is called.
        max_bytes (`int`, *optional*, defaults to `65536`):
            Refuse values that need more bytes; `None` for no limit.
        max_depth (`int`, *optional*, defaults to `60`):
            Refuse values nested deeper than this.

    Returns:
        `bytes`: the canonical form.

    Raises:
        `Unplain`: if the value is not plain, too deep or too large.
    """
    room = [(1 << 62) if max_bytes is None else max_bytes]
    return _encode(value, room, max_depth)


def _encode(value: "Any", room: list[int], depth: int) -> bytes:
    kind = type(value)
    if kind is int:
        if value.bit_length() > MAX_INT_BITS:
            raise Unplain("int too large")
        data = b"i%x;" % value if value >= 0 else b"i-%x;" % -value
    elif kind is str:
        # Before it is encoded: the text may be gigabytes.
        if len(value) > room[0]:
            raise Unplain("value too large")
        data = value.encode("utf-8", "surrogatepass")
        data = b"s%d:" % len(data) + data
    elif value is None:
        data = b"N"
    elif kind is bool:
        data = b"T" if value else b"F"
    elif kind is float:
        data = b"f" + _double(value)
    elif kind is complex:
        data = b"c" + _double(value.real) + _double(value.imag)
    elif kind is bytes:
        if len(value) > room[0]:
            raise Unplain("value too large")
        data = b"b%d:" % len(value) + value
    else:
        return _encode_container(value, kind, room, depth)
    room[0] -= len(data)
    if room[0] < 0:
        raise Unplain("value too large")
    return data


def _encode_container(value: "Any", kind: type, room: list[int], depth: int) -> bytes:
    if depth <= 0:
        raise Unplain("nested too deeply")
    room[0] -= 2
    if room[0] < 0:
        raise Unplain("value too large")
    if kind is list or kind is tuple:
        body = b"".join([_encode(item, room, depth - 1) for item in value])
        return b"[" + body + b"]" if kind is list else b"(" + body + b")"
    if kind is dict:
        pairs = [(_encode_key(key, room, depth), _encode(item, room, depth - 1)) for key, item in value.items()]
        pairs.sort()
        _check_keys([key for key, _ in pairs])
        return b"{" + b"".join([key[2] + item for key, item in pairs]) + b"}"
    if kind is set or kind is frozenset:
        keys = sorted([_encode_key(item, room, depth) for item in value])
        _check_keys(keys)
        return (b"<" if kind is set else b"|") + b"".join([key[2] for key in keys]) + b">"
    # The name of a foreign type could be computed by its metaclass; this reads it from the type itself.
    raise Unplain(f"type {type.__dict__['__name__'].__get__(kind)} is not plain"[:100])


def _encode_key(key: object, room: list[int], depth: int) -> tuple:
    data = _encode(key, room, depth - 1)
    return _sortable(key, data)


def _sortable(key: object, data: bytes) -> tuple:
    # Integers by size and text by code point, so that a decoded dict reads in the natural order. `encode` has found
    # the key to be plain when it is hashed here.
    tag = data[:1]
    return (tag, key if tag in (b"i", b"s") else data, data, hash(key))


def _check_keys(keys: list) -> None:
    for first, second in zip(keys, keys[1:]):
        if first[:3] == second[:3]:  # two NaN
            raise Unplain("two keys with the same canonical form")
    if _crowded([key[3] for key in keys]):
        raise Unplain("too many keys that collide")


def _crowded(hashes: list) -> bool:
    """
    Whether a dict of keys with these hashes, or a set made of it, would take quadratic time to build.

    That is an attack on the decoding process. Hashes may be equal, or may all differ and still lead to the same
    places. So this looks for free places as CPython does, in a dict of every size that the dict has while it grows.
    """
    if len(hashes) <= MAX_COLLISIONS:
        return False
    same = sorted(hashes)
    if sum([a == b for a, b in zip(same, same[1:])]) > MAX_COLLISIONS:
        return True
    if len(hashes) <= FEW_KEYS:
        return False
    size, some = 2048, 1365
    while some < len(hashes):
        size, some = 2 * size, 4 * size // 3
        if _tries(hashes[:some], size, 1) > MAX_TRIES:
            return True
    while size <= 2 * len(hashes):
        size *= 2
    return _tries(hashes, size, 10) > MAX_TRIES


def _tries(hashes: list, size: int, run: int) -> float:
    """Average number of tries until a key finds a free place in a table. A set tries `run` neighbours at a time."""
    taken, tries, most = bytearray(size), 0, MAX_TRIES * len(hashes)
    for number in hashes:
        place, perturb = number % size, number % (1 << 64)
        while (free := taken.find(0, place, place + (run if place + run <= size else 1))) < 0:
            perturb >>= 5
            place = (5 * place + perturb + 1) % size
            tries += 1
        taken[free] = 1
        if tries > most:
            break
    return tries / len(hashes)


def _double(number: float) -> bytes:
    return _NAN if isnan(number) else _DOUBLE.pack(number)


def decode(data: bytes) -> object:
    """
    Decode canonical bytes, which may come from a hostile program.

    Args:
        data (`bytes`):
            The result of `encode`, or any other bytes.

    Returns:
        `object`: the plain value, equal to the encoded one.

    Raises:
        `ValueError`: if the bytes are not exactly what `encode` writes for some value.
    """
    value, end = _decode(data, 0, MAX_DEPTH)
    if end != len(data):
        raise ValueError("bytes left over after a canonical value")
    return value


def _decode(data: bytes, start: int, depth: int) -> tuple:
    tag = chr(data[start]) if start < len(data) else ""
    start += 1
    if tag == "i":
        return _decode_int(data, start)
    if tag == "s" or tag == "b":
        return _decode_text(data, start, tag)
    if tag == "N" or tag == "T" or tag == "F":
        return {"N": None, "T": True, "F": False}[tag], start
    if tag == "f":
        return _decode_double(data, start), start + 8
    if tag == "c":
        return complex(_decode_double(data, start), _decode_double(data, start + 8)), start + 16
    if tag not in _CLOSERS or not tag:
        raise ValueError("no canonical value: unknown tag")
    if depth <= 0:
        raise ValueError("no canonical value: nested too deeply")
    if tag == "[" or tag == "(":
        items, end = [], start
        while data[end : end + 1] != _CLOSERS[tag]:
            item, end = _decode(data, end, depth - 1)
            items.append(item)
        return items if tag == "[" else tuple(items), end + 1
    return _decode_sorted(data, start, tag, depth)


def _decode_sorted(data: bytes, start: int, tag: str, depth: int) -> tuple:
    keys, items, hashes, last, end = [], [], [], None, start
    while data[end : end + 1] != _CLOSERS[tag]:
        begin = end
        key, end = _decode(data, begin, depth - 1)
        try:
            *order, number = _sortable(key, data[begin:end])
        except TypeError:
            raise ValueError("no canonical value: a key that cannot be hashed") from None
        if last is not None and not last < order:
            raise ValueError("no canonical value: keys out of order")
        last = order
        keys.append(key)
        hashes.append(number)
        if tag == "{":
            item, end = _decode(data, end, depth - 1)
            items.append(item)
    if _crowded(hashes):
        raise ValueError("no canonical value: too many keys that collide")
    value = dict(zip(keys, items)) if tag == "{" else dict.fromkeys(keys)
    if len(value) != len(keys):  # such as 1 and True, which no Python dict holds together
        raise ValueError("no canonical value: equal keys")
    return value if tag == "{" else set(value) if tag == "<" else frozenset(value), end + 1


def _decode_int(data: bytes, start: int) -> tuple:
    end = data.index(b";", start, start + MAX_INT_BITS // 4 + 4)  # ValueError if absent
    text = data[start:end]
    value = int(text, 16)
    if (b"%x" % value if value >= 0 else b"-%x" % -value) != text or value.bit_length() > MAX_INT_BITS:
        raise ValueError("no canonical value: an int in another form")
    return value, end + 1


def _decode_text(data: bytes, start: int, tag: str) -> tuple:
    colon = data.index(b":", start, start + 20)
    size = int(data[start:colon])
    end = colon + 1 + size
    if b"%d" % size != data[start:colon] or size < 0 or end > len(data):
        raise ValueError("no canonical value: a text with a wrong length")
    body = data[colon + 1 : end]
    return (body.decode("utf-8", "surrogatepass") if tag == "s" else body), end


def _decode_double(data: bytes, start: int) -> float:
    packed = data[start : start + 8]
    if len(packed) != 8:
        raise ValueError("no canonical value: a float cut short")
    (number,) = _DOUBLE.unpack(packed)
    if isnan(number) and packed != _NAN:
        raise ValueError("no canonical value: a NaN in another form")
    return number


def ordered(keys: set | frozenset) -> list:
    """The elements of a set of plain values in the order in which `encode` writes them."""
    return sorted(keys, key=lambda key: _sortable(key, encode(key, None)))
