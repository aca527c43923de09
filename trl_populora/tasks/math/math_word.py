"""`math`: a word problem. The teacher adds a program that computes its answer; the student gives it in `\\boxed{}`.

The program runs in the executor four times, in different processes. Its value is the right answer. Every number of
the program must be stated in the problem (`quantities.py`). If the program rounds and the problem does not ask for it,
it runs again without `round`, and must give the same. A student's answer is compared exactly if it is a plain decimal
number. Any other form goes to math-verify, in the sandbox (`harness.py`).
"""

from __future__ import annotations

import ast
import math
import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from trl_populora.executor import Execution, Job, Status
from trl_populora.extras import require
from trl_populora.tasks.base import Features, Message, Run, TaskType, on_scale, refused_by
from trl_populora.tasks.code.complexity import program_complexity
from trl_populora.tasks.code.hygiene import ALLOWED_MODULES, BANNED_NAMES, parse
from trl_populora.tasks.code.hygiene import REASONS as HYGIENE
from trl_populora.tasks.code.source import read_program
from trl_populora.tasks.code.statements import statements
from trl_populora.tasks.math.answers import (
    BOX,
    MAX_DECIMALS,
    MAX_DENOMINATOR,
    MAX_DIGITS,
    answer_text,
    judge_pairs,
    last_box,
)
from trl_populora.tasks.math.families import FAMILIES, wording
from trl_populora.tasks.math.quantities import REASONS as QUANTITIES
from trl_populora.tasks.math.quantities import ROUNDING, check_numbers, gives_away, rounds, stated, unrounded
from trl_populora.tasks.parsing import (
    completion_fences,
    fence,
    final_text,
    last_body,
    num_bytes,
    reserved_in,
    unseen_in,
)
from trl_populora.tasks.task import Answer, Draft, Payload, Refusal, Task, digest, is_spared
from trl_populora.tasks.wording import MARKS_RULE, REASONING_NOTE, paragraphs, user


_KEPT = re.compile(  # words; 3.5, 3 - 5, 5%
    r"[^\W_]+|(?<=\d)(?:_|[^\w\s])(?=\d)|(?<=\d) ?[-+*/^] ?(?=\d)|-(?=\d)|(?<=\d) ?%"
)

# A fraction is not a plain value, so it is returned as a tuple. `f` gets its name back first, because it may call
# itself.
_WRAPPER = """

def _populora_answer(original=f):
    global f
    f = original
    value = original()
    return ("Fraction", value.numerator, value.denominator) if type(value).__name__ == "Fraction" else value


f = _populora_answer
"""

_MAX_NUMBER = 8192  # bytes of the largest fraction in canonical form; a larger value is not read
_LONG_TYPES = {b"s": "str", b"b": "bytes", b"[": "list", b"(": "tuple", b"{": "dict", b"<": "set", b"|": "frozenset"}


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
    Word problems. Needs `pip install "trl-populora[math]"`. Sizes are in UTF-8 bytes.

    Args:
        problem_bytes (`int`, *optional*, defaults to `2048`): Size of a problem.
        program_bytes (`int`, *optional*, defaults to `2048`): Size of a program.
        answer_bytes (`int`, *optional*, defaults to `256`): Size of a student's answer in the box.

    Raises:
        ValueError: If a size is out of range.
        MissingPackageError: If math-verify is not installed.
    """

    id: ClassVar[str] = "math"
    payload: ClassVar[type[Payload]] = WordProblem
    reasons: ClassVar[Mapping[str, str]] = (
        HYGIENE
        | QUANTITIES
        | {
            "no_problem": "no problem fence, or an empty one",
            "no_program": "no python fence, or an empty one",
            "not_a_number": "the program's value is not an integer, a fraction or a short decimal number",
            "no_box": "no \\boxed{} with an answer in it",
        }
    )
    families: ClassVar[tuple[str, ...]] = tuple(FAMILIES)
    easy_families: ClassVar[tuple[str, ...]] = tuple(FAMILIES)[:4]

    problem_bytes: int = 2048
    program_bytes: int = 2048
    answer_bytes: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("problem_bytes", "program_bytes", "answer_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        require("math_verify", user="task type 'math'")

    # Proposing -------------------------------------------------------------------------------------------------

    def propose_prompt(self, references: Sequence[Task], rng: random.Random) -> list[Message]:
        references = rng.sample(list(references), min(self.max_references, len(references)))
        shown = "\n\n".join(self.propose_completion(task) for task in references)
        if self.style == "compact":
            ask = (
                "Write a new word problem with numbers in a ```problem block, then a Python function f() that returns "
                "its answer in a ```python block."
            )
            return user(paragraphs(ask, shown))
        return user(
            paragraphs(
                "Invent a word problem in mathematics whose answer is one number, and write a Python program that "
                "computes the answer. The student will see the problem only. The program is run to get the answer, so "
                "do not give it yourself.",
                "Make the problem hard to solve: several steps, each of which must be found from the text. It must "
                "still be possible to solve it by careful reasoning, without a computer.",
                self._rules(),
                shown
                and "These problems exist already. Write one that is new, different in its idea, and not easier:",
                shown,
                "First write a short plan: the idea and the steps. "
                + REASONING_NOTE
                + " Then give exactly these two blocks:",
                fence("problem", "..."),
                fence("python", "def f():\n    ...\n    return ..."),
            )
        )

    def _rules(self) -> str:
        return "\n".join(
            [
                "Rules:",
                "- The problem says all that is needed, and in which unit the answer is wanted. There is one right "
                "answer.",
                "- Every number that the program uses stands in the problem, in digits or in words. Only 0, 1, 2, "
                "1/2, common knowledge (60 minutes in an hour) and counts of what the problem lists need not. The "
                "program uses numbers of the problem. Strings in it hold words of the problem only.",
                "- The answer does not stand in the problem.",
                f"- `f()` takes no arguments and returns an integer of at most {MAX_DIGITS} digits, a "
                f"`fractions.Fraction` with a denominator of at most {MAX_DENOMINATOR}, or a float with at most "
                f"{MAX_DECIMALS} digits after its point. If you round, the problem says how.",
                f"- The program may import only these modules: {', '.join(sorted(ALLOWED_MODULES))}. It does not use "
                f"the builtins {', '.join(sorted(BANNED_NAMES))}, `async`, or private and `__double__` names. It "
                "gives the same in every process: no randomness, clock, files or network. It takes a fraction of a "
                "second.",
                f"- The problem has at most {self.problem_bytes} bytes, the program {self.program_bytes}. The "
                "problem does not use `\\boxed`.",
                MARKS_RULE,
                "- It is not an earlier problem.",
            ]
        )

    def parse_proposal(self, completion: str, references: Sequence[Task]) -> Draft | Refusal:
        blocks = completion_fences(completion)
        problem, program = last_body(blocks, "problem"), last_body(blocks, "python")
        if not problem:
            return Refusal("no_problem", "no ```problem block, or an empty one")
        if not program:
            return Refusal("no_program", "no ```python block, or an empty one")
        return self._check_problem(problem) or self._draft(problem, program, references)

    def _check_problem(self, problem: str) -> Refusal | None:
        if num_bytes(problem) > self.problem_bytes:
            return Refusal("too_large", f"the problem has more than {self.problem_bytes} bytes")
        marker = BOX if BOX in problem else reserved_in(problem) or unseen_in(problem)
        return None if marker is None else Refusal("reserved_text", f"the problem contains {marker!r}")

    def _draft(self, problem: str, program: str, references: Sequence[Task]) -> Draft | Refusal:
        bare = read_program(program, max_bytes=self.program_bytes, parameters=False)
        if isinstance(bare, Refusal):
            return bare
        tree = parse(bare)
        refusal = tree if isinstance(tree, Refusal) else check_numbers(problem, tree)
        if refusal is not None:
            return refusal
        draft = WordProblem(problem, bare, "")
        if any(self.key(task.payload) == self.key(draft) for task in references if task.type == self.id):
            return Refusal("duplicate", "repeats a reference")
        return Draft(self.key(draft), draft)

    def verify(self, drafts: Sequence[Draft], run: Run) -> list[Payload | Refusal]:
        contents = [draft.content for draft in drafts]
        trees = [_tree(content.program) for content in contents]
        programs, again = [content.program for content in contents], {}
        for place, (content, tree) in enumerate(zip(contents, trees, strict=True)):
            if rounds(tree) and not ROUNDING.search(content.problem.lower()):
                again[place] = len(programs)
                programs.append(unrounded(content.program, tree))
        jobs = [Job(one + _WRAPPER, ((),), deterministic=True, checked_bytes=_MAX_NUMBER) for one in programs]
        answers = [_answer(execution) for execution in run(jobs)]
        return [
            self._finish(content, tree, answers[place], answers[again.get(place, place)])
            for place, (content, tree) in enumerate(zip(contents, trees, strict=True))
        ]

    def _finish(
        self, draft: WordProblem, tree: ast.Module, answer: str | Refusal, without: str | Refusal
    ) -> Payload | Refusal:
        """The task, from the program's answer and from that without its rounding."""
        if isinstance(answer, Refusal):
            return answer
        if gives_away(draft.problem, tree, Fraction(answer)):
            return Refusal("answer_in_problem", answer)
        if isinstance(without, Refusal) and is_spared(without):
            return without
        if answer != without:
            other = without.reason if isinstance(without, Refusal) else without
            return Refusal("unstated_rounding", f"{answer}, and without `round`: {other}")
        return WordProblem(draft.problem, draft.program, answer)

    def propose_completion(self, task: Task) -> str:
        return f"{fence('problem', task.payload.problem)}\n{fence('python', task.payload.program)}"

    # Solving ---------------------------------------------------------------------------------------------------

    def solve_prompt(self, task: Task) -> list[Message]:
        if self.style == "compact":
            return user(f"{task.payload.problem}\nAnswer with a number in \\boxed{{}}.")
        return user(
            paragraphs(
                "Solve this problem.",
                task.payload.problem,
                "Reason step by step, inside <think> and </think> if you like. Then put the final answer into "
                "\\boxed{}: only the number, worked out, exact unless the problem says otherwise, without a unit. If "
                "there is more than one box, the last one counts.",
            )
        )

    def parse_answer(self, task: Task, completion: str) -> Answer | Refusal:
        text = last_box(final_text(completion))
        if not text:
            return Refusal("no_box", "no \\boxed{...}, or an empty one")
        if num_bytes(text) > self.answer_bytes:
            return Refusal("too_large", f"the answer has more than {self.answer_bytes} bytes")
        return Answer(text)

    def judge(self, tasks: Sequence[Task], answers: Sequence[Answer], run: Run) -> list[bool | Refusal]:
        pairs = [(task.payload.answer, answer.value) for task, answer in zip(tasks, answers, strict=True)]
        return judge_pairs(pairs, run)

    def solve_completion(self, task: Task) -> str:
        return f"{BOX}{{{task.payload.answer}}}"

    # Stock -----------------------------------------------------------------------------------------------------

    def generate(self, rng: random.Random, *, families: Sequence[str] | None = None) -> Task:
        names = self.check_families(families)
        while True:
            name = rng.choice(names)
            problem, program, value = FAMILIES[name](rng)
            answer = answer_text(
                ("Fraction", value.numerator, value.denominator) if type(value) is Fraction else value
            )
            # By chance, the problem may state the answer. Then another one is drawn.
            if isinstance(answer, str) and not gives_away(problem, ast.parse(program), Fraction(answer)):
                return Task.create(self.id, WordProblem(problem, program, answer), author=f"seed:{name}")

    def simplest(self) -> Task:
        problem = "Anna has 3 apples and gets 4 more. How many apples does Anna have now?"
        return Task.create(self.id, WordProblem(problem, "def f():\n    return 3 + 4", "7"), author="seed:simplest")

    def parts(self, task: Task) -> frozenset[str]:
        return statements(task.payload.program)

    def key(self, payload: Any) -> str:
        """A hash of the problem's words and numbers without case and layout, because one problem has one answer."""
        return digest([self.id, *(one.strip() for one in _KEPT.findall(payload.problem.casefold()))], 32)

    def question_keys(self, payload: WordProblem) -> Collection[str]:
        """Its own, and one that it shares with problems about other names and things: their answer is the same."""
        return (self.key(payload), digest(["wording", wording(payload.problem)], 32))

    def shown_keys(self, payload: WordProblem) -> Collection[str]:
        return self.question_keys(payload)

    def features(self, task: Task) -> Features | None:
        """Measures of the program and of the problem. Word problems have a coverage space of their own."""
        problem, program, answer = task.payload.problem, task.payload.program, task.payload.answer
        measured = program_complexity(program)
        if measured is None:
            return None
        numbers, words = len(stated(problem).known), len(problem.split())
        # Coordinates go from 0, about `return 3 + 4`, to 1, about a page of text and program (our choice).
        point = (
            on_scale(math.log(measured.ast_nodes), math.log(8), math.log(300)),
            on_scale(math.log(words or 1), math.log(8), math.log(200)),
            on_scale(numbers, 0, 20),
            on_scale(math.log10(1 + abs(Fraction(answer))), 0, 6),
        )
        return Features({**measured.known(), "problem_words": words, "problem_numbers": numbers}, self.id, point)


def _tree(program: str) -> ast.Module:
    tree = parse(program)
    assert not isinstance(tree, Refusal), "a draft's program was parsed before"
    return tree


def _answer(execution: Execution) -> str | Refusal:
    """The value of a program as an answer."""
    if execution.status is not Status.OK:
        return refused_by(execution)
    data = execution.values[0].data or b""
    if len(data) > _MAX_NUMBER:
        return Refusal("not_a_number", f"a value of type {_LONG_TYPES.get(data[:1], 'unknown')}")
    return answer_text(execution.values[0].value)
