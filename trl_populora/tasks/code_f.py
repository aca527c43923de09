"""`code_f`, induction: given a message and some input/output pairs, write the program. (From Absolute Zero Reasoner.)

The proposer sees one program and writes N inputs and a message. The solver sees the message and half of the pairs,
which a hash of the task chooses; its program is judged on the other half, which is in no prompt and whose outputs
never enter the sandbox.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from trl_populora.executor import Execution, Job, Status, canonical, literals
from trl_populora.tasks.arguments import read_arguments
from trl_populora.tasks.base import TaskType
from trl_populora.tasks.hygiene import defines_f, parse
from trl_populora.tasks.parsing import completion_fences, fence, last_body, num_bytes
from trl_populora.tasks.prompts import (
    INPUT_FORMAT,
    MARKS_RULE,
    REASONING_NOTE,
    float_rule,
    pairs_text,
    paragraphs,
    user,
)
from trl_populora.tasks.task import Answer, Draft, Refusal, Task, arguments_text


BETWEEN = (
    r"(?:\W|\b(?:is|gives|gets|returns|becomes|yields|makes|maps|results|turns|comes|from|into|to|the|output|in)\b)"
    r"{1,20}?"
)
MIN_LEAK = 16  # characters without whitespace: a shorter body, such as `returnx`, is also ordinary English


@dataclass(frozen=True)
class CodeF(TaskType):
    """
    Induction. Proposers write inputs and a message for a given program; solvers write the program.

    Args:
        num_inputs (`int`, *optional*, defaults to `10`):
            Inputs per task. Half of them, rounded down, are shown to the solver; the rest are hidden.
    """

    id: ClassVar[str] = "code_f"
    proposes_program: ClassVar[bool] = False  # it is that of a reference
    min_references: ClassVar[int] = 1  # the program to write inputs for

    num_inputs: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_inputs < 2:
            raise ValueError(f"num_inputs must be at least 2, got {self.num_inputs}")

    def propose_prompt(self, references: Sequence[Task], rng: random.Random) -> list[dict]:
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
                "not all be equal.\n- The message is plain words. It does not contain the program or its code, and "
                "does not list inputs with their outputs.\n- Each call of `f` returns a plain value, takes less than "
                "half of its time limit, and gives the same in every order of calls.\n"
                f"- An input has at most {self.limits.input_bytes} bytes, an output {self.limits.output_bytes}, the "
                f"message {self.limits.message_bytes}. All of it fits into a prompt. Anything larger is refused.\n"
                + "\n".join(filter(None, [MARKS_RULE, float_rule(self.limits)]))
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
        if blocks is None:
            return Refusal("too_large", "the completion")
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
            most = self.limits.input_bytes
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
        return Draft(self.id, program, inputs, message)

    def finish_proposal(self, draft: Draft, execution: Execution, *, author: str, step: int = 0) -> Task | Refusal:
        if execution.status is not Status.OK:
            return Refusal(execution.status.value)
        try:
            inputs = tuple(arguments_text(arguments) for arguments in draft.inputs)
            outputs = tuple(value.literal for value in execution.values)
        except ValueError as error:
            return Refusal("not_literal", f"an output: {error}"[:200])
        checks = [self.check_text("input", text) for text in inputs]
        checks += [self.check_output(text) for text in outputs]
        refusal = next(filter(None, checks), None)
        if refusal is not None:
            return refusal
        task = Task.create(
            self.id,
            draft.program,
            inputs=inputs,
            outputs=outputs,
            message=draft.message,
            author=author,
            step=step,
        )
        if lists_pairs(task.message, task.hidden):
            return Refusal("message_leaks_pairs", "the message lists inputs with their outputs")
        if one_output(task):
            return Refusal("constant_outputs", f"every output that the solver would see is {task.visible[0][1]}"[:200])
        return task

    def propose_completion(self, task: Task) -> str:
        return "\n".join([*(fence("input", text) for text in task.inputs), fence("message", task.message)])

    def solve_prompt(self, task: Task) -> list[dict]:
        shown = f"{fence('message', task.message)}\n{pairs_text(task.visible)}"
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
        blocks = completion_fences(completion)
        if blocks is None:
            return Refusal("too_large", "the completion")
        program = last_body(blocks, "python")
        if not program:
            return Refusal("no_program", "no ```python block, or an empty one")
        if num_bytes(program) > self.limits.program_bytes:
            return Refusal("too_large", f"the program has more than {self.limits.program_bytes} bytes")
        tree = parse(program)
        if isinstance(tree, Refusal):
            return tree
        return Answer(program) if defines_f(tree) else Refusal("no_function", "the program does not define f")

    def answer_job(self, task: Task, answer: Answer) -> Job:
        return Job(answer.value, tuple(literals.parse_arguments(given) for given, _ in task.hidden))

    def judge(self, task: Task, answer: Answer, execution: Execution | None) -> bool:
        if execution is None or len(execution.values) != len(task.hidden):
            return False
        return all(
            value.status is Status.OK and value.data == canonical.encode(literals.parse_literal(output))
            for value, (_, output) in zip(execution.values, task.hidden)
        )

    def solve_completion(self, task: Task) -> str:
        return fence("python", task.program)


def leaks_program(message: str, program: str) -> bool:
    """Whether a message quotes the program, a definition of `f`, or the body of `f`, whatever the whitespace."""
    message = _squeeze(message)
    if _squeeze(program) in message or "deff(" in message:
        return True
    tree = parse(program)
    if isinstance(tree, Refusal):
        return False
    entries = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "f"]
    bodies = [_squeeze("".join(ast.get_source_segment(program, line) or "" for line in f.body)) for f in entries]
    return any(len(body) >= MIN_LEAK and body in message for body in bodies)


def lists_pairs(message: str, pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether a message states more than half of these pairs: the input, at most a verb and signs, the output."""
    stated = [
        re.search(rf"(?<!\w){re.escape(given)}{BETWEEN}{re.escape(output)}(?!\w)", message) for given, output in pairs
    ]
    return 2 * sum(map(bool, stated)) > len(pairs)


def one_output(task: Task) -> bool:
    """Whether all outputs are equal, or all that the solver would see. One pair alone cannot differ."""
    shown = {output for _, output in task.visible}
    return len({*task.outputs}) < 2 or (len(shown) < 2 <= len(task.visible))


def _squeeze(text: str) -> str:
    return "".join(text.split())


def _shown_program(references: Sequence[Task]) -> str:
    if not references:
        raise ValueError("a code_f proposal needs the task whose program is shown as references[0], got no reference")
    return references[0].program
