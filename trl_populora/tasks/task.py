"""The records of this subpackage: a verified task, a draft of a task, a parsed answer, and a refusal with its reason.

They are plain and frozen, and can be stored as JSON. Task types parse and check drafts. `referee.py` calls the types.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from trl_populora.executor import Status


REASONS: dict[str, str] = {
    **{status.value: "the program ended so in the sandbox" for status in Status if status is not Status.OK},
    "too_large": "over a size limit; nothing is ever truncated to fit",
    "reserved_text": "contains a fence, a reasoning tag, a chat-template token, or text that the tokenizer changes",
    "duplicate": "repeats a task of the buffer, or one of the same teacher and round, under the key of its type",
    "held_out": "shows a question of an exam with an answer: nobody may learn from those",
    "answer_too_long": "the right answer takes too large a share of a completion",
    "prompt_too_long": "the task does not fit into a solver's prompt",
}
"""Reasons for refusals that all types share: short name -> meaning. Only `infra_error` is not caused by the text."""


@dataclass(frozen=True)
class Refusal:
    """The reason why a proposal did not become a task, or why an answer could not be read or judged.

    Args:
        reason (`str`): Short name: one of the type's own `reasons`, or of the shared `REASONS`.
        detail (`str`, *optional*): The reason in words.
    """

    reason: str
    detail: str = ""


INFRASTRUCTURE = Refusal(
    "infra_error", "the executor failed, not the program; the row is neither rewarded nor punished"
)


def is_spared(refusal: Refusal | None) -> bool:
    """Whether a refusal is caused by the executor. Then the row is neither right nor wrong, and no number counts
    it."""
    return refusal is not None and refusal.reason == INFRASTRUCTURE.reason


@dataclass(frozen=True)
class Payload:
    """Base class of the content of a task of one type: a frozen dataclass of plain values.

    Fields are text, numbers, booleans, `None`, and tuples of these at any depth. They can be stored as JSON and read
    back equal. They hold everything that belongs to a task, including what no prompt shows, such as hidden tests.
    """

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values; tuples become lists."""
        return {field.name: _lists(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; lists become tuples."""
        return cls(**{name: _tuples(value) for name, value in record.items()})


@dataclass(frozen=True)
class Draft:
    """A proposal that was parsed and passed every rule that needs no execution.

    Args:
        key (`str`): Equal keys mean the same task. It equals `TaskType.key` of the later payload.
        content (`Any`): Data that the type needs to verify it. Only the type uses it.
    """

    key: str
    content: Any


@dataclass(frozen=True)
class Answer:
    """A well-formed answer. Only its type uses its value."""

    value: Any


@dataclass(frozen=True)
class Task:
    """A verified task.

    Create one with [`Task.create`], which computes the id from the content.

    Args:
        id (`str`): Hash of type and payload. Equal content has an equal id, for every author.
        type (`str`): Id of its task type, such as `"code_o"`.
        payload (`Payload`): The type's own record.
        author (`str`, *optional*, defaults to `"seed"`): Member that proposed it, or `"seed:<family>"`.
        step (`int`, *optional*, defaults to `0`): Step at which it was proposed.
    """

    id: str
    type: str
    payload: Any
    author: str = "seed"
    step: int = 0

    @classmethod
    def create(cls, type: str, payload: Payload, *, author: str = "seed", step: int = 0) -> Task:
        """Creates a task with its id."""
        return cls(content_id(type, payload), type, payload, author, step)

    def to_json(self) -> dict[str, Any]:
        """The task as JSON values; `TaskType.read_task` reads them."""
        return {
            "id": self.id,
            "type": self.type,
            "payload": self.payload.to_json(),
            "author": self.author,
            "step": self.step,
        }


def content_id(type: str, payload: Payload) -> str:
    """Hash of the content of a task, 16 hexadecimal digits."""
    return digest([type, *payload.to_json().values()], 16)


def digest(content: Any, digits: int) -> str:
    """Hash of plain data, as hexadecimal digits."""
    return hashlib.sha256(json.dumps(content).encode("ascii")).hexdigest()[:digits]


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value


def _lists(value: Any) -> Any:
    return [_lists(item) for item in value] if isinstance(value, tuple) else value
