"""Extension of Griffe, which reads docstrings for the reference pages.

Docstrings follow TRL: "name (`int`, *optional*): text", and a class in brackets with backquotes is a link. Here the
brackets become links that MkDocs knows, where the name is one of this package, and plain names elsewhere.
"""

import re
from typing import Any

import griffe


REFERENCE = re.compile(r"\[`(~?)([\w.]+)`\]")
TYPED = re.compile(r"^(\s+(?:\w+(?:, \w+)*)) \((.+)\):", re.MULTILINE)


class References(griffe.Extension):
    """Rewrites the docstrings of a package once it is loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        names: dict[str, str] = {}
        self._collect(pkg, names)
        self._rewrite(pkg, names)

    def _collect(self, scope: Any, names: dict[str, str]) -> None:
        for member in scope.members.values():
            if member.is_alias:
                continue
            if member.is_module:
                self._collect(member, names)
            elif member.is_class:
                names.setdefault(member.name, member.path)

    def _rewrite(self, scope: Any, names: dict[str, str]) -> None:
        if scope.docstring:
            scope.docstring.value = rewritten(scope.docstring.value)
        for member in scope.members.values():
            if not member.is_alias:
                self._rewrite(member, names)


def rewritten(text: str) -> str:
    """A docstring as Griffe and MkDocs read it."""
    text = REFERENCE.sub(lambda match: f"`{match[2].rpartition('.')[2]}`", text)
    return TYPED.sub(lambda match: f"{match[1]} ({match[2].split(', *optional*')[0].replace('`', '')}):", text)
