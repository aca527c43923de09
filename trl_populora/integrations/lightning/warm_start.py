"""The warm start: a few supervised steps on seed tasks, so that members of a small base use the required formats.

One teacher and one student are trained together as a [`PopulationModule`]. Then the other members of their role get
the same weights. A base that uses the formats without training needs no warm start.
"""

import contextlib
import logging
import math
import os
import random
import signal
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, Literal

import lightning
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException
from transformers import PreTrainedTokenizerBase

from ...population import Population
from ...population.factors import not_finite
from ...tasks import TaskType
from .completions import Row, causal_lm_loss, collate, encode
from .population_module import PopulationModule
from .seed_examples import SeedExamples


REDRAWS = 50  # draws for a row that fits, before `max_length` counts as too small


def warm_start(
    population: Population,
    tokenizer: PreTrainedTokenizerBase,
    task_types: Mapping[str, TaskType],
    *,
    families: Sequence[str] | Literal["easy"] | None = "easy",
    steps: int = 20,
    rows_per_role: int = 8,
    learning_rate: float = 1e-3,
    warmup_steps: int = 2,
    max_length: int = 1024,
    rows_per_pass: int = 8,
    template: str = "chat",
    chat_template_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    reserved: Collection[str] | None = None,
    on_step: Callable[[int, Mapping[str, float]], None] | None = None,
    **trainer_settings: Any,
) -> list[dict[str, float]]:
    """Teaches a population the format of proposals and answers, in place.

    Every step uses `rows_per_role` rows of each role, with equally many of each task type. Teachers learn to propose
    seed tasks, and students to answer them. A shared member learns both. Members keep their version. The values are
    our choice: after twenty steps, most proposals of SmolLM2-135M are valid.

    Args:
        population ([`Population`]): Members and their model, on the device to train on.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]): With an end-of-turn and a pad token.
        task_types (`Mapping[str, TaskType]`): Task types, with the prompt style of the training.
        families (`Sequence[str]`, *optional*): Families of seed tasks, `None` for all. Default: the easy ones of each
            type, whose short rows cost least.
        steps (`int`), rows_per_role (`int`): Length of the training.
        learning_rate (`float`): Peak learning rate. It rises over `warmup_steps` and decays linearly to zero.
        max_length (`int`): Longer rows are drawn again.
        rows_per_pass (`int`): Rows per forward pass. It limits the memory.
        template (`str`), chat_template_kwargs (`Mapping`, *optional*): `"chat"` or `"base"`, and variables of the chat
            template, as in training.
        seed (`int`): Seed of the examples.
        reserved (`Collection[str]`, *optional*): Keys of tasks that no row may show; default: those of the held-out
            exams.
        on_step (`Callable`, *optional*): Called with each step (from 1), and the loss of each trained adapter.
        trainer_settings (*optional*): Other arguments of `lightning.Trainer`, which is silent and keeps no files by
            itself: `enable_progress_bar=True`, `logger`, `callbacks`.

    Returns:
        `list[dict[str, float]]`: Per step, mean loss per completion token of each trained adapter.

    Raises:
        ValueError: If a number is out of range, a task type has no seed tasks, rows do not fit into `max_length`, or
            weights are not finite at the end.
        KeyboardInterrupt: At Ctrl-C. The members that learn keep the weights that they have by then.
    """
    sizes = {"steps": steps, "rows_per_role": rows_per_role, "max_length": max_length, "rows_per_pass": rows_per_pass}
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1.")
    if not 0 < learning_rate < math.inf:
        raise ValueError(f"learning_rate={learning_rate} must be positive and finite.")
    learners = {"teacher": population.adapter_of("teacher_0"), "student": population.adapter_of("student_0")}
    how = {"template": template, "chat_template_kwargs": chat_template_kwargs}
    rows = _Rows(task_types, tokenizer, learners, **sizes, families=families, how=how, seed=seed, reserved=reserved)
    losses = _Losses(list(dict.fromkeys(learners.values())), on_step)
    warmup_steps = min(warmup_steps, steps - 1)
    _fit(population, rows, losses, learning_rate, warmup_steps, trainer_settings)
    for name in losses.names:
        if not_finite(population.factors(name)):
            raise ValueError(
                f"The warm start has diverged: weights of {name} are not finite. Lower its learning rate."
            )
    for role, source in learners.items():
        for target in population.names(role):
            if target != source:
                population.write(target, population.factors(source))
    return losses.steps


def learning_rate_factor(step: int, *, steps: int, warmup_steps: int) -> float:
    """Learning rate of optimizer step `step` (from 0), as a fraction of the peak: linear up, linear down to zero."""
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    return max(0.0, (steps - step) / max(1, steps - warmup_steps))


class _Losses(lightning.Callback):
    """Keeps each optimizer step's mean loss of the trained adapters, and reports it."""

    def __init__(self, names: Sequence[str], on_step: Callable[[int, Mapping[str, float]], None] | None) -> None:
        self.names, self.on_step = names, on_step
        self.steps: list[dict[str, float]] = []

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if trainer.global_step == len(self.steps):
            return
        self.steps.append({name: float(trainer.callback_metrics[f"train_loss/{name}"]) for name in self.names})
        if self.on_step is not None:
            self.on_step(len(self.steps), self.steps[-1])


class _Rows:
    """The rows of all steps, in forward passes of rows of similar length, each row with its learner."""

    def __init__(
        self,
        task_types: Mapping[str, TaskType],
        tokenizer: PreTrainedTokenizerBase,
        learners: Mapping[str, str],
        *,
        steps: int,
        rows_per_role: int,
        max_length: int,
        rows_per_pass: int,
        families: Sequence[str] | str | None,
        how: Mapping[str, Any],
        seed: int,
        reserved: Collection[str] | None,
    ) -> None:
        if families == "easy":
            families = [name for one in task_types.values() for name in one.easy_families] or None
        rng = random.Random(f"{seed}/warm start")
        examples = SeedExamples(task_types, rng=rng, families=families, seed=seed, reserved=reserved)
        self._draws = {"teacher": examples.propose, "student": examples.solve}
        self._types = cycle(task_types)  # which take turns, on from one step to the next
        self.tokenizer, self.learners, self.how = tokenizer, learners, how
        self.steps, self.rows_per_role, self.max_length = steps, rows_per_role, max_length
        self.rows_per_pass = rows_per_pass

    @property
    def passes(self) -> int:
        """Forward passes of a step."""
        return -(-2 * self.rows_per_role // self.rows_per_pass)

    def __iter__(self) -> Iterator[dict]:
        for _ in range(self.steps):
            types = islice(self._types, self.rows_per_role)
            step = [(self._draw(role, one), member) for one in types for role, member in self.learners.items()]
            step.sort(key=lambda row: len(row[0].ids))  # so that few rows of a pass are mostly padding
            for start in range(0, len(step), self.rows_per_pass):
                rows, members = zip(*step[start : start + self.rows_per_pass], strict=True)
                pad: Any = self.tokenizer.pad_token_id
                yield {**collate(rows, pad), "members": list(members)}

    def _draw(self, role: str, type_id: str) -> Row:
        for _ in range(REDRAWS):
            (row,) = encode(self.tokenizer, [self._draws[role](type_id)], **self.how)
            if len(row.ids) <= self.max_length:
                return row
        raise ValueError(
            f"max_length={self.max_length} tokens is too short: {REDRAWS} {type_id} rows of a {role} were all longer. "
            "Use the compact prompt style and fewer references, or call warm_start() with a larger max_length."
        )


def _fit(
    population: Population,
    rows: _Rows,
    losses: _Losses,
    learning_rate: float,
    warmup_steps: int,
    settings: dict[str, Any],
) -> None:
    module = PopulationModule(
        population,
        causal_lm_loss,
        optimizer=lambda groups: torch.optim.AdamW(
            [{**group, "lr": learning_rate, "initial_lr": learning_rate} for group in groups], weight_decay=0.0
        ),
        schedule=lambda step: learning_rate_factor(step, steps=rows.steps, warmup_steps=warmup_steps),
    )
    # Lightning sets it at import. Then PyTorch takes a GPU whose driver is too old for one that it can use.
    os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
    device = torch.device(population.model.device)
    settings = {
        "accelerator": device.type,
        "devices": [device.index or 0] if device.type == "cuda" else 1,
        "max_steps": rows.steps,
        "accumulate_grad_batches": rows.passes,
        "gradient_clip_val": 1.0,
        "logger": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        **settings,
        "callbacks": [*settings.get("callbacks", []), losses],
    }
    try:
        with _quiet(), _interruptible():
            lightning.Trainer(**settings).fit(module, rows)
    finally:
        population.model.zero_grad()  # no gradient stays behind that a later training would find
        module.adapters.to(device)  # after an exception, Lightning leaves them on the CPU


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM leave as `KeyboardInterrupt`, and keeps the handler of SIGINT. Lightning calls
    `sys.exit`, after SIGTERM with the code 0, and may leave SIGINT ignored."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if isinstance(error, SIGTERMException) or isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Turns off Lightning's hints about devices, data workers and its other products."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\.")
            yield
    finally:
        log.setLevel(level)
