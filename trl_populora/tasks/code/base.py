"""The parts that the three Python types share: limits, rules for programs and outputs, running drafts, seed tasks and
features.

Not here: what is proposed and how it is solved (`program_input.py`, `code_o.py`, `code_i.py`, `code_f.py`).
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from trl_populora.executor import Execution, Job, Status, canonical, literals
from trl_populora.tasks.base import Features, Run, TaskType, refused_by
from trl_populora.tasks.code.arguments import arguments_text
from trl_populora.tasks.code.complexity import place, program_complexity
from trl_populora.tasks.code.families import DEFAULT_FAMILIES, EASY_FAMILIES, FAMILIES
from trl_populora.tasks.code.hygiene import REASONS as HYGIENE
from trl_populora.tasks.code.keys import pair_key, task_key
from trl_populora.tasks.code.payload import CodePayload, Proposed
from trl_populora.tasks.code.seeds import MAX_DRAWS, draw, identity
from trl_populora.tasks.code.statements import statements
from trl_populora.tasks.parsing import (
    completion_fences,
    decimals_in,
    last_body,
    num_bytes,
    reserved_in,
    unseen_in,
)
from trl_populora.tasks.task import Draft, Payload, Refusal, Task


EXPANSION = 8  # times the size of its literal is more than a value needs in canonical form
_SLACK = 4096  # bytes of all results of an answer


@dataclass(frozen=True)
class CodeType(TaskType):
    """Tasks about a Python program `f`, its inputs and its outputs.

    Sizes are in UTF-8 bytes. A text above its limit is refused and never cut, because a task with a shortened right
    output cannot be solved.

    Args:
        program_bytes (`int`, *optional*, defaults to `4096`): Maximum size of a program.
        input_bytes (`int`, *optional*, defaults to `1024`): Maximum size of an argument list.
        output_bytes (`int`, *optional*, defaults to `1024`): Maximum size of an output.
        message_bytes (`int`, *optional*, defaults to `2048`): Maximum size of a hint.
        max_float_digits (`int`, *optional*, defaults to `6`):
            Maximum significant digits of a float in an output, or of a decimal number in its text; 0 for any number.
            It may have more digits if at most half of this number are after its point, as in an amount of money.
    """

    payload: ClassVar[type[Payload]] = CodePayload
    reasons: ClassVar[Mapping[str, str]] = HYGIENE | {
        "no_program": "no python fence",
        "no_input": "no input fence, or an empty argument list",
        "not_literal": "an input, output or answer that is not a plain Python literal",
        "too_precise": "a float in an output, or a decimal number in its text, has too many digits",
    }
    families: ClassVar[tuple[str, ...]] = tuple(FAMILIES)
    default_families: ClassVar[tuple[str, ...]] = DEFAULT_FAMILIES
    easy_families: ClassVar[tuple[str, ...]] = EASY_FAMILIES
    num_inputs: ClassVar[int] = 1
    """Inputs of a task; a type may make it a setting."""
    has_message: ClassVar[bool] = False
    """Whether a task has a hint for the solver."""

    program_bytes: int = 4096
    input_bytes: int = 1024
    output_bytes: int = 1024
    message_bytes: int = 2048
    max_float_digits: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("program_bytes", "input_bytes", "output_bytes", "message_bytes", "max_float_digits"):
            least, value = int(name != "max_float_digits"), getattr(self, name)
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")

    @property
    def max_decimals(self) -> int:
        """Maximum digits after the point of a float that may have any number of digits before it (our choice)."""
        return self.max_float_digits // 2

    # Verifying -------------------------------------------------------------------------------------------------

    def draft(self, proposed: Proposed) -> Draft:
        """A draft under the key of the task that it becomes."""
        inputs = [arguments_text(arguments) for arguments in proposed.inputs]
        return Draft(task_key(self.id, proposed.program, inputs), proposed)

    def verify(self, drafts: Sequence[Draft], run: Run) -> list[Payload | Refusal]:
        """Runs all inputs of a draft four times, on servers with different hash seeds, addresses and limits."""
        most = EXPANSION * self.output_bytes
        jobs = [
            Job(draft.content.program, draft.content.inputs, deterministic=True, checked_bytes=most)
            for draft in drafts
        ]
        return [
            self.finish(draft.content, execution) if execution.status is Status.OK else refused_by(execution)
            for draft, execution in zip(drafts, run(jobs), strict=True)
        ]

    def finish(self, proposed: Proposed, execution: Execution) -> CodePayload | Refusal:
        """The payload with the outputs from the executor, or the refusal."""
        most = max(len(value.data or b"") for value in execution.values)
        if most > EXPANSION * self.output_bytes:  # such a value takes long to read and to write
            return Refusal("too_large", f"an output has more than {self.output_bytes} bytes")
        try:
            inputs = tuple(arguments_text(arguments) for arguments in proposed.inputs)
            outputs = tuple(value.literal for value in execution.values)
        except ValueError as error:
            return Refusal("not_literal", f"an output: {error}"[:200])
        checks = [self.check_text("input", text) for text in inputs]
        checks += [self.check_output(text) for text in outputs]
        refusal = next(filter(None, checks), None)
        if refusal is not None:
            return refusal
        payload = CodePayload(proposed.program, inputs, outputs, proposed.message)
        return self.check_payload(payload) or payload

    @abstractmethod
    def check_payload(self, payload: CodePayload) -> Refusal | None:
        """The refusal if a program with these outputs is not a task of this type."""

    def check_output(self, text: str) -> Refusal | None:
        """Size limit, reserved markers and precision of the literal text of an output."""
        refusal, most = self.check_text("output", text), self.max_float_digits
        if refusal is not None or not most:
            return refusal
        for value in numbers_in(literals.parse_literal(text, self.output_bytes)):
            digits, after = float_digits(value), float_decimals(value)
            if digits > most and after > self.max_decimals:
                allowed = f"at most {most}, or {self.max_decimals} after the point, are allowed"
                return Refusal("too_precise", f"a float in the output has {digits} digits; {allowed}")
        return None

    def check_text(self, kind: str, text: str) -> Refusal | None:
        """Size limit, reserved markers and unseen signs for the text of an `"input"`, `"output"` or `"message"`."""
        limit = getattr(self, f"{kind}_bytes")
        if num_bytes(text) > limit:
            return Refusal("too_large", f"the {kind} has {num_bytes(text)} bytes, at most {limit} are allowed")
        marker = reserved_in(text) or unseen_in(text)
        return None if marker is None else Refusal("reserved_text", f"the {kind} contains {marker!r}")

    def read_block(self, completion: str, label: str, limit: int) -> str | Refusal:
        """The last block with this label of an answer, if it has at most `limit` bytes."""
        text, kind = last_body(completion_fences(completion), label), "program" if label == "python" else label
        if not text:
            return Refusal(f"no_{kind}", f"no ```{label} block, or an empty one")
        if num_bytes(text) > limit:
            return Refusal("too_large", f"the {kind} has more than {limit} bytes")
        return text

    # Judging ---------------------------------------------------------------------------------------------------

    def compare(self, jobs: Sequence[Job], expected: Sequence[Sequence[str]], run: Run) -> list[bool | Refusal]:
        """Whether each job returns the values of these literals. Bytes are compared here; no job holds gold values. No
        value is read, and of more bytes than the right values have, hardly more are received."""
        sizes = [sum(map(num_bytes, texts)) for texts in expected]
        jobs = [
            replace(job, total_bytes=EXPANSION * size + _SLACK, lazy=True)
            for job, size in zip(jobs, sizes, strict=True)
        ]
        verdicts: list[bool | Refusal] = []
        for execution, texts in zip(run(jobs), expected, strict=True):
            right = len(execution.values) == len(texts) and all(
                value.status is Status.OK and value.data == canonical.encode(stored(text), max_bytes=None)
                for value, text in zip(execution.values, texts)
            )
            verdicts.append(refused_by(execution) if execution.status is Status.INFRA_ERROR else right)
        return verdicts

    # Stock -----------------------------------------------------------------------------------------------------

    def generate(self, rng: random.Random, *, families: Sequence[str] | None = None) -> Task:
        names = self.check_families(families)
        for _ in range(MAX_DRAWS):
            name = rng.choice(names)
            payload = draw(name, rng, self.num_inputs, with_message=self.has_message)
            if payload is not None and self.check_payload(payload) is None:
                return Task.create(self.id, payload, author=f"seed:{name}")
        raise ValueError(
            f"found no {self.id} task with {self.num_inputs} distinct inputs in families {list(names)}; ask for fewer "
            "inputs or add families"
        )

    def simplest(self) -> Task:
        return Task.create(self.id, identity(self.num_inputs, with_message=self.has_message), author="seed:identity")

    def features(self, task: Task) -> Features | None:
        measured = program_complexity(task.payload.program)
        if measured is None:
            return None
        return Features(measured.known(), "python", place(measured, task.payload.outputs))

    def parts(self, task: Task) -> frozenset[str]:
        return statements(task.payload.program)

    def key(self, payload: CodePayload) -> str:
        return task_key(self.id, payload.program, payload.inputs)

    def question_keys(self, payload: CodePayload) -> Collection[str]:
        """As [`shown_keys`], of the literals in the form that proposals have, since an exam may be written by hand."""
        return self.shown_keys(normal(payload))

    def shown_keys(self, payload: CodePayload) -> Collection[str]:
        """Its own, and those of its pairs of input and output. The types share them."""
        return {self.key(payload), *(pair_key(payload.program, text) for text in payload.inputs)}

    def describe(self, task: Task) -> str:
        return "\n".join(f"f({given}) = {result}" for given, result in task.payload.pairs)

    def size(self, task: Task) -> int:
        return len(task.payload.program)


def stored(text: str) -> object:
    """The value of an output of a task, whose size was limited when the task was made."""
    return literals.parse_literal(text, num_bytes(text))


def normal(payload: CodePayload) -> CodePayload:
    """A payload with its literals written as the executor writes them; itself if one is no literal."""
    try:
        inputs = tuple(arguments_text(literals.parse_arguments(text, num_bytes(text))) for text in payload.inputs)
        outputs = tuple(literals.to_literal(stored(text)) for text in payload.outputs)
    except ValueError:
        return payload
    return replace(payload, inputs=inputs, outputs=outputs)


def numbers_in(value: object) -> Iterator[float | str]:
    """
    Every float inside a plain value, at any depth; a complex number counts as two. The decimal numbers in its texts
    come as they are written.
    """
    if isinstance(value, float):
        yield value
    elif isinstance(value, str):
        yield from decimals_in(value)
    elif isinstance(value, bytes):
        yield from decimals_in(value.decode("latin-1"))
    elif isinstance(value, complex):
        yield from (value.real, value.imag)
    elif isinstance(value, dict):
        yield from numbers_in([*value, *value.values()])
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from numbers_in(item)


def float_digits(value: float | str) -> int:
    """
    Significant digits of a number as it is written, or of the shortest text of a float: 4 for `0.001234`, 1 for
    `1e22`, 17 for `0.1 + 0.2`.
    """
    return len(str(value).partition("e")[0].replace(".", "").strip("-0")) or 1


def float_decimals(value: float | str) -> int:
    """Digits after the point of such a number: 2 for `12345.67`, 0 for `3.0`, 1 for `1.5e22`."""
    return len(str(value).partition("e")[0].partition(".")[2].rstrip("0"))
