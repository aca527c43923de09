"""Secrets among settings. No file of a run contains them, because files are pushed and shown."""

import re
from collections.abc import Iterator, Mapping
from typing import Any


HIDDEN = "<hidden>"
NAMES = re.compile(
    r"(?i)secret|passw|passphrase|authorization|bearer|credential|cookie|(api|private|access)[_-]?key|tokens?$"
)
"""Parts of names of secret settings."""
SPECIAL_TOKENS = re.compile(r"(?i)(^|[_-])(bos|eos|pad|unk|mask|sep|cls)_tokens?$")
"""Names that are no secrets."""
LOGIN = re.compile(r"(?<=://)[^/?#\s]*@")
"""Name and password in a URL."""
WRITTEN = "chat_template_kwargs"
"""Variables of the chat template. They become text of prompts, and other commands read them from a run's files."""


def without_secrets(value: Any) -> Any:
    """A copy of nested mappings and lists in which secrets are hidden: texts whose key names a secret, and logins in
    URLs. Numbers are no secrets."""
    if isinstance(value, Mapping):
        return {key: own if key == WRITTEN else _hidden(key, own) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(without_secrets, value)) if type(value) in (list, tuple) else value
    return LOGIN.sub(f"{HIDDEN}@", value) if isinstance(value, str) else value


def find_secrets(value: Any, place: str = "") -> Iterator[str]:
    """Places of everything that [`without_secrets`] hides, such as `sampler_kwargs.api_key`."""
    if isinstance(value, Mapping):
        for key, own in value.items():
            inner = f"{place}.{key}" if place else str(key)
            if key != WRITTEN:
                yield from [inner] if _hidden(key, own) == HIDDEN != own else find_secrets(own, inner)
    elif isinstance(value, (list, tuple)):
        for i, own in enumerate(value):
            yield from find_secrets(own, f"{place}[{i}]")
    elif isinstance(value, str) and without_secrets(value) != value:
        yield place


def _hidden(key: Any, value: Any) -> Any:
    named = NAMES.search(str(key)) and not SPECIAL_TOKENS.search(str(key))
    return HIDDEN if named and _has_text(value) else without_secrets(value)


def _has_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_text, value.values()))
    return any(map(_has_text, value)) if isinstance(value, (list, tuple)) else isinstance(value, str) and value != ""
