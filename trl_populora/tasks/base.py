"""What a task type is. A user adds one by writing one class with these methods; nothing is registered.

Here: the interface, the size limits, and the two styles of prompt. Not here: any particular type, and running
programs: a type only says which job the executor should run and what its result means.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar

from trl_populora.executor import Execution, Job, literals
from trl_populora.tasks.hygiene import check_program
from trl_populora.tasks.parsing import num_bytes, reserved_in
from trl_populora.tasks.source import strip_comments
from trl_populora.tasks.task import Answer, Draft, Refusal, Task


STYLES = ("full", "compact")


@dataclass(frozen=True)
class TaskLimits:
    """
    Limits of a task: sizes in UTF-8 bytes, and the significant digits of a float in an output (0 for any number),
    which may be more where at most half as many stand after its point, as in an amount of money. What exceeds a limit
    is refused, never cut: a shortened gold output would make a task that cannot be solved.
    """

    program_bytes: int = 4096
    input_bytes: int = 1024
    output_bytes: int = 1024
    message_bytes: int = 2048
    max_float_digits: int = 6

    @property
    def max_decimals(self) -> int:
        """Digits after the point of a float that may have any number before it (our choice)."""
        return self.max_float_digits // 2

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name == "max_float_digits" else 1
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")


@dataclass(frozen=True)
class TaskType(ABC):
    """
    One kind of task: its prompts, how completions are read, what is valid and what counts as solved.

    Args:
        style (`str`, *optional*, defaults to `"full"`):
            `"full"` spells out every rule, for capable models. `"compact"` uses a few short words, for small models
            and CPU. Completions are read the same way.
        limits (`TaskLimits`, *optional*):
            Size limits of tasks and answers.
        num_references (`int`, *optional*):
            How many reference tasks a proposal prompt shows at most. Default: 6 in the full style (AZR), 1 in the
            compact style (our choice). `code_f` always shows one program and ignores it.
    """

    id: ClassVar[str]
    proposes_program: ClassVar[bool] = True  # the proposer writes the task's program itself
    min_references: ClassVar[int] = 0

    style: str = "full"
    limits: TaskLimits = field(default_factory=TaskLimits)
    num_references: int | None = None

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise ValueError(f"style must be one of {STYLES}, got {self.style!r}")
        if self.num_references is not None and self.num_references < 0:
            raise ValueError(f"num_references must be 0 or more, got {self.num_references}")

    @property
    def max_references(self) -> int:
        if self.num_references is not None:
            return self.num_references
        return 6 if self.style == "full" else 1

    @abstractmethod
    def propose_prompt(self, references: Sequence[Task], rng: random.Random) -> list[dict]:
        """Chat messages that ask for a new task. `rng` decides which references are shown and in which order."""

    @abstractmethod
    def parse_proposal(self, completion: str, references: Sequence[Task]) -> Draft | Refusal:
        """Reads a proposal and applies every check that needs no execution. `references` as given to the prompt."""

    def proposal_job(self, draft: Draft) -> Job:
        """The run that a draft must pass: all inputs, four times, on servers that differ in what must not matter."""
        return Job(draft.program, draft.inputs, deterministic=True)

    @abstractmethod
    def finish_proposal(self, draft: Draft, execution: Execution, *, author: str, step: int = 0) -> Task | Refusal:
        """The task, with the outputs that the executor computed for `proposal_job`, or why it is not valid."""

    @abstractmethod
    def propose_completion(self, task: Task) -> str:
        """The completion that proposes exactly this task; target of the supervised warm start."""

    @abstractmethod
    def solve_prompt(self, task: Task) -> list[dict]:
        """Chat messages that ask for the solution."""

    @abstractmethod
    def parse_answer(self, task: Task, completion: str) -> Answer | Refusal:
        """Reads an answer. A `Refusal` means badly formed, which is rewarded lower than a wrong answer."""

    def answer_job(self, task: Task, answer: Answer) -> Job | None:
        """The run that judging needs, or `None` if the answer is judged by its value alone."""
        return None

    @abstractmethod
    def judge(self, task: Task, answer: Answer, execution: Execution | None) -> bool:
        """Whether the answer is right. Compares canonical bytes here, in the caller: no object of a model decides."""

    @abstractmethod
    def solve_completion(self, task: Task) -> str:
        """A right answer in the wanted format; target of the supervised warm start."""

    def check_program(self, program: str) -> Refusal | None:
        return check_program(program, max_bytes=self.limits.program_bytes)

    def read_program(self, program: str) -> str | Refusal:
        """A proposed program as students and references will show it: without comments, every rule applied."""
        refusal = self.check_program(program)
        if refusal is not None:
            return refusal
        bare = strip_comments(program)
        if bare == program or isinstance(bare, Refusal):
            return bare
        return self.check_program(bare) or bare

    def check_output(self, text: str) -> Refusal | None:
        """Size limit, reserved markers and precision of the literal text of an output."""
        refusal, most = self.check_text("output", text), self.limits.max_float_digits
        if refusal is not None or not most:
            return refusal
        for value in numbers_in(literals.parse_literal(text)):
            digits, after = float_digits(value), float_decimals(value)
            if digits > most and after > self.limits.max_decimals:
                allowed = f"at most {most}, or {self.limits.max_decimals} after the point, are allowed"
                return Refusal("too_precise", f"a float in the output has {digits} digits; {allowed}")
        return None

    def check_text(self, kind: str, text: str) -> Refusal | None:
        """Size limit and reserved markers for the text of an `"input"`, `"output"` or `"message"`."""
        limit = getattr(self.limits, f"{kind}_bytes")
        if num_bytes(text) > limit:
            return Refusal("too_large", f"the {kind} has {num_bytes(text)} bytes, at most {limit} are allowed")
        marker = reserved_in(text)
        return None if marker is None else Refusal("reserved_text", f"the {kind} contains {marker!r}")


def numbers_in(value: object) -> Iterator[float]:
    """Every float inside a plain value, at any depth; a complex number counts as two."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, complex):
        yield from (value.real, value.imag)
    elif isinstance(value, dict):
        yield from numbers_in([*value, *value.values()])
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from numbers_in(item)


def float_digits(value: float) -> int:
    """Significant digits of the shortest text of a float: 4 for `0.001234`, 1 for `1e22`, 17 for `0.1 + 0.2`."""
    return len(Decimal(repr(value)).normalize().as_tuple().digits)


def float_decimals(value: float) -> int:
    """Digits after the point of the shortest text of a float: 2 for `12345.67`, 0 for `3.0`, 1 for `1.5e22`."""
    return len(repr(value).partition("e")[0].partition(".")[2].rstrip("0"))
