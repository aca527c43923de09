"""`code_f`, induction: given a message and some input/output pairs, write the program. (From Absolute Zero Reasoner.)

The teacher sees one program and writes N inputs and a message. The student sees the message and half of the pairs,
chosen by a hash of the task. Its program is judged on the other half. These hidden pairs are in no prompt, and their
outputs never enter the sandbox.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from trl_populora.executor import Job, canonical, literals
from trl_populora.tasks.base import Message, Run, word_pairs
from trl_populora.tasks.code.arguments import arguments_text, read_arguments
from trl_populora.tasks.code.base import CodeType
from trl_populora.tasks.code.hygiene import defines_f, parse
from trl_populora.tasks.code.keys import program_key
from trl_populora.tasks.code.pairs import hidden, leaks_program, lists_pairs, one_output, visible
from trl_populora.tasks.code.payload import CodePayload, Proposed
from trl_populora.tasks.code.prompts import INPUT_FORMAT, float_rule, pairs_text
from trl_populora.tasks.parsing import completion_fences, fence, last_body, num_bytes
from trl_populora.tasks.task import Answer, Draft, Refusal, Task
from trl_populora.tasks.wording import MARKS_RULE, REASONING_NOTE, paragraphs, user


@dataclass(frozen=True)
class CodeF(CodeType):
    """
    Induction. Teachers write inputs and a message for a given program. Students write the program.

    Args:
        num_inputs (`int`, *optional*, defaults to `10`):
            Number of inputs per task. Half of them, rounded down, are shown to the student. The others are hidden.
    """

    id: ClassVar[str] = "code_f"
    reference_types: ClassVar[tuple[str, ...]] = ("code_o", "code_i")
    min_references: ClassVar[int] = 1  # the program to write inputs for
    reasons: ClassVar[Mapping[str, str]] = {
        **CodeType.reasons,
        "too_few_inputs": "fewer input fences than asked for",
        "missing_message": "no message fence, or an empty one",
        "message_leaks_program": "the message gives the program away",
        "message_leaks_pairs": "the message lists the hidden pairs",
        "duplicate_inputs": "two equal inputs",
        "constant_outputs": "all outputs equal, or all that the solver would see, or all that are hidden",
    }
    has_message: ClassVar[bool] = True

    num_inputs: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_inputs < 2:
            raise ValueError(f"num_inputs must be at least 2, got {self.num_inputs}")

    def propose_prompt(self, references: Sequence[Task], rng: random.Random) -> list[Message]:
        program, n = fence("python", _shown_program(references)), self.num_inputs
        if self.style == "compact":
            ask = f"Write {n} different inputs for f, each in a ```input block, and a hint in a ```message block."
            return user(paragraphs(ask, program))
        return user(
            paragraphs(
                f"Here is a Python program. Write {n} inputs for it and a message that describes what `f` computes.",
                program,
                f"The program will be run on your inputs. The solver will see your message and {n // 2} of the pairs "
                "of input and output, and must write a program that agrees with this one on the other pairs too. Make "
                "the program hard to infer, but possible: inputs that differ in kind and reach every branch, and a "
                "message that states the goal without giving the steps away.",
                "Rules:\n- No two inputs are equal. Which pairs are shown is drawn by chance, and those outputs must "
                "not all be equal, nor the hidden ones.\n- The message is plain words. It does not contain the "
                "program or its code, and does not list inputs with their outputs.\n- Each call of `f` returns a "
                "plain value, takes less than half of its time limit, and gives the same in every order of calls.\n"
                f"- An input has at most {self.input_bytes} bytes, an output {self.output_bytes}, the "
                f"message {self.message_bytes}. All of it fits into a prompt. Anything larger is refused.\n"
                + "\n".join(filter(None, [MARKS_RULE, float_rule(self)]))
                + "\n- It is not an earlier puzzle: the same program with the same inputs.",
                "First write a short plan: which cases the inputs should cover. "
                + REASONING_NOTE
                + f" Then give {n} input blocks and one message block in this form:",
                fence("input", "..."),
                fence("message", "..."),
                INPUT_FORMAT,
            )
        )

    def parse_proposal(self, completion: str, references: Sequence[Task]) -> Draft | Refusal:
        program = _shown_program(references)
        blocks = completion_fences(completion)
        texts = [block.body for block in blocks if block.label == "input"][-self.num_inputs :]
        if len(texts) < self.num_inputs:
            return Refusal("too_few_inputs", f"{len(texts)} input blocks, {self.num_inputs} are needed")
        message = last_body(blocks, "message")
        if not message:
            return Refusal("missing_message", "no ```message block, or an empty one")
        refusal = self.check_text("message", message)
        refusal = refusal or next(filter(None, (self.check_text("input", text) for text in texts)), None)
        if refusal is not None:
            return refusal
        if leaks_program(message, program):
            return Refusal("message_leaks_program", "the message contains code of the program")
        try:
            most = self.input_bytes
            inputs = tuple(read_arguments(text, program, max_bytes=most, comments=True) for text in texts)
            for arguments in inputs:
                arguments_text(arguments)  # raises for values without a literal
        except ValueError as error:
            return Refusal("not_literal", f"an input: {error}"[:200])
        if not all(inputs):
            return Refusal("no_input", "an argument list is empty")
        distinct = {canonical.encode(arguments, max_bytes=None) for arguments in inputs}
        if len(distinct) < len(inputs):
            return Refusal("duplicate_inputs", f"{len(distinct)} of {len(inputs)} inputs are different")
        return self.draft(Proposed(program, inputs, message))

    def check_payload(self, payload: CodePayload) -> Refusal | None:
        task = Task.create(self.id, payload)
        if lists_pairs(payload.message, hidden(task)):
            return Refusal("message_leaks_pairs", "the message lists inputs with their outputs")
        if one_output(task):
            return Refusal("constant_outputs", self.reasons["constant_outputs"])
        return None

    def shown_keys(self, payload: CodePayload) -> Collection[str]:
        """Also that of its program: the task asks for it, whatever the pairs are."""
        return {*super().shown_keys(payload), program_key(payload.program)}

    def reference_keys(self, task: Task) -> Collection[str]:
        return (program_key(task.payload.program),)

    def propose_completion(self, task: Task) -> str:
        return "\n".join(
            [*(fence("input", text) for text in task.payload.inputs), fence("message", task.payload.message)]
        )

    def example_references(self, task: Task, references: Sequence[Task]) -> Sequence[Task]:
        """The task itself, whose program is then the one to write inputs for."""
        return [task]

    def solve_prompt(self, task: Task) -> list[Message]:
        shown = f"{fence('message', task.payload.message)}\n{pairs_text(visible(task))}"
        if self.style == "compact":
            return user(paragraphs("Write f from the hint and the pairs. Answer in a ```python block.", shown))
        return user(
            paragraphs(
                "Write a Python program from a description and from pairs of input and output. The input blocks hold "
                "the arguments with which `f` is called.",
                shown,
                "Your program defines a function `f`. It is run on other inputs of the same kind, which you do not "
                "see, and must return the right value for each of them; a program that only lists the pairs above "
                "fails. It runs without files, network and clock, and in a fraction of a second.",
                REASONING_NOTE + " Give your answer in this form:",
                fence("python", "def f(...):\n    ...\n    return ..."),
            )
        )

    def parse_answer(self, task: Task, completion: str) -> Answer | Refusal:
        program = self.read_block(completion, "python", self.program_bytes)
        tree = program if isinstance(program, Refusal) else parse(program)
        if isinstance(tree, Refusal):
            return tree
        return Answer(program) if defines_f(tree) else Refusal("no_function", "the program does not define f")

    def judge(self, tasks: Sequence[Task], answers: Sequence[Answer], run: Run) -> list[bool | Refusal]:
        pairs = [hidden(task) for task in tasks]
        jobs = [
            Job(answer.value, tuple(literals.parse_arguments(given, num_bytes(given)) for given, _ in own))
            for answer, own in zip(answers, pairs, strict=True)
        ]
        return self.compare(jobs, [[output for _, output in own] for own in pairs], run)

    def parts(self, task: Task) -> frozenset[str]:
        return word_pairs(self.propose_completion(task))  # not of the program, which the teacher was given

    def features(self, task: Task) -> None:
        """None: the program is another author's."""
        return None

    def solve_completion(self, task: Task) -> str:
        return fence("python", task.payload.program)


def _shown_program(references: Sequence[Task]) -> str:
    if not references:
        raise ValueError("a code_f proposal needs the task whose program is shown as references[0], got no reference")
    return references[0].payload.program
