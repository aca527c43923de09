"""Finds the fenced blocks of a completion, in time linear in the length of the text.

This module selects the part of a completion that counts, and finds its blocks. Task types check the content of blocks.
Nothing in this file evaluates or parses code.

A completion may contain other text. Only the text after the last `</think>` counts. If it has an
`<answer>...</answer>`, only the text inside the last one counts. In this text, fenced blocks with a label are used. If
a label occurs more than once, the last block is used.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from textwrap import dedent
from typing import NamedTuple


MAX_COMPLETION = 65_536  # characters, about 16,000 tokens of usual text; a longer completion is refused unread
FENCE = "```"
_PYTHON = re.compile(r"py|python(?:3(?:\.[0-9]+)?)?")
_QUOTED = re.compile(r"^[ \t]*> ?", re.MULTILINE)
_MARKERS = " \t>*+-.)0123456789"  # what stands before a block in a list or a quotation

# Text that a task may not contain: it would close a fence, cut a later completion short, or be read by a tokenizer as
# the end of a turn and so let a proposer write into the solver's prompt.
RESERVED = (FENCE, "<think>", "</think>", "<answer>", "</answer>", "<|", "<s>", "</s>", "[INST]", "[/INST]")
RESERVED += ("<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<\uff5c")

# Signs that look like nothing, or change how others look, although Python calls them printable.
_BLANK = frozenset(
    chr(code)
    for first, last in (
        *((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164)),
        *((0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0000, 0xE01EF)),
    )
    for code in range(first, last + 1)
)

_DECIMAL = re.compile(r"0x([0-9a-f]*\.[0-9a-f]+)p|(?<![0-9])([0-9]*(?:\.[0-9]+)+)", re.IGNORECASE)
VERSION_DIGITS = 5  # of a part of a version, address or date with several points


class Fence(NamedTuple):
    label: str
    body: str


def final_text(completion: str) -> str:
    """
    The part of a completion that counts.

    Args:
        completion (`str`):
            Text as sampled.

    Returns:
        `str`: the text after the last `</think>` (nothing of a reasoning block that was never closed), narrowed to the
        last `<answer>...</answer>` if it has one.
    """
    text = completion.rpartition("</think>")[2]
    text = text.partition("<think>")[0]
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end >= 0 else -1
    return text[start + len("<answer>") : end] if start >= 0 else text


def fences(text: str) -> list[Fence]:
    """
    All closed fenced blocks, in order. A fence opens with three backticks, and ends at the next three backticks. One
    of more backticks ends with as many, and is no fence if other fences are inside. In a quotation, the `>` before the
    lines of a block are taken out. The rest of the first line is as in CommonMark: it holds no backtick, and its first
    word is the label. Labels are lower-case; `py`, `python3` and `python3.11` become `python`, `output:` becomes
    `output`, and a word with other signs, as `c++`, becomes empty. If text stands before the backticks, they are part
    of a sentence unless nothing or one word of letters and digits follows. Bodies lose surrounding blank lines and
    trailing whitespace.
    """
    text = text.replace("\r\n", "\n")
    found, last = [], 0
    at = text.find(FENCE)
    while at >= 0:
        newline = text.find("\n", at)
        if newline < 0:
            break
        line = text[at:newline]
        info = line.lstrip("`")
        marks = line[: len(line) - len(info)]
        info, start = info.strip().lower(), max(last, text.rfind("\n", last, at) + 1)
        before = text[start:at].strip(_MARKERS)
        if "`" in info or before and info and not info.isalnum():  # backticks inside a sentence, not a fence
            at = text.find(FENCE, newline)
            continue
        end = text.find(FENCE, newline)
        if end < 0:
            break
        if not text.startswith(marks, end):  # other fences inside
            at = end
            continue
        body = text[newline + 1 : end]
        if text[start:at].lstrip().startswith(">"):
            body = _QUOTED.sub("", body)
        found.append(Fence(_label(info), _drop_blank_lines(body.rstrip())))
        last = end + len(marks)
        at = text.find(FENCE, last)
    return found


def completion_fences(completion: str) -> list[Fence]:
    """The blocks of the part that counts."""
    return fences(final_text(completion))


def last_body(blocks: list[Fence], label: str) -> str | None:
    """Body of the last block with this label, or `None`. A program that is indented as a whole, as in a list, is moved
    to the left."""
    body = next((block.body for block in reversed(blocks) if block.label == label), None)
    return dedent(body) if body and label == "python" and body[0] in " \t" else body


def fence(label: str, body: str) -> str:
    """Writes a block that [`fences`] can read."""
    return f"{FENCE}{label}\n{body}\n{FENCE}"


def reserved_in(text: str) -> str | None:
    """The first reserved marker that the text contains, or `None`."""
    return next((marker for marker in RESERVED if marker in text), None)


def unseen_in(text: str) -> str | None:
    """The first sign that nobody sees: a control sign, one of direction, without width or blank. Spaces, tabs and line
    breaks are none."""
    return next((sign for sign in text if sign in _BLANK or not (sign.isprintable() or _is_space(sign))), None)


def _is_space(sign: str) -> bool:
    return sign in "\n\t" or unicodedata.category(sign) == "Zs"


def num_bytes(text: str) -> int:
    """Length in UTF-8. Lone surrogates are counted and cause no error."""
    return len(text.encode("utf-8", "surrogatepass"))


def decimals_in(text: str) -> Iterator[str]:
    """
    Every decimal number in a text, without its exponent. A hexadecimal float becomes one with as many digits.

    A run with several points, such as 1.2.3, has no number if its parts are short. Otherwise each point has one.
    """
    for match in _DECIMAL.finditer(text):
        if match[1]:
            yield re.sub("[a-f]", "9", match[1].lower())
            continue
        parts = match[2].split(".")
        if len(parts) == 2 or max(map(len, parts)) > VERSION_DIGITS:
            yield from map(".".join, zip(parts, parts[1:]))


def _label(info: str) -> str:
    word = (info.split(maxsplit=1) or [""])[0].rstrip(":")
    if _PYTHON.fullmatch(word):
        return "python"
    return word if word.isalnum() else ""


def _drop_blank_lines(body: str) -> str:
    start = len(body) - len(body.lstrip())
    return body[body.rfind("\n", 0, start) + 1 :]
