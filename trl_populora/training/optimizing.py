"""The optimizer of all members, and a trial of what is used only when training begins.

By then, a warm start may be over, which would be lost. So the trainer's constructor tries these parts, and a wrong
setting costs nothing.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint
from transformers import get_scheduler


if TYPE_CHECKING:
    from .row_source import RowSource
    from .trainer import PopulationSelfPlayTrainer

ADAM = ("adam_beta1", "adam_beta2", "adam_epsilon")


def make_optimizer(trainer: "PopulationSelfPlayTrainer", groups: list[dict[str, Any]]) -> Optimizer:
    """The optimizer that the settings name, for these groups of parameters.

    Raises:
        ValueError: If it makes groups of its own.
    """
    args = trainer.args
    # transformers' hint names no models of PEFT
    optimizer_class, kwargs = trainer.get_optimizer_cls_and_kwargs(args, trainer.model)  # pyright: ignore[reportArgumentType]
    if kwargs.keys() & {"params", "model", "optimizer_dict"}:
        raise ValueError("it builds its own groups. Use optim='adamw_torch_fused'")
    return optimizer_class(groups, **kwargs | {"lr": args.learning_rate})


def try_out(trainer: "PopulationSelfPlayTrainer") -> None:
    """Builds the optimizer and the schedule for one weight, runs one layer with gradient checkpointing, and makes the
    state of the rows' source.

    Raises:
        ValueError: If this fails, with the settings and the reason.
    """
    _try_state(trainer.source)
    args: Any = trainer.args  # whose hints still allow text where construction leaves enumerations
    if args.evolution is not None:
        args.evolution.try_on(list(trainer.population.routing.layers))
    with _naming(args, "optim", *(name for name in ADAM if "adam" in args.optim.value), "optim_args"):
        weight = torch.nn.Parameter(torch.zeros(1, device=args.device))
        optimizer = make_optimizer(trainer, [{"params": [weight]}])
    with _naming(args, "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "learning_rate"):
        _try_schedule(trainer, optimizer)
    if args.gradient_checkpointing:
        with _naming(args, "gradient_checkpointing_kwargs"):
            kwargs: dict[str, Any] = {"use_reentrant": False} | (args.gradient_checkpointing_kwargs or {})
            if lost := sorted(kwargs.keys() & {"every_n_layers", "offload"}):
                raise ValueError(f"TRL loses {', '.join(lost)} when it turns checkpointing on again after sampling")
            checkpoint(torch.sin, torch.zeros(1, requires_grad=True), **kwargs)


def _try_state(source: "RowSource") -> None:
    name, needed = type(source).__name__, ("fitness", "inherit", "state_dict", "load_state_dict", "__getitem__")
    if missing := [method for method in needed if not hasattr(source.ratings, method)]:
        raise ValueError(f"{name}.ratings has no {', '.join(missing)}. Give it the methods of RewardRatings.")
    state = {"ratings": source.ratings.state_dict()}
    with suppress(Exception):  # of a source that has its state from `begin_run` on
        state["source"] = source.state_dict()
    try:
        json.dumps(state)
    except TypeError as error:
        raise ValueError(
            f"The state of {name} or of its ratings is not what JSON can hold ({error}), so no checkpoint could be "
            "written. Let state_dict return plain data."
        ) from None


def _try_schedule(trainer: "PopulationSelfPlayTrainer", optimizer: Optimizer) -> None:
    args: Any = trainer.args
    steps = args.max_steps
    if steps <= 0:  # counted in epochs
        steps = trainer.set_initial_training_values(args, trainer.get_train_dataloader())[-1]
    schedule: Any = get_scheduler(
        args.lr_scheduler_type,
        optimizer,
        num_warmup_steps=args.get_warmup_steps(steps),
        num_training_steps=steps,
        scheduler_specific_kwargs=args.lr_scheduler_kwargs,
    )
    factor = schedule.lr_lambdas[0]
    for step in range(0, steps + 1, max(1, steps // 1000)):
        if not math.isfinite(factor(step)):
            raise ValueError(f"the learning rate of step {step} would be {factor(step)} times that of the settings")


@contextmanager
def _naming(args: Any, *names: str) -> Iterator[None]:
    """Turns any error into a `ValueError` that names these settings."""
    try:
        yield
    except Exception as error:
        values = ((name, getattr(args, name)) for name in names)
        told = [f"{name}={getattr(value, 'value', value)!r}" for name, value in values if value is not None]
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{', '.join(told)} cannot be used: {reason}. Change or remove these settings.") from error
