"""The common part of `code_o` and `code_i`: a teacher writes a program and one input, and the executor computes the
output.

Not here: what makes a task of either type hard, how it is solved and judged (`code_o.py`, `code_i.py`).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from trl_populora.tasks.base import Message
from trl_populora.tasks.code.arguments import arguments_text, read_arguments
from trl_populora.tasks.code.base import CodeType
from trl_populora.tasks.code.keys import output_key
from trl_populora.tasks.code.payload import CodePayload, Proposed
from trl_populora.tasks.code.prompts import INPUT_FORMAT, float_rule, program_rules, references_text
from trl_populora.tasks.code.source import read_program
from trl_populora.tasks.parsing import completion_fences, fence, last_body
from trl_populora.tasks.task import Draft, Refusal, Task
from trl_populora.tasks.wording import REASONING_NOTE, paragraphs, user


@dataclass(frozen=True)
class ProgramInput(CodeType):
    """Proposing a program and one input. Subclasses describe what makes a task hard, in `wanted_full` and
    `wanted_compact`."""

    reasons: ClassVar[Mapping[str, str]] = {**CodeType.reasons, "no_value": "the program returned None"}
    wanted_full: ClassVar[str]
    wanted_compact: ClassVar[str]

    def propose_prompt(self, references: Sequence[Task], rng: random.Random) -> list[Message]:
        shown = references_text(references, k=self.max_references, rng=rng)
        if self.style == "compact":
            ask = "Write a new Python function f in a ```python block, then one input in a ```input block. "
            return user(paragraphs(ask + self.wanted_compact, shown))
        return user(
            paragraphs(
                "Invent a puzzle about a Python program: write the program and one input for it. The program will be "
                "run on your input to get the output, so do not give the output yourself.",
                self.wanted_full,
                "\n".join(filter(None, [program_rules(self), float_rule(self)])),
                shown and "These puzzles exist already. Write one that is new, different in its idea, and not easier:",
                shown,
                "First write a short plan: the idea, the steps of the computation, and why it is hard. "
                + REASONING_NOTE
                + " Then give exactly these two blocks:",
                fence("python", "def f(...):\n    ...\n    return ..."),
                fence("input", "..."),
                INPUT_FORMAT,
            )
        )

    def shown_keys(self, payload: CodePayload) -> Collection[str]:
        """Also that of the question for an input with which the program returns this output."""
        return {*super().shown_keys(payload), output_key(payload.program, payload.output)}

    def parse_proposal(self, completion: str, references: Sequence[Task]) -> Draft | Refusal:
        blocks = completion_fences(completion)
        source, text = last_body(blocks, "python"), last_body(blocks, "input")
        if not source:
            return Refusal("no_program", "no ```python block")
        if not text:
            return Refusal("no_input", "no ```input block, or an empty one")
        program = read_program(source, max_bytes=self.program_bytes)
        if isinstance(program, Refusal):
            return program
        refusal = self.check_text("input", text)
        if refusal is not None:
            return refusal
        try:
            arguments = read_arguments(text, program, max_bytes=self.input_bytes, comments=True)
            canonical_text = arguments_text(arguments)
        except ValueError as error:
            return Refusal("not_literal", f"the input: {error}"[:200])
        if not arguments:
            return Refusal("no_input", "the argument list is empty")
        if any(one.payload.program == program and one.payload.input == canonical_text for one in references):
            return Refusal("duplicate", "repeats a reference")
        return self.draft(Proposed(program, (arguments,)))

    def check_payload(self, payload: CodePayload) -> Refusal | None:
        return Refusal("no_value", "f returned None") if payload.output == "None" else None

    def propose_completion(self, task: Task) -> str:
        return f"{fence('python', task.payload.program)}\n{fence('input', task.payload.input)}"
