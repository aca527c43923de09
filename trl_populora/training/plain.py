"""With a plain `GRPOConfig` the trainer is `GRPOTrainer`: this module implements that for the constructor and all
overrides."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from trl import GRPOTrainer

from .config import PopulationSelfPlayConfig


Trainer = TypeVar("Trainer", bound=type[GRPOTrainer])


def plain_without_population(cls: Trainer) -> Trainer:
    """Class decorator: without a [`PopulationSelfPlayConfig`], every method of the class calls that of its parent.

    The constructor checks the type of `args`. Every method that overrides one of [`~trl.GRPOTrainer`] checks
    `self.population`, which is `None` on the class. So the methods may assume that there is a population. Overrides in
    subclasses are not changed. They reach GRPOTrainer's methods through `super()`.

    Without `args`, the class also behaves as GRPOTrainer. So a script still works after the name of its trainer is
    replaced.
    """
    cls.__init__ = _constructor(cls, cls.__init__)
    for name, method in list(vars(cls).items()):
        if name == "close" or not name.startswith("__") and callable(getattr(GRPOTrainer, name, None)):
            setattr(cls, name, _override(cls, name, method))
    return cls


def _nothing() -> None:
    """GRPOTrainer has nothing to close."""


def _override(cls: type, name: str, method: Callable) -> Callable:
    @functools.wraps(method)
    def override(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.population is None:
            return getattr(super(cls, self), name, _nothing)(*args, **kwargs)
        return method(self, *args, **kwargs)

    return override


def _constructor(cls: Any, construct: Callable) -> Callable:
    parameters = inspect.signature(construct).parameters.values()
    added = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]

    @functools.wraps(construct)
    def __init__(
        self: Any,
        model: Any,
        reward_funcs: Any = None,
        args: Any = None,
        train_dataset: Any = None,
        *rest: Any,
        **named: Any,
    ) -> None:
        if isinstance(args, PopulationSelfPlayConfig):
            construct(self, model, reward_funcs, args, train_dataset, *rest, **named)
            return
        useless = [name for name in added if named.pop(name, None) is not None]
        if useless:
            raise ValueError(
                f"{', '.join(useless)} needs a population: pass a PopulationSelfPlayConfig as args, or leave it out."
            )
        environment = rest[9] if len(rest) > 9 else named.get("environment_factory")
        if all(value is None for value in (args, reward_funcs, train_dataset, environment)):
            raise ValueError(
                f"{cls.__name__} has neither args nor reward_funcs nor train_dataset. For self-play, pass "
                "args=PopulationSelfPlayConfig(output_dir=...). Without args it is GRPOTrainer, which needs the "
                "other two."
            )
        if rest:
            super(cls, self).__init__(model, reward_funcs, args, train_dataset, *rest, **named)
        else:  # by name, because the next class may be one of TRL's that takes nothing else by position
            super(cls, self).__init__(model, reward_funcs, args=args, train_dataset=train_dataset, **named)

    return __init__
