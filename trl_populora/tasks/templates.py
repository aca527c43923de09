"""Renders chat messages to the string that a model continues.

The tokenizer is an argument, so this module imports no model library. Task types write the prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


TEMPLATES = ("auto", "chat", "base", "plain")

_BASE_OPENING = (
    "What follows is a conversation. A user sets a task; an assistant reasons about it and then gives the result in "
    "exactly the form that was asked for."
)

# Where a base model, which knows no end of turn, starts to write the next turn by itself.
BASE_STOP = ("\nUser:",)


def render_prompt(
    messages: Sequence[dict],
    tokenizer: Any = None,
    *,
    template: str = "auto",
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> str:
    """
    Renders a conversation, ready for the model to write the next turn.

    Args:
        messages (`Sequence[dict]`):
            Messages with `"role"` (`"system"`, `"user"` or `"assistant"`) and `"content"`.
        tokenizer (`PreTrainedTokenizerBase`, *optional*):
            Needed only for the chat template.
        template (`str`, *optional*, defaults to `"auto"`):
            `"chat"`: the tokenizer's chat template. `"base"`: a transcript of turns, for base models. `"plain"`: only
            the contents and a line break, for models that are trained only on this package's prompts. `"auto"`:
            `"chat"` if the tokenizer has a chat template, else `"base"`.
        chat_template_kwargs (`Mapping[str, Any]`, *optional*):
            Variables of the chat template, such as `{"enable_thinking": False}`.

    Returns:
        `str`: the prompt. A chat template may put special tokens into it, so tokenize that one without adding more.

    Raises:
        `ValueError`: for an unknown template, or for `"chat"` with a tokenizer that has none.
    """
    if template not in TEMPLATES:
        raise ValueError(f"template must be one of {TEMPLATES}, got {template!r}")
    template = _chosen(template, tokenizer)
    if template == "chat":
        if getattr(tokenizer, "chat_template", None) is None:
            raise ValueError("template='chat' needs a tokenizer with a chat template; use 'base' for a base model")
        told = {**(chat_template_kwargs or {}), "tokenize": False, "add_generation_prompt": True}
        return tokenizer.apply_chat_template(list(messages), **told)
    if template == "plain":
        return "".join(f"{message['content']}\n" for message in messages)
    turns = [_turn(message) for message in messages]
    return "\n\n".join([_BASE_OPENING, *turns, "Assistant:"])


def tokenize_prompt(messages: Sequence[dict], tokenizer: Any, *, template: str = "auto", **how: Any) -> list[int]:
    """Tokens of a conversation that [`render_prompt`] renders. A chat template writes its special tokens itself. Other
    prompts start with the beginning of sequence if the tokenizer adds one to texts, as those of Llama and Gemma do."""
    text = render_prompt(messages, tokenizer, template=template, **how)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if _chosen(template, tokenizer) == "chat":
        return ids
    added = tokenizer("")["input_ids"][:1]
    return [*added, *ids] if added == [tokenizer.bos_token_id] else ids


def _chosen(template: str, tokenizer: Any) -> str:
    if template != "auto":
        return template
    return "base" if getattr(tokenizer, "chat_template", None) is None else "chat"


def read_back(tokenizer: Any, text: str) -> str:
    """A text as a model reads and writes it: encoded, and decoded without special tokens, as completions are."""
    return tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"], skip_special_tokens=True)


def _turn(message: dict) -> str:
    name = {"user": "User: ", "assistant": "Assistant: ", "system": ""}.get(message["role"])
    if name is None:
        raise ValueError(f"message role must be system, user or assistant, got {message['role']!r}")
    return name + message["content"]
