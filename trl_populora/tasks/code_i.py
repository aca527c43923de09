"""`code_i`, abduction: given a program and its output, find an input that gives it. (From Absolute Zero Reasoner.)

Any input counts that makes the program return the gold output. The answer is parsed as literal arguments and travels
to the executor as values, never as text pasted into a script; the comparison is made here, on canonical bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trl_populora.executor import Execution, Job, Status, canonical, literals
from trl_populora.tasks.arguments import read_arguments
from trl_populora.tasks.parsing import completion_fences, fence, last_body, num_bytes
from trl_populora.tasks.program_input import ProgramInput
from trl_populora.tasks.prompts import INPUT_FORMAT, REASONING_NOTE, paragraphs, user
from trl_populora.tasks.task import Answer, Refusal, Task, arguments_text


@dataclass(frozen=True)
class CodeI(ProgramInput):
    """Abduction. Proposers write a program and an input; solvers find an input from the output."""

    id: ClassVar[str] = "code_i"
    wanted_full: ClassVar[str] = (
        "The solver will see the program and the output, and must find an input for which the program returns that "
        "output; any such input counts. Make the input hard to infer: working back from the output should take "
        "several steps of careful reasoning, and few inputs should fit. It must still be possible to work out by "
        "hand, so no cryptographic scrambling."
    )
    wanted_compact: ClassVar[str] = "The input should be hard to guess."

    def solve_prompt(self, task: Task) -> list[dict]:
        shown = f"{fence('python', task.program)}\n{fence('output', task.output)}"
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
        blocks = completion_fences(completion)
        if blocks is None:
            return Refusal("too_large", "the completion")
        text = last_body(blocks, "input")
        if not text:
            return Refusal("no_input", "no ```input block, or an empty one")
        if num_bytes(text) > self.limits.input_bytes:
            return Refusal("too_large", f"the input has more than {self.limits.input_bytes} bytes")
        try:
            arguments = read_arguments(text, task.program, max_bytes=self.limits.input_bytes)
            arguments_text(arguments)  # raises for values without a literal, such as an infinite float
        except ValueError as error:
            return Refusal("not_literal", f"the input: {error}"[:200])
        if not arguments:
            return Refusal("no_input", "the argument list is empty")
        return Answer(arguments)

    def answer_job(self, task: Task, answer: Answer) -> Job:
        return Job(task.program, (answer.value,))

    def judge(self, task: Task, answer: Answer, execution: Execution | None) -> bool:
        if execution is None or execution.status is not Status.OK or len(execution.values) != 1:
            return False
        value = execution.values[0]
        return value.status is Status.OK and value.data == canonical.encode(literals.parse_literal(task.output))

    def solve_completion(self, task: Task) -> str:
        return fence("input", task.input)
