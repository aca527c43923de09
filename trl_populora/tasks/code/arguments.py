"""Converts the text of an input block to a tuple of arguments for a program's `f`, and back.

The text may name parameters. The values are stored by position, in the order of the signature. Tasks, prompts and the
executor use only this form. Only literals are allowed, and nothing here evaluates code. `executor.literals` has the
scanner.
"""

from __future__ import annotations

import ast

from trl_populora.executor import literals
from trl_populora.tasks.code.hygiene import entry, parse
from trl_populora.tasks.task import Refusal


def arguments_text(arguments: tuple) -> str:
    """Literal text of an argument list, such as `"1, 'a'"`. Raises `literals.NotLiteral` for a value without one."""
    return ", ".join(literals.to_literal(argument) for argument in arguments)


def read_arguments(text: str, program: str, *, max_bytes: int, comments: bool = False) -> tuple:
    """
    Reads an argument list.

    Args:
        text (`str`):
            Literals separated by commas, then perhaps `name=literal` for further parameters: `"[3, 1], reverse=True"`.
            Or only assignments, one a line: `"items = [3, 1]\\nreverse = True"`.
        program (`str`):
            Source whose last `def f` at the top level gives names, order and defaults of the positional parameters.
        max_bytes (`int`):
            Size limit of the text.
        comments (`bool`, *optional*, defaults to `False`):
            Whether comments are allowed. They are allowed in proposals, but not in answers.

    Returns:
        `tuple`: one plain value per argument. A parameter that is missing before a named one gets its default.

    Raises:
        `ValueError`: if the text is anything else, names no positional parameter of `f`, gives one twice, or leaves
            out one that has no literal default.
    """
    text = literals.without_comments(text, max_bytes) if comments else text
    values, named = literals.parse_named_arguments(text, max_bytes)
    if not named:
        return values
    parameters = _parameters(program)
    names = list(parameters)
    for name in named:
        if name not in parameters:
            raise literals.NotLiteral(f"f has no positional parameter {name}; its parameters are {', '.join(names)}")
        if names.index(name) < len(values):
            raise literals.NotLiteral(f"two values for the parameter {name}")
    filled = list(values)
    for name in names[len(values) : max(names.index(name) for name in named) + 1]:
        filled.append(named[name] if name in named else _default(name, parameters[name]))
    return tuple(filled)


def _parameters(program: str) -> dict[str, ast.expr | None]:
    """The positional parameters of `f` in order, each with the expression of its default."""
    tree = parse(program)
    function = None if isinstance(tree, Refusal) else entry(tree)
    if function is None:
        return {}
    names = [argument.arg for argument in function.args.posonlyargs + function.args.args]
    defaults = [None] * (len(names) - len(function.args.defaults)) + function.args.defaults
    return dict(zip(names, defaults))


def _default(name: str, value: ast.expr | None) -> object:
    if value is None:
        raise literals.NotLiteral(f"no value for the parameter {name}")
    try:
        return literals.parse_literal(ast.unparse(value))
    except (ValueError, RecursionError):
        raise literals.NotLiteral(f"the default of {name} is not a literal: give its value, too") from None
