"""Code that loads and runs an answer in its child process. The text of this file is put before each job.

It parses the answer as Python, runs it, calls it and reports the result. The answer runs in the same process and can
change this code, so a report may be false. The caller compares it with right answers that no child knows.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import sys
import textwrap
from types import ModuleType


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SCALARS: tuple[type, ...] = (bool, int, float, str, bytes)
MOST_PARTS = 16_384  # numbers, characters and containers of a value that is reported as it is
_NAMED = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


class NoPython(Exception):
    """The answer is no Python."""


def load_function(code: str, header: str, name: str) -> Callable:
    """
    Run an answer and return the function that it defines.

    Args:
        code (`str`): The answer: a module, or the body of the function that `header` ends with.
        header (`str`): Runs before it: imports, helper functions and the first lines of the function.
        name (`str`): Of the function.

    Raises:
        NoPython, NameError: If the answer cannot be compiled, or does not define the function.
    """
    tree = _parse(code, textwrap.dedent(code), f"{header}\n{code}")
    module = sys.modules["solution"] = ModuleType("solution")
    space = vars(module)
    exec(compile(header, "header", "exec", dont_inherit=True), space)
    space.pop(name, None)
    try:
        exec(compile(tree, "solution", "exec", dont_inherit=True), space)
    except BaseException:  # an example beside the function, such as a wrong assert, or a call of input()
        tree.body = [_tried(statement) for statement in tree.body if isinstance(statement, _NAMED)]
        exec(compile(ast.fix_missing_locations(tree), "solution", "exec", dont_inherit=True), space)
    if not callable(space.get(name)):
        raise NameError(name)
    return space[name]


def run_program(code: str, header: str, text: str) -> str:
    """Run an answer as a program and return what it prints; `text` is its standard input."""
    tree = _parse(code, textwrap.dedent(code))
    module = sys.modules["__main__"] = ModuleType("__main__")
    space = vars(module)
    printed = io.BytesIO()
    sys.stdin = io.TextIOWrapper(
        io.BytesIO(text.encode("utf-8", "surrogatepass")), encoding="utf-8", errors="surrogatepass"
    )
    sys.stdout = io.TextIOWrapper(printed, encoding="utf-8", errors="replace", newline="\n", write_through=True)
    exec(compile(header, "header", "exec", dont_inherit=True), space)
    space["open"] = lambda *_, **__: sys.stdin  # some programs read `open(0)`; there are no files
    with contextlib.suppress(SystemExit):
        exec(compile(tree, "solution", "exec", dont_inherit=True), space)
    sys.stdout.flush()
    return printed.getvalue().decode("utf-8", "replace")


def load_method(code: str, header: str, name: str) -> Callable:
    """Run an answer and return a function that calls its `Solution().name`, or its function `name`, with the values in
    lines of JSON."""
    tree = _parse(code, textwrap.dedent(code))
    module = sys.modules["solution"] = ModuleType("solution")
    space = vars(module)
    exec(compile(header, "header", "exec", dont_inherit=True), space)
    exec(compile(tree, "solution", "exec", dont_inherit=True), space)

    def call(text: str) -> Any:
        arguments = [json.loads(line) for line in text.split("\n")]
        method = getattr(space["Solution"](), name) if "Solution" in space else space[name]
        return as_plain(method(*arguments))

    return call


def _tried(statement: ast.stmt) -> ast.stmt:
    """The statement. An assignment that fails is passed over: it may belong to an example, such as
    `n = int(input())`."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return statement
    return ast.Try([statement], [ast.ExceptHandler(None, None, [ast.Pass()])], [], [])


def _parse(*texts: str) -> ast.Module:
    """The first of the texts that is Python."""
    for text in texts:
        try:
            tree = ast.parse(text)
            compile(
                tree, "solution", "exec", dont_inherit=True
            )  # which finds, for example, `return` outside functions
            return tree
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    raise NoPython


def report(value: Any) -> tuple | bytes:
    """The value as plain data, in a tuple; or its digest, if it has more than `MOST_PARTS` parts or a huge number."""
    return (as_plain(value),) if _room_left(value, MOST_PARTS) >= 0 else _digest(value)


def as_plain(value: Any) -> Any:
    """A copy with subclasses of plain types, such as `Counter` and named tuples, as these types."""
    for kind in SCALARS:
        if isinstance(value, kind):
            return value if type(value) is kind else str.__str__(value) if kind is str else kind(value)
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind([as_plain(one) for one in value])
    if isinstance(value, dict):
        return {as_plain(key): as_plain(one) for key, one in value.items()}
    return value


def _room_left(value: Any, room: int) -> int:
    """`room` less the number of parts of the value; negative if that is more. Equal values have equally many."""
    if isinstance(value, (str, bytes)):
        return room - 1 - len(value)
    if isinstance(value, int) and value.bit_length() > 4096:  # no float is as large
        return -1
    room -= 1
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        for one in value:
            if room < 0:
                break
            room = _room_left(one, room)
            if isinstance(value, dict):
                room = _room_left(value[one], room)
    return room


def _digest(value: Any) -> bytes:
    """32 bytes that are the same for values that Python calls equal, such as `[1, True]` and `[1.0, 1]`."""
    digest = hashlib.blake2b(digest_size=32)
    _absorb(value, digest.update)
    return digest.digest()


def _absorb(value: Any, update: Callable) -> None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        update(b"i%x;" % value)
    elif isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        update(b"s%d:" % len(data) + data)
    elif isinstance(value, (list, tuple)):
        update(b"%s%d:" % (b"[" if isinstance(value, list) else b"(", len(value)))
        text = _joined(value)
        if text is not None:
            update(b"j%d:" % len(text) + text)
            return
        for one in value:
            _absorb(one, update)
    elif isinstance(value, (set, frozenset)):
        update(b"<%d:" % len(value) + b"".join(sorted(map(_digest, value))))
    elif isinstance(value, dict):
        pairs = [_digest(key) + _digest(one) for key, one in value.items()]
        update(b"{%d:" % len(value) + b"".join(sorted(pairs)))
    elif value is None or isinstance(value, (float, complex, bytes)):
        data = repr(value).encode("ascii")
        update(b"r%d:" % len(data) + data)
    else:
        raise TypeError(type(value).__name__)


def _joined(texts: list | tuple) -> bytes | None:
    """The texts of a list joined with a separator, which is much faster. `None` if a text has it or is not a text."""
    try:
        text = "\0".join(texts)
    except TypeError:
        return None
    return text.encode("utf-8", "surrogatepass") if text.count("\0") == len(texts) - 1 else None
