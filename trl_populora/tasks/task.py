"""The nouns of this room: a verified task, a draft on its way to one, a parsed answer, and a refusal with its reason.

Here: plain frozen records with a JSON round trip, and the fixed list of refusal reasons. Not here: how text becomes a
draft (`parsing.py` and the task types), what programs may contain (`hygiene.py`), or anything that runs code.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from trl_populora.executor import Status, literals


# What the text of a proposal or an answer can be refused for, before or after it ran. Every status of the executor
# except `ok` is a reason too, under the same name; `infra_error` is the only one that is nobody's fault.
TEXT_REASONS = frozenset(
    {
        "no_program",  # no ```python fence
        "no_input",  # no ```input fence, or an empty argument list
        "no_output",  # no ```output fence
        "too_few_inputs",  # code_f: fewer input fences than asked for
        "missing_message",  # code_f: no ```message fence, or an empty one
        "message_leaks_program",  # code_f: the message gives the program away
        "message_leaks_pairs",  # code_f: the message lists the hidden pairs
        "not_literal",  # an input, output or answer that is no plain Python literal
        "too_large",  # over a size limit; nothing is ever truncated to fit
        "reserved_text",  # contains a fence, a reasoning tag or a chat-template token
        "duplicate",  # repeats a task of the buffer, or one of the same teacher and round, up to names and layout
        "duplicate_inputs",  # code_f: two equal inputs
        "constant_outputs",  # code_f: all outputs equal, or all that the solver would see
        "too_precise",  # a float in an output has too many digits
        "answer_too_long",  # the right answer takes too large a share of a completion
        "prompt_too_long",  # the task does not fit into a solver's prompt
        "no_value",  # code_o, code_i: the program returned None
        # hygiene of programs
        "syntax_error",
        "no_function",  # does not define `f` at the top level
        "no_parameters",  # `f` takes no argument
        "banned_import",
        "banned_name",
        "banned_attribute",
        "dunder",
        "top_level_statement",
        "banned_syntax",
    }
)
REASONS = TEXT_REASONS | {status.value for status in Status if status is not Status.OK}


@dataclass(frozen=True)
class Refusal:
    """
    Why a proposal did not become a task, or why an answer is not well formed.

    Args:
        reason (`str`):
            Short name, one of `REASONS` for the task types of this package.
        detail (`str`, *optional*):
            What exactly was refused, for people.
    """

    reason: str
    detail: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, str]) -> Refusal:
        return cls(**record)


@dataclass(frozen=True)
class Draft:
    """
    A proposal that parsed and passed the static rules; the executor has not seen it yet.

    Args:
        type (`str`):
            Task type, such as `"code_o"`.
        program (`str`):
            Source text that defines `f`.
        inputs (`tuple[tuple, ...]`):
            One argument tuple per call of `f`, as plain Python values.
        message (`str`, *optional*):
            `code_f` only: the hint for the solver.
    """

    type: str
    program: str
    inputs: tuple[tuple, ...]
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        inputs = [arguments_text(arguments) for arguments in self.inputs]
        return {"type": self.type, "program": self.program, "inputs": inputs, "message": self.message}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Draft:
        inputs = tuple(literals.parse_arguments(text) for text in record["inputs"])
        return cls(record["type"], record["program"], inputs, record["message"])


@dataclass(frozen=True)
class Answer:
    """
    A well-formed answer: a literal value for `code_o`, an argument tuple for `code_i`, program text for `code_f`.
    """

    value: Any

    def to_json(self) -> dict[str, str]:
        return {"value": literals.to_literal(self.value)}

    @classmethod
    def from_json(cls, record: dict[str, str]) -> Answer:
        return cls(literals.parse_literal(record["value"]))


@dataclass(frozen=True)
class Task:
    """
    A verified task: a program together with inputs and the outputs that the executor computed for them.

    Build one with [`Task.create`], which derives the id from the content.

    Args:
        id (`str`):
            Hash of type, program, inputs, outputs and message; equal content means equal id, whoever wrote it.
        type (`str`):
            Task type, such as `"code_o"`.
        program (`str`):
            Source text that defines `f`.
        inputs (`tuple[str, ...]`):
            Literal text of each argument list, such as `"1, 'a'"`. One for `code_o` and `code_i`.
        outputs (`tuple[str, ...]`):
            Literal text of each output, in the order of `inputs`.
        message (`str`, *optional*):
            `code_f` only: the hint for the solver.
        author (`str`, *optional*, defaults to `"seed"`):
            Member that proposed the task, or `"seed:<family>"`.
        step (`int`, *optional*, defaults to `0`):
            Step at which it was proposed.
    """

    id: str
    type: str
    program: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    message: str = ""
    author: str = "seed"
    step: int = 0

    @classmethod
    def create(
        cls,
        type: str,
        program: str,
        *,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        message: str = "",
        author: str = "seed",
        step: int = 0,
    ) -> Task:
        """Builds a task and its id. Raises `ValueError` unless there is exactly one output per input."""
        inputs, outputs = tuple(inputs), tuple(outputs)
        if not inputs or len(inputs) != len(outputs):
            raise ValueError(
                f"a task needs one output for each of its inputs and at least one of both, got {len(inputs)} inputs "
                f"and {len(outputs)} outputs"
            )
        content = _content_id(type, program, inputs, outputs, message)
        return cls(content, type, program, inputs, outputs, message, author, step)

    @property
    def input(self) -> str:
        """The first input, the only one of a `code_o` or `code_i` task."""
        return self.inputs[0]

    @property
    def output(self) -> str:
        """The first output, the only one of a `code_o` or `code_i` task."""
        return self.outputs[0]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(zip(self.inputs, self.outputs))

    @property
    def visible(self) -> tuple[tuple[str, str], ...]:
        """`code_f`: the half of the pairs, rounded down, that the solver sees; a hash of the task chooses it."""
        return tuple(self.pairs[i] for i in self._shown)

    @property
    def hidden(self) -> tuple[tuple[str, str], ...]:
        """`code_f`: the other pairs, on which the answer is judged and which no prompt ever shows."""
        shown = set(self._shown)
        return tuple(pair for i, pair in enumerate(self.pairs) if i not in shown)

    @property
    def _shown(self) -> list[int]:
        """Places of the visible pairs, in order: a proposer cannot tell which of its inputs they will be."""

        def rank(place: int) -> tuple[bytes, int]:
            return hashlib.sha256(f"{self.id}:{self.inputs[place]}".encode("utf-8", "surrogatepass")).digest(), place

        return sorted(sorted(range(len(self.inputs)), key=rank)[: len(self.inputs) // 2])

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"inputs": list(self.inputs), "outputs": list(self.outputs)}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Task:
        """Inverse of `to_json`. Raises `ValueError` if the id does not belong to the content."""
        task = cls(**{**record, "inputs": tuple(record["inputs"]), "outputs": tuple(record["outputs"])})
        expected = _content_id(task.type, task.program, task.inputs, task.outputs, task.message)
        if task.id != expected:
            raise ValueError(f"task id {task.id!r} does not match its content ({expected!r}): the record was altered")
        return task


def arguments_text(arguments: tuple) -> str:
    """Literal text of an argument list, such as `"1, 'a'"`. Raises `literals.NotLiteral` for a value without one."""
    return ", ".join(literals.to_literal(argument) for argument in arguments)


def _content_id(type: str, program: str, inputs: tuple[str, ...], outputs: tuple[str, ...], message: str) -> str:
    content = json.dumps([type, program, inputs, outputs, message])
    return hashlib.sha256(content.encode("ascii")).hexdigest()[:16]
