"""Chains: programs that change one state by short statements, one after the other. Their depth sets the difficulty.

The state is a list of digits, a short string or a small dict. Each statement is easy. The difficulty is to follow the
state through many statements. Families of one kind differ in depth. Programs of `..._blocks` also have a branch or a
loop. Those of `..._held_out` have statements that are in no other family, to measure generalisation.

Chains are a small world for experiments with self-play. A run uses them only if it names them.
"""

from __future__ import annotations

import ast
import itertools
import random
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from textwrap import indent
from typing import Any

from trl_populora.tasks.code.families.draw import Family, Sample, block, define, forever, ints, letters
from trl_populora.tasks.code.hygiene import entry, parse
from trl_populora.tasks.task import Refusal


LETTERS = "abcd"
Statement = tuple[str, str]
"""Text with the placeholders D (a digit from 1), A and B (two letters), and the remark that belongs to it."""


def _table(text: str) -> tuple[Statement, ...]:
    lines = (line.partition("  # ") for line in block(text).splitlines())
    return tuple((statement, remark) for statement, _, remark in lines)


@dataclass(frozen=True)
class Kind:
    """One kind of state.

    Args:
        name (`str`): Start of the names of its families.
        draw (`Callable[[random.Random], Any]`): Draws a first state.
        statements (`tuple[Statement, ...]`), held_out (`tuple[Statement, ...]`): Statements that change it. Those in
            `held_out` are used only in the family of that name.
        tests (`tuple[Statement, ...]`): Conditions of a branch.
        sizes (`tuple[int, int]`): Smallest and largest length of a state between two statements. An empty
            state would make the rest of the chain trivial.
    """

    name: str
    draw: Callable[[random.Random], Any]
    statements: tuple[Statement, ...]
    held_out: tuple[Statement, ...]
    tests: tuple[Statement, ...]
    sizes: tuple[int, int]


DIGITS = Kind(
    "chain_digits",
    lambda rng: ints(rng, least=3, most=5),
    _table("""
        x = x[::-1]  # turn around
        x = sorted(x)  # sort
        x = x + [D]  # put D behind
        x = [D] + x  # put D in front
        x = x[1:]  # drop the first
        x = x[:-1]  # drop the last
        x = [(v + D) % 10 for v in x]  # add D to each modulo 10
        x = [v * D % 10 for v in x]  # each times D modulo 10
        x = [9 - v for v in x]  # nine minus each
        x = [v for v in x if v > D]  # keep those above D
        x = [v for v in x if v != D]  # keep those unlike D
        x = x[1:] + x[:1]  # move the first to the end
        x = x[-1:] + x[:-1]  # move the last to the front
        x = x[::2]  # every second
        x = x[:3]  # the first three
    """),
    _table("""
        x = x[2:] + x[:2]  # move the first two to the end
        x = x[1:] + [D]  # drop the first and put D behind
        x = [v for v in x if v < D]  # keep those below D
        x = sorted(x)[::-1]  # sort downwards
        x = x[-3:]  # the last three
    """),
    _table("""
        len(x) > 3  # it has more than three
        D in x  # it holds D
    """),
    (2, 6),
)
TEXT = Kind(
    "chain_text",
    lambda rng: letters(rng, LETTERS, least=3, most=5),
    _table("""
        x = x[::-1]  # turn around
        x = ''.join(sorted(x))  # sort
        x = x + 'A'  # put A behind
        x = 'A' + x  # put A in front
        x = x[1:]  # drop the first
        x = x[:-1]  # drop the last
        x = x.replace('A', 'B')  # each A becomes B
        x = x.replace('A', '')  # drop each A
        x = x.replace('A', 'AB')  # put B behind each A
        x = x[1:] + x[:1]  # move the first to the end
        x = x[-1:] + x[:-1]  # move the last to the front
        x = x[::2]  # every second
        x = x[:3]  # the first three
    """),
    _table("""
        x = x[2:] + x[:2]  # move the first two to the end
        x = x[1:] + 'A'  # drop the first and put A behind
        x = x.replace('A', 'BA')  # put B in front of each A
        x = ''.join(sorted(x))[::-1]  # sort downwards
        x = x[-3:]  # the last three
    """),
    _table("""
        len(x) > 3  # it has more than three
        'A' in x  # it holds A
    """),
    (2, 6),
)
TABLE = Kind(
    "chain_table",
    lambda rng: {key: rng.randint(0, 9) for key in sorted(rng.sample(LETTERS, rng.randint(2, 4)))},
    _table("""
        x['A'] = D  # set A to D
        x['A'] = x.get('B', D)  # set A to what B is, or to D
        x.pop('A', D)  # drop A
        x = {k: (v + D) % 10 for k, v in x.items()}  # add D to each modulo 10
        x = {k: v * D % 10 for k, v in x.items()}  # each times D modulo 10
        x = {k: 9 - v for k, v in x.items()}  # nine minus each
        x = {k: v for k, v in x.items() if v > D}  # keep those above D
        x = {k: v for k, v in x.items() if k != 'A'}  # keep those but A
    """),
    _table("""
        x['A'] = len(x)  # set A to how many there are
        x = {k: v for k, v in x.items() if v < D}  # keep those below D
        x = {k: (v + D) % 10 for k, v in x.items() if k != 'A'}  # drop A and add D to each modulo 10
    """),
    _table("""
        len(x) > 2  # it has more than two
        'A' in x  # it holds A
    """),
    (1, 4),
)
KINDS = (DIGITS, TEXT, TABLE)
DEPTHS = {"short": (1, 2), "middle": (3, 6), "long": (7, 12), "blocks": (2, 8), "held_out": (1, 12)}
"""End of a family's name -> least and greatest depth. Shares fall with depth, as 1 / depth."""


def depth(program: str) -> int | None:
    """
    The depth of a chain: the number of statements of `f` that are assignments or calls. Those in a loop over
    `range(k)` count k times. Those of a branch count whether or not it is taken.

    Args:
        program (`str`): Any text. It is parsed and not run.

    Returns:
        `int` or `None`: 0 for a function that only returns. `None` if the text defines no function `f`, or if `f` has
        anything else than assignments, calls, branches, such loops and a return at the end.
    """
    tree = parse(program)
    function = None if isinstance(tree, Refusal) else entry(tree)
    if function is None or not isinstance(function.body[-1], ast.Return):
        return None
    return _statements(function.body[:-1])


def _statements(body: list[ast.stmt]) -> int | None:
    counts = []
    for node in body:
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)):
            counts.append(1)
        elif isinstance(node, (ast.If, ast.For)) and not (node.orelse and isinstance(node, ast.For)):
            inner, times = _statements([*node.body, *node.orelse]), 1
            if isinstance(node, ast.For):
                times = _times(node.iter)
            counts.append(None if inner is None or times is None else inner * times)
        else:
            return None
    return None if None in counts else sum(counts)


def _times(node: ast.expr) -> int | None:
    """k of `range(k)`."""
    match node:
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(times))], keywords=[]):
            return int(times)
    return None


def run_statement(text: str, state: Any) -> Any:
    """Runs one statement in this process and returns the new state. Only for statements of this module, never for
    other text.
    """
    scope = {"x": copy(state)}
    exec(_compiled(text), scope)  # a statement of this package
    return scope["x"]


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Any:
    return compile(text, "chain", "exec")


def fill(rng: random.Random, statement: Statement) -> Statement:
    """A statement with its placeholders replaced, with the same values in its text and its remark."""
    first, second = rng.sample(LETTERS, 2)
    values = str.maketrans({"D": str(rng.randint(1, 9)), "A": first, "B": second})
    text, remark = statement
    return text.translate(values), remark.translate(values)


def chain(rng: random.Random, kind: Kind, depth: int, *, blocks: bool = False, held_out: bool = False) -> Sample:
    """Draws a program of a given depth.

    Args:
        rng (`random.Random`): Random generator.
        kind ([`Kind`]): Kind of the state.
        depth (`int`): Statements, as [`depth`] counts them.
        blocks (`bool`, *optional*, defaults to `False`): With one branch or loop, if the depth is at least 2.
        held_out (`bool`, *optional*, defaults to `False`): Every second statement, at least one, is a held-out one.
    """
    start = kind.draw(rng)
    state, lines, remarks, done = start, [], [], 0
    block_at = rng.randrange(depth - 1) if blocks and depth > 1 else None
    held_out_at = set(range(rng.randrange(min(2, depth)), depth, 2)) if held_out else set()
    while done < depth:
        text, remark = fill(rng, rng.choice(kind.held_out if done in held_out_at else kind.statements))
        times, head = 1, None
        if block_at is not None and done >= block_at:
            times, head, when = _block(rng, kind, depth - done)
            remark = f"{when} {remark}"
        states = [state]
        if head is None or not head.startswith("if") or _holds(head, state):
            for _ in range(times):
                states.append(run_statement(text, states[-1]))
        if not all(kind.sizes[0] <= len(one) <= kind.sizes[1] for one in states):
            continue
        state, done = states[-1], done + times
        lines += [text] if head is None else [head, indent(text, "    ")]
        remarks.append(remark)
        block_at = block_at if head is None else None
    supply = itertools.chain([(start,)], forever(lambda: (kind.draw(rng),)))
    message = "; ".join(remarks)
    return define("x", *lines, "return x"), supply, f"{message[0].upper()}{message[1:]}."


def _block(rng: random.Random, kind: Kind, room: int) -> tuple[int, str, str]:
    """The number of times the body runs, the line above the body, and that line in words."""
    if room > 1 and rng.random() < 0.5:
        times = rng.randint(2, min(3, room))
        return times, f"for _ in range({times}):", f"{times} times:"
    test, remark = fill(rng, rng.choice(kind.tests))
    return 1, f"if {test}:", f"if {remark}:"


def _holds(head: str, state: Any) -> bool:
    return run_statement(f"x = {head.removeprefix('if ').removesuffix(':')}", state)


def _family(kind: Kind, level: str) -> Family:
    least, most = DEPTHS[level]
    depths = range(least, most + 1)
    weights = [1 / one for one in depths]

    def family(rng: random.Random) -> Sample:
        (one,) = rng.choices(depths, weights)
        return chain(rng, kind, one, blocks=level == "blocks", held_out=level == "held_out")

    family.__name__ = f"{kind.name}_{level}"
    return family


CHAINS = tuple(_family(kind, level) for kind in KINDS for level in DEPTHS)
