"""`countdown`: reach a target from given numbers with + - * / and parentheses, every number exactly once.

A type without programs, so it needs no executor. The teacher writes only one expression. Its numbers, sorted, become
the puzzle's numbers, and its exact value becomes the target. So every puzzle has a solution (our choice). Every number
must be used, as in TinyZero. Otherwise, a puzzle of six numbers could have an answer with two. The parser below reads
expressions and computes them in exact fractions. Nothing is evaluated as Python.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import add, mul, sub, truediv
from typing import ClassVar, NamedTuple

from trl_populora.tasks.base import Features, Message, Run, TaskType
from trl_populora.tasks.parsing import completion_fences, fence, last_body
from trl_populora.tasks.task import Answer, Draft, Payload, Refusal, Task
from trl_populora.tasks.wording import REASONING_NOTE, paragraphs, user


MAX_TEXT, MAX_DIGITS, MAX_DEPTH = 256, 6, 24  # of one expression: characters, digits of a number, open parentheses
FAMILY_SIZES = {"two_numbers": 2, "three_numbers": 3, "four_numbers": 4, "five_numbers": 5, "six_numbers": 6}
OPERATIONS = {"+": add, "-": sub, "*": mul, "/": truediv}
PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
_ALPHABET, _TOKEN = re.compile(r"[-+*/()0-9\s]*"), re.compile(r"[0-9]+|[-+*/()]")


class Expression(NamedTuple):
    """A parsed expression."""

    text: str  # its one normal form: single spaces, and only the parentheses that keep its tree
    value: Fraction | None  # exact; None where it divides by zero
    numbers: tuple[int, ...]  # in the order of writing
    parts: tuple[Fraction | None, ...] = ()  # values of all smaller expressions in it, numbers included
    depth: int = 0  # operations on the longest way from a number to the result
    precedence: int = 3  # that of its last operation, 3 for a number

    def __str__(self) -> str:  # what results of exams show as the answer
        return self.text


@dataclass(frozen=True)
class CountdownPuzzle(Payload):
    """Numbers, target and the author's own solution."""

    numbers: tuple[int, ...]  # in ascending order
    target: int
    solution: str  # an expression in normal form, which no prompt of a solver shows


@dataclass(frozen=True)
class Countdown(TaskType):
    """Arithmetic puzzles. Teachers write an expression. Students see its numbers and its value, and write an
    expression, too.

    Args:
        min_numbers (`int`, *optional*, defaults to `2`): Minimum number of numbers in a puzzle.
        max_numbers (`int`, *optional*, defaults to `6`): Maximum number of numbers in a puzzle.
        largest_number (`int`, *optional*, defaults to `100`): Numbers are between 1 and this.
        largest_target (`int`, *optional*, defaults to `1000`): Targets are between 1 and this.
    """

    id: ClassVar[str] = "countdown"
    payload: ClassVar[type[Payload]] = CountdownPuzzle
    families: ClassVar[tuple[str, ...]] = tuple(FAMILY_SIZES)
    reasons: ClassVar[dict[str, str]] = {
        "no_expression": "no ```expression block, or an empty one",
        "not_an_expression": "something else than numbers, + - * / and parentheses, or too long or too deep",
        "number_count": "a puzzle with too few or too many numbers",
        "number_range": "a puzzle with a number that is too large, or zero",
        "target_range": "a target that is not a whole number, below 1 or too large, or a division by zero",
        "trivial": "a part of the solution has the target's value already, such as one of the numbers",
    }

    min_numbers: int = 2
    max_numbers: int = 6
    largest_number: int = 100
    largest_target: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.min_numbers <= self.max_numbers <= max(FAMILY_SIZES.values()):
            raise ValueError(
                "2 <= min_numbers <= max_numbers <= 6 must hold, got "
                f"min_numbers={self.min_numbers} and max_numbers={self.max_numbers}"
            )
        least = sum(range(self.max_numbers + 1))  # the simplest puzzle is 1 + 2 + ...
        for name in ("largest_number", "largest_target"):
            if not least <= getattr(self, name) < 10**MAX_DIGITS:
                raise ValueError(f"{name} must be {least} to {10**MAX_DIGITS - 1}, got {getattr(self, name)}")

    def propose_prompt(self, references: Sequence[Task], rng: random.Random) -> list[Message]:
        chosen = rng.sample(list(references), min(self.max_references, len(references)))
        shown = "\n".join(fence("expression", task.payload.solution) for task in chosen)
        sizes = " to ".join(map(str, sorted({self.min_numbers, self.max_numbers})))
        if self.style == "compact":
            ask = f"Write a new expression of {sizes} numbers with + - * / in an ```expression block."
            return user(paragraphs(ask, shown))
        return user(
            paragraphs(
                "Invent a countdown puzzle. You write its solution, which is one arithmetic expression. The solver "
                "will see the numbers of your expression, sorted, and its value as the target, and must find an "
                "expression that reaches the target with each of the numbers used exactly once.",
                "Make the way to the target hard to find: several kinds of operations that depend on each other, and "
                "a target that says little about them. Any expression that fits counts as a solution, so avoid "
                "puzzles that many expressions solve.",
                f"Rules:\n- The expression has {sizes} whole numbers, each from 1 to {self.largest_number}; numbers "
                "may repeat.\n- Between them stand only + - * / and parentheses. There is no sign in front of a "
                "number.\n- Its value is a whole number from 1 to "
                f"{self.largest_target}. Values on the way may be negative or fractions; all is computed exactly.\n"
                "- No number and no smaller part of the expression has the value of the whole.\n"
                "- It is not an earlier puzzle: the same numbers with the same target are the same puzzle.",
                shown and "These are solutions of earlier puzzles. Write one that is new and not easier:",
                shown,
                REASONING_NOTE + " Then give exactly this block:",
                fence("expression", "..."),
            )
        )

    def parse_proposal(self, completion: str, references: Sequence[Task]) -> Draft | Refusal:
        expression = _read(completion)
        if isinstance(expression, Refusal):
            return expression
        puzzle = self.puzzle(expression)
        if isinstance(puzzle, Refusal):
            return puzzle
        key = self.key(puzzle)
        if any(self.key(task.payload) == key for task in references):
            return Refusal("duplicate", "repeats a reference")
        return Draft(key, puzzle)

    def puzzle(self, expression: Expression) -> CountdownPuzzle | Refusal:
        """The puzzle whose solution is this expression, or the refusal under these settings."""
        count, value = len(expression.numbers), expression.value
        if not self.min_numbers <= count <= self.max_numbers:
            return Refusal("number_count", f"{count} numbers; {self.min_numbers} to {self.max_numbers} are wanted")
        if not all(1 <= number <= self.largest_number for number in expression.numbers):
            return Refusal("number_range", f"a number that is not from 1 to {self.largest_number}")
        if value is None or value.denominator != 1 or not 1 <= value <= self.largest_target:
            wanted = f"a whole number from 1 to {self.largest_target} is wanted"
            return Refusal("target_range", f"the value is {'undefined' if value is None else value}; {wanted}")
        if value in expression.parts:
            return Refusal("trivial", f"a part of the expression has the value {value} already")
        return CountdownPuzzle(tuple(sorted(expression.numbers)), int(value), expression.text)

    def verify(self, drafts: Sequence[Draft], run: Run) -> list[Payload | Refusal]:
        return [draft.content for draft in drafts]  # all was decided when they were parsed

    def propose_completion(self, task: Task) -> str:
        return self.solve_completion(task)

    def solve_prompt(self, task: Task) -> list[Message]:
        puzzle: CountdownPuzzle = task.payload
        shown = f"{fence('numbers', ' '.join(map(str, puzzle.numbers)))}\n{fence('target', str(puzzle.target))}"
        if self.style == "compact":
            ask = "Make the target from the numbers with + - * /, each used once. Answer in an ```expression block."
            return user(paragraphs(ask, shown))
        return user(
            paragraphs(
                "Write an arithmetic expression that has the target as its value. It uses every one of the numbers "
                "exactly once, a number that is listed twice exactly twice, and no other number.",
                shown,
                "Between the numbers stand only + - * / and parentheses; there is no sign in front of a number. "
                "Values on the way may be negative or fractions; all is computed exactly.",
                REASONING_NOTE + " Give your answer in this form, without an equals sign:",
                fence("expression", "..."),
            )
        )

    def parse_answer(self, task: Task, completion: str) -> Answer | Refusal:
        expression = _read(completion)
        return expression if isinstance(expression, Refusal) else Answer(expression)

    def judge(self, tasks: Sequence[Task], answers: Sequence[Answer], run: Run) -> list[bool | Refusal]:
        return [
            answer.value.value == task.payload.target and tuple(sorted(answer.value.numbers)) == task.payload.numbers
            for task, answer in zip(tasks, answers, strict=True)
        ]

    def solve_completion(self, task: Task) -> str:
        return fence("expression", task.payload.solution)

    def generate(self, rng: random.Random, *, families: Sequence[str] | None = None) -> Task:
        allowed = [name for name, size in FAMILY_SIZES.items() if self.min_numbers <= size <= self.max_numbers]
        chosen = [name for name in self.check_families(families) if name in allowed]
        if not chosen:
            raise ValueError(f"families must hold one of {allowed}, which these settings allow, got {families}")
        while True:
            family = rng.choice(chosen)
            puzzle = self.puzzle(self._draw(rng, FAMILY_SIZES[family]))
            if isinstance(puzzle, CountdownPuzzle):
                return Task.create(self.id, puzzle, author=f"seed:{family}")

    def simplest(self) -> Task:
        numbers = tuple(range(1, self.min_numbers + 1))
        puzzle = CountdownPuzzle(numbers, sum(numbers), " + ".join(map(str, numbers)))
        return Task.create(self.id, puzzle, author="seed:simplest")

    def features(self, task: Task) -> Features | None:
        try:
            solution = read_expression(task.payload.solution)
        except ValueError:
            return None
        products = sum(character in "*/" for character in solution.text)
        detours = sum(part is None or part.denominator != 1 or part < 0 for part in solution.parts)
        count, most = len(solution.numbers), max(FAMILY_SIZES.values())
        size = min(1.0, math.log(max(1, task.payload.target)) / math.log(1000))
        point = ((count - 2) / (most - 2), (solution.depth - 1) / (most - 2), products / (count - 1), size)
        measures = {"numbers": count, "depth": solution.depth, "products": products, "detours": detours}
        return Features(measures, self.id, point)

    def key(self, payload: CountdownPuzzle) -> str:
        return f"{self.id} {' '.join(map(str, payload.numbers))} = {payload.target}"

    def _draw(self, rng: random.Random, count: int) -> Expression:
        """Joins random numbers pairwise until one expression is left. All intermediate values are whole numbers above
        0."""
        limits = (10, self.largest_number)  # without small numbers there would be few products
        pool = [_number(rng.randint(1, limit)) for limit in rng.choices(limits, k=count)]
        while len(pool) > 1:
            rng.shuffle(pool)
            small, large = sorted((pool.pop(), pool.pop()), key=lambda one: one.value or 0)
            a, b = large.value or 0, small.value or 0  # there is always a value
            possible = "+" + "-" * (a > b)
            if b > 1:
                possible += "*" * (a * b <= self.largest_target) + "/" * (a % b == 0)
            pool.append(_join(large, rng.choice(possible), small))
        return pool[0]


def read_expression(text: str) -> Expression:
    """Parses an expression of numbers, + - * / and parentheses, in time linear in the length of the text.

    Raises:
        ValueError: If the text is anything else, or longer than `MAX_TEXT` characters, with a number of more than
            `MAX_DIGITS` digits or more than `MAX_DEPTH` parentheses open at once.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"an expression has at most {MAX_TEXT} characters, got {len(text)}")
    if not _ALPHABET.fullmatch(text):
        raise ValueError("an expression holds only whole numbers, + - * / and parentheses")
    tokens = _TOKEN.findall(text)
    if max(map(len, tokens), default=0) > MAX_DIGITS:
        raise ValueError(f"a number has at most {MAX_DIGITS} digits")
    tokens.reverse()  # the next token is the last one
    expression = _parse(tokens, 0)
    if tokens:
        raise ValueError(f"{tokens[-1]!r} stands where an operator should")
    return expression


def _parse(tokens: list[str], opened: int, precedence: int = 1) -> Expression:
    """Parses the longest expression at the start of `tokens` whose last operation has at least this precedence."""
    left = _atom(tokens, opened) if precedence == 3 else _parse(tokens, opened, precedence + 1)
    while tokens and PRECEDENCE.get(tokens[-1]) == precedence:
        left = _join(left, tokens.pop(), _parse(tokens, opened, precedence + 1))
    return left


def _atom(tokens: list[str], opened: int) -> Expression:
    token = tokens.pop() if tokens else "the end"
    if token.isdecimal():
        return _number(int(token))
    if token != "(":
        raise ValueError(f"{token} stands where a number should")
    if opened == MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} parentheses are open at once")
    inner = _parse(tokens, opened + 1)
    if not tokens or tokens.pop() != ")":
        raise ValueError("a parenthesis is not closed")
    return inner


def _number(value: int) -> Expression:
    return Expression(str(value), Fraction(value), (value,))


def _join(left: Expression, operator: str, right: Expression) -> Expression:
    """Joins two expressions, with parentheses where they are necessary."""
    precedence, a, b = PRECEDENCE[operator], left.value, right.value
    undefined = a is None or b is None or (operator == "/" and b == 0)
    value = None if undefined else OPERATIONS[operator](a, b)
    before = f"({left.text})" if left.precedence < precedence else left.text
    after = f"({right.text})" if right.precedence <= precedence else right.text
    return Expression(
        text=f"{before} {operator} {after}",
        value=value,
        numbers=left.numbers + right.numbers,
        parts=(*left.parts, *right.parts, a, b),
        depth=max(left.depth, right.depth) + 1,
        precedence=precedence,
    )


def _read(completion: str) -> Expression | Refusal:
    """The expression of a completion. Proposals and answers have the same form."""
    text = last_body(completion_fences(completion), "expression")
    if not text:
        return Refusal("no_expression", "no ```expression block, or an empty one")
    try:
        return read_expression(text)
    except ValueError as error:
        return Refusal("not_an_expression", str(error))
