"""Checks of a user's reward functions: whether they can be called, before a run starts, and what they return."""

import inspect
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from itertools import count
from typing import Any

from torch import nn
from trl.trainer.utils import is_async_callable


PASSED = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
"""What TRL 1.16 passes to a reward function by keyword, beside the columns of the dataset."""


def check_reward_functions(functions: Sequence[Any], columns: Collection[str], *, of: str) -> None:
    """Raises `ValueError` with the first reward function that cannot be called with these columns.

    Reward models, and functions whose parameters Python does not know, are not checked.

    Args:
        functions (`list`): Reward functions, as they were passed to the trainer.
        columns (`Collection[str]`): Columns of the rows, beside those in `PASSED`.
        of (`str`): What the message says that the columns are of.
    """
    columns = sorted({*columns} - {"prompt", "completion", *PASSED})
    for function in functions:
        if isinstance(function, str | nn.Module):
            continue
        if not callable(function):
            raise ValueError(
                f"reward_funcs: {function!r:.100} is no function. Give a function or a model, or a list of them."
            )
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # written in C
            continue
        try:
            signature.bind(**dict.fromkeys((*PASSED, *columns)))
        except TypeError as error:
            called = getattr(function, "__name__", type(function).__name__)
            raise ValueError(
                f"reward_funcs: {called}{signature} cannot be called with the columns of {of} ({error}). It gets "
                f"{', '.join(PASSED)} and the columns {columns}, by keyword. Add the column, rename or default the "
                "parameter, or end the parameters with **kwargs."
            ) from None


def numbered(names: Sequence[str]) -> list[str]:
    """These names of reward functions, with a number for those that occur again: their metrics would be one."""
    given: list[str] = []
    for name in names:
        numbers = (name if number == 1 else f"{name}_{number}" for number in count(1))
        given.append(next(one for one in numbers if one not in given))
    return given


def checked(functions: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """These reward functions, with a `TypeError` that names the function if one returns anything but numbers. Reward
    models stay as they are."""
    return [
        function if isinstance(function, nn.Module) else _checked(function, name)
        for function, name in zip(functions, names, strict=True)
    ]


def _checked(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(function)
    def call(**columns: Any) -> list:
        return _numbers(function(**columns), name)

    @wraps(function)
    async def call_later(**columns: Any) -> list:
        return _numbers(await function(**columns), name)

    return call_later if is_async_callable(function) else call


def _numbers(given: Any, name: str) -> list:
    try:
        rewards = [*given]
        if any(isinstance(one, str) for one in rewards):
            raise TypeError
        _ = [float(one) for one in rewards if one is not None]
    except (TypeError, ValueError, OverflowError):
        raise TypeError(
            f"The reward function {name!r} returned {given!r:.100}. Return a list with a number, or None, for each "
            "completion."
        ) from None
    return rewards
