"""The content of a task about a Python program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from trl_populora.tasks.task import Payload


@dataclass(frozen=True)
class CodePayload(Payload):
    """A program together with inputs and the outputs that the executor computed for them.

    Args:
        program (`str`): Source text that defines `f`.
        inputs (`tuple[str, ...]`):
            Literal text of each argument list, such as `"1, 'a'"`. One for `code_o` and `code_i`.
        outputs (`tuple[str, ...]`): Literal text of each output, in the order of `inputs`.
        message (`str`, *optional*): `code_f` only: the hint for the solver.

    Raises:
        ValueError: Unless there is exactly one output per input, and at least one of both.
    """

    program: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    message: str = ""

    def __post_init__(self) -> None:
        if not self.inputs or len(self.inputs) != len(self.outputs):
            raise ValueError(
                f"a task needs one output for each of its inputs and at least one of both, got {len(self.inputs)} "
                f"inputs and {len(self.outputs)} outputs"
            )

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


class Proposed(NamedTuple):
    """Content of a draft: what a teacher wrote, before execution.

    Attributes:
        program (`str`): Source text that defines `f`. message (`str`): The hint, of `code_f` only.
        inputs (`tuple[tuple, ...]`): One argument tuple per call of `f`, as plain values.
    """

    program: str
    inputs: tuple[tuple[Any, ...], ...]
    message: str = ""
