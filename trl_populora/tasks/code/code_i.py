"""`code_i`, abduction: given a program and its output, find an input that gives it. (From Absolute Zero Reasoner.)

Every input with which the program returns the right output is a solution. The answer is parsed as literal arguments
and sent to the executor as values, never as text in a script. The comparison happens in this process, on canonical
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from trl_populora.executor import Job
from trl_populora.tasks.base import Message, Run
from trl_populora.tasks.code.arguments import arguments_text, read_arguments
from trl_populora.tasks.code.program_input import ProgramInput
from trl_populora.tasks.code.prompts import INPUT_FORMAT
from trl_populora.tasks.parsing import fence
from trl_populora.tasks.task import Answer, Refusal, Task
from trl_populora.tasks.wording import REASONING_NOTE, paragraphs, user


@dataclass(frozen=True)
class CodeI(ProgramInput):
    """Abduction. Teachers write a program and an input. Students find an input for the output."""

    id: ClassVar[str] = "code_i"
    wanted_full: ClassVar[str] = (
        "The solver will see the program and the output, and must find an input for which the program returns that "
        "output; any such input counts. Make the input hard to infer: working back from the output should take "
        "several steps of careful reasoning, and few inputs should fit. It must still be possible to work out by "
        "hand, so no cryptographic scrambling."
    )
    wanted_compact: ClassVar[str] = "The input should be hard to guess."

    def solve_prompt(self, task: Task) -> list[Message]:
        shown = f"{fence('python', task.payload.program)}\n{fence('output', task.payload.output)}"
        if self.style == "compact":
            return user(paragraphs("Find an input so that f returns this output. Answer in a ```input block.", shown))
        return user(
            paragraphs(
                "Find an input for which this program returns exactly the output below. There may be several; any one "
                "counts.",
                shown,
                REASONING_NOTE + " Give your answer in this form:",
                fence("input", "..."),
                INPUT_FORMAT,
            )
        )

    def parse_answer(self, task: Task, completion: str) -> Answer | Refusal:
        room = 4 * self.input_bytes  # as for outputs: the same values may be written on several lines
        text = self.read_block(completion, "input", room)
        if isinstance(text, Refusal):
            return text
        try:
            arguments = read_arguments(text, task.payload.program, max_bytes=room)
            arguments_text(arguments)  # raises for values without a literal, such as an infinite float
        except ValueError as error:
            return Refusal("not_literal", f"the input: {error}"[:200])
        if not arguments:
            return Refusal("no_input", "the argument list is empty")
        return Answer(arguments)

    def judge(self, tasks: Sequence[Task], answers: Sequence[Answer], run: Run) -> list[bool | Refusal]:
        jobs = [Job(task.payload.program, (answer.value,)) for task, answer in zip(tasks, answers, strict=True)]
        return self.compare(jobs, [task.payload.outputs for task in tasks], run)

    def solve_completion(self, task: Task) -> str:
        return fence("input", task.payload.input)
