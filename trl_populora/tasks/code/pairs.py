"""The visible and hidden pairs of a `code_f` task, and what its message must not say."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Collection, Sequence

from trl_populora.tasks.code.hygiene import parse
from trl_populora.tasks.task import Refusal, Task


BETWEEN = (
    r"(?:\W|\b(?:is|gives|gets|returns|becomes|yields|makes|maps|results|turns|comes|from|into|to|the|output|in)\b)"
    r"{1,20}?"
)
MIN_LEAK = 16  # characters without whitespace: a shorter body, such as `returnx`, is also ordinary English
MAX_SPLITS = 20  # of pairs with two outputs of another kind, more than half of the splits have one on each side


def visible(task: Task) -> tuple[tuple[str, str], ...]:
    """The half of the pairs, rounded down, that the student sees. A hash of the task chooses it."""
    return tuple(task.payload.pairs[i] for i in _shown(task))


def hidden(task: Task) -> tuple[tuple[str, str], ...]:
    """The other pairs, on which the answer is judged and which no prompt ever shows."""
    shown = set(_shown(task))
    return tuple(pair for i, pair in enumerate(task.payload.pairs) if i not in shown)


def _shown(task: Task) -> list[int]:
    """Indices of the visible pairs, in order. A teacher cannot know them in advance.

    If the hidden outputs of the first split are equal, a constant would be right. Then it is the first of some more
    splits, all drawn from the hash, in which neither the hidden nor the visible ones are equal, if there is one.
    """
    inputs, outputs = task.payload.inputs, task.payload.outputs
    first = _split(task.id, inputs, 0)
    others = (_split(task.id, inputs, draw) for draw in range(1, MAX_SPLITS))
    fair = (own for own in others if _varied(outputs, own) and _varied(outputs, _rest(outputs, own)))
    return first if _varied(outputs, _rest(outputs, first)) else next(fair, first)


def _split(key: str, inputs: Sequence[str], draw: int) -> list[int]:
    def rank(place: int) -> tuple[bytes, int]:
        text = f"{key}:{draw or ''}{inputs[place]}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), place

    return sorted(sorted(range(len(inputs)), key=rank)[: len(inputs) // 2])


def _rest(outputs: Sequence[str], places: Collection[int]) -> list[int]:
    return [place for place in range(len(outputs)) if place not in places]


def _varied(outputs: Sequence[str], places: Collection[int]) -> bool:
    """Whether there are different outputs at these places, or only one place."""
    return len(places) < 2 or len({outputs[place] for place in places}) > 1


def leaks_program(message: str, program: str) -> bool:
    """Whether a message quotes the program, a definition of `f`, or the body of `f`, whatever the whitespace."""
    message = _squeeze(message)
    if _squeeze(program) in message or "deff(" in message:
        return True
    tree = parse(program)
    if isinstance(tree, Refusal):
        return False
    entries = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "f"]
    lines = [line.encode() for line in re.split(r"\r\n|\r|\n", program)]
    bodies = [_squeeze("".join(_source(lines, statement) for statement in f.body)) for f in entries]
    return any(len(body) >= MIN_LEAK and body in message for body in bodies)


def lists_pairs(message: str, pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether a message states more than half of these pairs: the input, at most a verb and signs, the output."""
    stated = [
        re.search(rf"(?<!\w){re.escape(given)}{BETWEEN}{re.escape(output)}(?!\w)", message) for given, output in pairs
    ]
    return 2 * sum(map(bool, stated)) > len(pairs)


def one_output(task: Task) -> bool:
    """Whether all outputs are equal, all that the student would see, or all that are hidden. A single pair does not
    count as equal."""
    outputs, shown = task.payload.outputs, _shown(task)
    return len({*outputs}) < 2 or not (_varied(outputs, shown) and _varied(outputs, _rest(outputs, shown)))


def _source(lines: Sequence[bytes], node: ast.stmt) -> str:
    """Text of a statement. `ast.get_source_segment` divides the program into lines again each time."""
    last = node.end_lineno or node.lineno
    text = b"\n".join(lines[node.lineno - 1 : last])
    return text[node.col_offset : len(text) - len(lines[last - 1]) + (node.end_col_offset or 0)].decode()


def _squeeze(text: str) -> str:
    return "".join(text.split())
