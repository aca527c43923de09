"""Text that prompts of several task types share."""

from __future__ import annotations

from trl_populora.tasks.base import Message


REASONING_NOTE = (
    "Think as long as you need, inside <think> and </think> if you like. Only what follows your thinking is read, and "
    "of it only the labelled blocks; if a label occurs twice, the last block counts."
)
MARKS_RULE = (
    "- Nothing in it looks like a mark of the conversation: no three backticks in a row, no think or answer tag, no "
    "token of a chat template."
)


def user(text: str) -> list[Message]:
    """A conversation of one user turn."""
    return [{"role": "user", "content": text}]


def paragraphs(*parts: str) -> str:
    """The parts that are not empty, one blank line apart."""
    return "\n\n".join(part for part in parts if part)
