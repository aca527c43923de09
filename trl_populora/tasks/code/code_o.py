"""`code_o`, deduction: given a program and its input, what is the output? (From Absolute Zero Reasoner.)

Nothing runs to judge an answer. It is parsed as a literal, and canonical bytes are compared. So `1`, `1.0` and `True`
are three different answers, and no expression is ever evaluated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from trl_populora.executor import canonical, literals
from trl_populora.tasks.base import Message, Run
from trl_populora.tasks.code.base import CodeType, normal, stored
from trl_populora.tasks.code.payload import CodePayload
from trl_populora.tasks.code.program_input import ProgramInput
from trl_populora.tasks.code.written_out import check_written
from trl_populora.tasks.parsing import fence
from trl_populora.tasks.task import Answer, Refusal, Task
from trl_populora.tasks.wording import REASONING_NOTE, paragraphs, user


@dataclass(frozen=True)
class CodeO(ProgramInput):
    """Deduction. Teachers write a program and an input. Students predict the output."""

    id: ClassVar[str] = "code_o"
    reasons: ClassVar[Mapping[str, str]] = {**ProgramInput.reasons, "no_output": "no output fence"}
    wanted_full: ClassVar[str] = (
        "The solver will see the program and the input, and must predict the output without running anything. Make "
        "the output hard to predict: it should take several steps of careful reasoning, with state that changes on "
        "the way, and not just long arithmetic. It must still be possible to work out by hand."
    )
    wanted_compact: ClassVar[str] = "The output should be hard to guess."

    def question_keys(self, payload: CodePayload) -> Collection[str]:
        """Without that of its output: another input is another question."""
        return CodeType.shown_keys(self, normal(payload))

    def solve_prompt(self, task: Task) -> list[Message]:
        shown = f"{fence('python', task.payload.program)}\n{fence('input', task.payload.input)}"
        if self.style == "compact":
            return user(paragraphs("What does f return for this input? Answer in a ```output block.", shown))
        return user(
            paragraphs(
                "Predict what this program returns. The input block holds the arguments with which `f` is called.",
                shown,
                REASONING_NOTE + " Give your answer in this form:",
                fence("output", "..."),
                "The output block holds the returned value as one Python literal, as `repr` would show it: strings "
                "quoted, types exact (`1`, `1.0` and `True` are different), no expression and no call.",
            )
        )

    def parse_answer(self, task: Task, completion: str) -> Answer | Refusal:
        room = 4 * self.output_bytes  # the gold literal may be written with other spacing, on several lines
        text = self.read_block(completion, "output", room)
        if isinstance(text, Refusal):
            return text
        try:
            value = literals.parse_literal(text, max_bytes=room)
            check_written(text, value)
            literals.to_literal(value)  # raises for values without a literal, such as an infinite float
        except ValueError as error:
            return Refusal("not_literal", f"the output: {error}"[:200])
        return Answer(value)

    def judge(self, tasks: Sequence[Task], answers: Sequence[Answer], run: Run) -> list[bool | Refusal]:
        """Compares values; nothing runs."""
        return [
            canonical.encode(answer.value, max_bytes=None)
            == canonical.encode(stored(task.payload.output), max_bytes=None)
            for task, answer in zip(tasks, answers, strict=True)
        ]

    def solve_completion(self, task: Task) -> str:
        return fence("output", task.payload.output)
