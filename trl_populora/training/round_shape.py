"""The size of a round: how many rows it has, and how they are divided into the passes of one optimizer step."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from accelerate import PartialState

    from .config import PopulationSelfPlayConfig


_processes: ContextVar[int | None] = ContextVar("processes", default=None)


@contextmanager
def for_processes(count: int) -> Iterator[None]:
    """Context in which settings are made for a run with so many processes. They need not be there."""
    before = _processes.set(count)
    try:
        yield
    finally:
        _processes.reset(before)


def assumed_processes() -> int | None:
    """The number of [`for_processes`]; outside of it, `None`."""
    return _processes.get()


class RoundShape:
    """Numbers that follow from `num_teachers`, `num_students`, `prompts_per_teacher` and `num_generations`.

    A part of [`PopulationSelfPlayConfig`], which holds the settings.
    """

    if TYPE_CHECKING:  # settings as construction leaves them: GRPO's own hints still allow `None` or text
        num_teachers: int
        num_students: int
        prompts_per_teacher: int
        num_generations: int
        generation_batch_size: int
        steps_per_generation: int
        num_iterations: int
        max_steps: int
        max_completion_length: int
        balance_rows: bool
        member_prompts: str
        output_dir: str
        report_to: list[str]
        model_init_kwargs: dict[str, Any] | None
        gradient_checkpointing_kwargs: dict[str, Any] | None
        distributed_state: PartialState

    @property
    def proposals_per_round(self) -> int:
        return self.num_teachers * self.prompts_per_teacher * self.num_generations

    @property
    def completions_per_round(self) -> int:
        """Completions of one round over all ranks: every proposal, and `num_generations` attempts at as many tasks."""
        if self.num_teachers == 0:
            return self.generation_batch_size
        return self.proposals_per_round * (1 + self.num_generations)

    @property
    def rows_per_member(self) -> dict[str, int]:
        """Rows that a member of each role learns from in a round of self-play."""
        proposals = self.prompts_per_teacher * self.num_generations
        attempts = self.proposals_per_round * self.num_generations // self.num_students
        return {"teacher": proposals, "student": proposals if self.balance_rows else attempts}

    @property
    def rows_per_round(self) -> int:
        """Rows of one round over all ranks that are learned from."""
        if self.num_teachers == 0:
            return self.generation_batch_size
        each = self.rows_per_member
        return self.num_teachers * each["teacher"] + self.num_students * each["student"]

    @property
    def prompts_per_batch(self) -> int:
        """Different prompts of the dataset in one generation batch (`num_teachers=0`)."""
        members = self.num_students if self.member_prompts == "shared" else 1
        return self.generation_batch_size // (self.num_generations * members)

    @property
    def rounds(self) -> int:
        return self.max_steps // self.num_iterations


def derive_batch(args: PopulationSelfPlayConfig) -> int:
    """Computes `gradient_accumulation_steps` so that one optimizer step covers a round, or a batch of the dataset.

    Returns:
        `int`: The number of processes that it expects.

    Raises:
        ValueError: If no number of passes fits, or a setting contradicts it.
    """
    world_size = assumed_processes() or int(os.environ.get("WORLD_SIZE", 1))
    derive = _passes_of_round if args.num_teachers else _passes_of_dataset
    passes = derive(args, world_size)
    rows = passes * args.per_device_train_batch_size * world_size
    why = f"the {rows} rows of a round"
    if not args.num_teachers:
        why = (
            f"one optimizer step of {rows} rows for each generation batch (gradient_accumulation_steps sets its size)"
        )
    given = {
        "gradient_accumulation_steps": (args.gradient_accumulation_steps, (1, passes)),
        "steps_per_generation": (args.steps_per_generation, (None, passes)),
        "generation_batch_size": (args.generation_batch_size, (None, rows)),
    }
    for name, (value, allowed) in given.items():
        if value not in allowed:
            raise ValueError(f"{name}={value} contradicts {why}: leave it out, or set {allowed[1]}.")
    args.gradient_accumulation_steps = passes
    vars(args).update(steps_per_generation=None, generation_batch_size=None)  # which GRPO fills in
    return world_size


def check_processes(args: PopulationSelfPlayConfig, expected: int) -> None:
    """Refuses launchers that accelerate knows and [`derive_batch`] does not, such as `mpirun`.

    Raises:
        ValueError: If there are more processes than expected.
    """
    if args.world_size > expected:
        raise ValueError(
            f"There are {args.world_size} processes, and the environment variable WORLD_SIZE did not say so when this "
            "one began. Start the run with torchrun or accelerate launch."
        )


def _passes_of_round(args: PopulationSelfPlayConfig, world_size: int) -> int:
    rows, per_pass = args.rows_per_round, args.per_device_train_batch_size * world_size
    if rows % per_pass == 0:
        return rows // per_pass
    if rows % world_size:
        raise ValueError(
            f"{rows} rows a round cannot be split among {world_size} processes. Choose prompts_per_teacher or "
            "num_generations so that the rows are a multiple of the processes."
        )
    share, each = rows // world_size, args.rows_per_member
    fitting = [size for size in range(1, share + 1) if share % size == 0]
    best = min(fitting, key=lambda size: abs(size - args.per_device_train_batch_size))
    raise ValueError(
        f"{rows} rows a round (num_teachers={args.num_teachers} x {each['teacher']} and num_students="
        f"{args.num_students} x {each['student']}) do not divide into passes of per_device_train_batch_size="
        f"{args.per_device_train_batch_size} on {world_size} process(es). Set per_device_train_batch_size to {best}."
    )


def _passes_of_dataset(args: PopulationSelfPlayConfig, world_size: int) -> int:
    """One generation batch is one optimizer step, and holds equally many groups of every member."""
    unit, per_pass = args.num_generations * args.num_students, args.per_device_train_batch_size * world_size
    fitting = unit // math.gcd(unit, per_pass)
    passes = fitting if args.gradient_accumulation_steps == 1 else args.gradient_accumulation_steps
    if passes % fitting:
        raise ValueError(
            f"gradient_accumulation_steps={passes} with per_device_train_batch_size="
            f"{args.per_device_train_batch_size} on {world_size} process(es) makes batches that do not hold equally "
            f"many groups of num_generations={args.num_generations} rows of num_students={args.num_students} members. "
            f"Set gradient_accumulation_steps to a multiple of {fitting}."
        )
    return passes
