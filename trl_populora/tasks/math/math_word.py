"""`math`: a word problem, with a program that computes its answer; the student gives the number in `\\boxed{}`.

The teacher's program runs in the executor, four times over differing processes, and its value is the right answer. What
the program knows the text must say (`quantities.py`). An answer is compared exactly if it is a plain decimal number;
any other form goes to math-verify, in the sandbox (`harness.py`).
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from trl_populora.executor import Execution, Job, Limits, Status
from trl_populora.tasks.base import Features, Message, Run, TaskType, refused_by
from trl_populora.tasks.code.hygiene import REASONS as HYGIENE
from trl_populora.tasks.code.hygiene import check_program, parse
from trl_populora.tasks.code.source import strip_comments
from trl_populora.tasks.math.families import FAMILIES
from trl_populora.tasks.math.quantities import REASONS as QUANTITIES
from trl_populora.tasks.math.quantities import check_numbers, constants, gives_away, stated
from trl_populora.tasks.parsing import (
    MAX_COMPLETION,
    completion_fences,
    fence,
    final_text,
    last_body,
    num_bytes,
    reserved_in,
)
from trl_populora.tasks.task import Answer, Draft, Payload, Refusal, Task


MODULE = "trl_populora.tasks.math.harness"
JUDGE = f"from {MODULE} import judge as f"
BATCH = 64  # answers judged in one job
LIMITS = Limits(cpu_seconds=1.0, wall_seconds=20.0, memory_mb=512)  # of a job; an answer takes a few milliseconds

MAX_DIGITS = 12  # of an integer, a numerator
MAX_DENOMINATOR = 1_000
MAX_DECIMALS = 4  # math-verify rounds decimals to six
MAX_FLOAT = 10**8

# A fraction is no plain value, so it travels as a tuple. `f` gets its name back first: it may call itself.
_WRAPPER = """

def _populora_answer(original=f):
    global f
    f = original
    value = original()
    return ("Fraction", value.numerator, value.denominator) if type(value).__name__ == "Fraction" else value


f = _populora_answer
"""
_BOX = "\\boxed"
_PLAIN = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|[+-]?\.[0-9]+")
_SPACE = re.compile(r"(?<=[0-9])(?:\\[,;:! ]|~|\{,\}| )(?=[0-9]{3}(?![0-9]))")  # between groups of three digits


@dataclass(frozen=True)
class WordProblem(Payload):
    """A problem, the program that its author wrote, and the answer that the executor found.

    Args:
        problem (`str`): The text that students see.
        program (`str`): Python source whose `f()` computes the answer.
        answer (`str`): An integer, a decimal number or a fraction in lowest terms: `"-12"`, `"0.25"`, `"3/4"`.
    """

    problem: str
    program: str
    answer: str


@dataclass(frozen=True)
class MathWord(TaskType):
    """
    Word problems. Needs `pip install "trl-populora[math]"`.

    Args:
        problem_bytes (`int`, *optional*, defaults to `2048`): Size of a problem.
        program_bytes (`int`, *optional*, defaults to `2048`): Size of a program.
        answer_bytes (`int`, *optional*, defaults to `256`): Size of what a student puts into the box.

    Raises:
        ImportError: If math-verify is not installed.
    """

    id: ClassVar[str] = "math"
    payload: ClassVar[type[Payload]] = WordProblem
    reasons: ClassVar[Mapping[str, str]] = HYGIENE | QUANTITIES | {
        "no_problem": "no problem fence, or an empty one",
        "no_program": "no python fence, or an empty one",
        "not_a_number": "the program's value is no integer, fraction or short decimal number",
        "no_box": "no \\boxed{} with an answer in it",
    }
    families: ClassVar[tuple[str, ...]] = tuple(FAMILIES)

    problem_bytes: int = 2048
    program_bytes: int = 2048
    answer_bytes: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("problem_bytes", "program_bytes", "answer_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if importlib.util.find_spec("math_verify") is None:
            raise ImportError('Task type "math" needs math-verify: pip install "trl-populora[math]"')

    # Proposing -------------------------------------------------------------------------------------------------

    def propose_prompt(self, references: Sequence[Task], rng: random.Random) -> list[Message]:
        references = rng.sample(list(references), min(self.max_references, len(references)))
        shown = "\n\n".join(self.propose_completion(task) for task in references)
        if self.style == "compact":
            ask = "Write a new word problem with numbers in a ```problem block, then in a ```python block a function f() "
            return _user(ask + "that returns its answer.", shown)
        return _user(
            "Invent a word problem in mathematics whose answer is one number, and write a Python program that computes "
            "the answer. A student will see the problem only, not the program. The program is run to get the answer, so "
            "do not give the answer yourself.",
            "Make the problem hard to solve: several steps, each of which must be found from the text. It must still be "
            "possible to solve it by careful reasoning, without a computer.",
            self._rules(),
            shown and "These problems exist already. Write one that is new, different in its idea, and not easier:",
            shown,
            "First write a short plan, inside <think> and </think> if you like. Then give exactly these two blocks:",
            fence("problem", "..."),
            fence("python", "def f():\n    ...\n    return ..."),
        )

    def _rules(self) -> str:
        return "\n".join(
            [
                "Rules:",
                "- The problem says all that is needed. Every number that the program uses is in its text, in digits or "
                "in words; only 0, 1, 2, 1/2, common knowledge such as 60 minutes in an hour, and counts of what the "
                "text lists need not be. Strings in the program have words of the text only.",
                "- The program uses numbers of the text. The answer itself is not in the text.",
                "- There is exactly one right answer, and the text says in which unit it is wanted.",
                f"- `f()` takes no arguments and returns an integer of at most {MAX_DIGITS} digits, a "
                f"`fractions.Fraction` with a denominator of at most {MAX_DENOMINATOR}, or a float with at most "
                f"{MAX_DECIMALS} digits after its point: return a Fraction or round, and let the text say so.",
                "- No randomness, clock, files or network; only modules for pure computation, such as `math`, "
                "`fractions` and `itertools`. It runs in a fraction of a second.",
                f"- The problem has at most {self.problem_bytes} bytes, the program {self.program_bytes}. No `\\boxed`, "
                "no three backticks inside a block, no token of a chat template.",
                "- It is not an earlier problem.",
            ]
        )

    def parse_proposal(self, completion: str, references: Sequence[Task]) -> Draft | Refusal:
        blocks = completion_fences(completion)
        if blocks is None:
            return Refusal("too_large", "the completion")
        problem, program = last_body(blocks, "problem"), last_body(blocks, "python")
        if not problem:
            return Refusal("no_problem", "no ```problem block, or an empty one")
        if not program:
            return Refusal("no_program", "no ```python block, or an empty one")
        return self._check_problem(problem) or self._draft(problem, program, references)

    def _check_problem(self, problem: str) -> Refusal | None:
        if num_bytes(problem) > self.problem_bytes:
            return Refusal("too_large", f"the problem has more than {self.problem_bytes} bytes")
        marker = _BOX if _BOX in problem else reserved_in(problem)
        return None if marker is None else Refusal("reserved_text", f"the problem contains {marker!r}")

    def _draft(self, problem: str, program: str, references: Sequence[Task]) -> Draft | Refusal:
        program = read_program(program, max_bytes=self.program_bytes, parameters=False)
        if isinstance(program, Refusal):
            return program
        tree = parse(program)
        refusal = tree if isinstance(tree, Refusal) else check_numbers(problem, tree)
        if refusal is not None:
            return refusal
        draft = WordProblem(problem, program, "")
        if any(self.key(task.payload) == self.key(draft) for task in references if task.type == self.id):
            return Refusal("duplicate", "repeats a reference")
        return Draft(self.key(draft), draft)

    def verify(self, drafts: Sequence[Draft], run: Run) -> list[Payload | Refusal]:
        jobs = [Job(draft.content.program + _WRAPPER, ((),), deterministic=True) for draft in drafts]
        return [
            self._finish(draft.content, execution) for draft, execution in zip(drafts, run(jobs), strict=True)
        ]

    def _finish(self, draft: WordProblem, execution: Execution) -> Payload | Refusal:
        if execution.status is not Status.OK:
            return refused_by(execution)
        answer = answer_text(execution.values[0].value)
        if isinstance(answer, Refusal):
            return answer
        tree = parse(draft.program)
        if isinstance(tree, Refusal):
            return tree
        if gives_away(draft.problem, tree, Fraction(answer)):
            return Refusal("answer_in_problem", answer)
        return WordProblem(draft.problem, draft.program, answer)

    def propose_completion(self, task: Task) -> str:
        return f"{fence('problem', task.payload.problem)}\n{fence('python', task.payload.program)}"

    # Solving ---------------------------------------------------------------------------------------------------

    def solve_prompt(self, task: Task) -> list[Message]:
        if self.style == "compact":
            return _user(f"{task.payload.problem}\nAnswer with a number in \\boxed{{}}.")
        return _user(
            "Solve this problem.",
            task.payload.problem,
            "Reason step by step, inside <think> and </think> if you like. Then put the final answer into \\boxed{}: "
            "only the number, worked out, exact unless the problem says otherwise, without a unit. If you write more "
            "than one box, the last one counts.",
        )

    def parse_answer(self, task: Task, completion: str) -> Answer | Refusal:
        if len(completion) > MAX_COMPLETION:
            return Refusal("too_large", "the completion")
        text = last_box(final_text(completion))
        if not text:
            return Refusal("no_box", "no \\boxed{...}, or an empty one")
        if num_bytes(text) > self.answer_bytes:
            return Refusal("too_large", f"the answer has more than {self.answer_bytes} bytes")
        return Answer(text)

    def judge(self, tasks: Sequence[Task], answers: Sequence[Answer], run: Run) -> list[bool | Refusal]:
        """Plain decimal numbers are compared here, exactly. All others go to the sandbox, equal ones once.

        A batch shares a process, so its word counts only where nothing went wrong in it; whatever else it held is
        judged again, each answer alone. A time or memory limit then means a wrong answer.
        """
        pairs = [(task.payload.answer, _clean(answer.value)) for task, answer in zip(tasks, answers, strict=True)]
        verdicts: dict[tuple[str, str], bool | Refusal] = {}
        for pair in dict.fromkeys(pairs):
            verdict = compare_plain(*pair)
            if verdict is not None:
                verdicts[pair] = verdict
        left = [pair for pair in dict.fromkeys(pairs) if pair not in verdicts]
        for size in (BATCH, 1):
            parts = [left[place : place + size] for place in range(0, len(left), size)]
            for part, execution in zip(parts, run([_job(part) for part in parts]) if parts else (), strict=True):
                verdicts |= _read(part, execution)
            left = [pair for pair in left if pair not in verdicts]
        return [verdicts[pair] for pair in pairs]

    def solve_completion(self, task: Task) -> str:
        return f"{_BOX}{{{task.payload.answer}}}"

    # Stock -----------------------------------------------------------------------------------------------------

    def generate(self, rng: random.Random, *, families: Sequence[str] | None = None) -> Task:
        names = tuple(families) if families else self.families
        while True:
            name = rng.choice(names)
            problem, program, value = FAMILIES[name](rng)
            answer = answer_text(("Fraction", value.numerator, value.denominator) if type(value) is Fraction else value)
            # By chance the text may hold the answer: draw again.
            if isinstance(answer, str) and not gives_away(problem, ast.parse(program), Fraction(answer)):
                return Task.create(self.id, WordProblem(problem, program, answer), author=f"seed:{name}")

    def simplest(self) -> Task:
        problem = "Anna has 3 apples and gets 4 more. How many apples does Anna have now?"
        return Task.create(self.id, WordProblem(problem, "def f():\n    return 3 + 4", "7"), author="seed:simplest")

    def key(self, payload: Any) -> str:
        """The text decides, without case and layout: one question has one answer."""
        words = payload.problem.casefold().split()
        return hashlib.sha256(json.dumps([self.id, words]).encode("ascii")).hexdigest()[:32]

    def features(self, task: Task) -> Features | None:
        ...


def answer_text(value: object) -> str | Refusal:
    """
    The right answer as text, from what a program returned.

    Args:
        value (`object`): A plain value; a fraction as `("Fraction", numerator, denominator)`.

    Returns:
        `str`: `"12"`, `"-0.25"` or `"3/4"`. A float stands for the number with at most four digits after its point from
        which it differs by rounding only: 0.1 + 0.2 is 0.3, and 1 / 3 is refused.
    """
    if type(value) is tuple and len(value) == 3 and value[0] == "Fraction":
        if not (type(value[1]) is type(value[2]) is int and 0 < value[2] <= MAX_DENOMINATOR):
            return Refusal("not_a_number", f"a denominator is at most {MAX_DENOMINATOR}")
        exact = Fraction(value[1], value[2])
    elif type(value) is int:
        exact = Fraction(value)
    elif type(value) is float and abs(value) <= MAX_FLOAT:  # not nan
        exact = Fraction(f"{value:.{MAX_DECIMALS}f}")
        if abs(Fraction(value) - exact) > Fraction(max(1.0, abs(value))) / 10**13:
            return Refusal("not_a_number", f"a float has at most {MAX_DECIMALS} digits after its point")
        if exact.denominator > 1:
            return f"{value:.{MAX_DECIMALS}f}".rstrip("0")
    else:
        return Refusal("not_a_number", f"a value of type {type(value).__name__}")
    if abs(exact.numerator) >= 10**MAX_DIGITS:
        return Refusal("not_a_number", f"more than {MAX_DIGITS} digits")
    return str(exact)


def last_box(text: str) -> str | None:
    """What stands in the last `\\boxed{...}` of a text, or `None`; braces inside may nest. Linear in the length."""
    start = text.rfind(_BOX)
    rest = text[start + len(_BOX) :].lstrip() if start >= 0 else ""
    if not rest.startswith("{"):
        return None
    depth, place = 0, 0
    while place < len(rest):
        sign = rest[place]
        depth += (sign == "{") - (sign == "}")
        if not depth:
            return rest[1:place].strip()
        place += 2 if sign == "\\" else 1
    return None


def compare_plain(right: str, answer: str) -> bool | None:
    """The verdict on an answer that is a plain decimal number, and `None` for any other form, or if math-verify's
    rounding to six decimals could matter."""
    if not _PLAIN.fullmatch(answer):
        return None
    exact, given = Fraction(right), Fraction(answer.replace(",", ""))
    if exact == given:
        return True
    return False if abs(exact - given) > Fraction(1, 10**6) or exact.denominator == given.denominator == 1 else None


def _clean(answer: str) -> str:
    """What math-verify would trip over: line breaks, dollar signs, a full stop, spaces in `1 000` and `1\\,000`."""
    text = " ".join(answer.replace("\\$", " ").replace("$", " ").split()).removesuffix(".").strip()
    return _SPACE.sub("", text)


def _job(pairs: Sequence[tuple[str, str]]) -> Job:
    rights = [Fraction(right) for right, _ in pairs]
    inputs = tuple((right.numerator, right.denominator, answer) for right, (_, answer) in zip(rights, pairs))
    return Job(JUDGE, inputs, LIMITS, modules=(MODULE,))


def _read(part: Sequence[tuple[str, str]], execution: Execution) -> dict[tuple[str, str], bool | Refusal]:
    """What an execution says of its answers; of one alone always something."""
    if len(part) == 1:
        if execution.status is Status.INFRA_ERROR:
            return {part[0]: refused_by(execution)}
        return {part[0]: execution.status is Status.OK and execution.values[0].value is True}
    sound = execution.status is Status.OK and execution.peak_memory < LIMITS.memory_mb << 19
    values = execution.values if sound else ()
    return {pair: value.value is True for pair, value in zip(part, values)}


def _user(*parts: str) -> list[Message]:
    return [{"role": "user", "content": "\n\n".join(part for part in parts if part)}]
