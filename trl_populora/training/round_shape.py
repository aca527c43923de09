"""The shape of a round: how many rows it has, and how they divide into passes of one optimizer step."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from .config import PopulationSelfPlayConfig


class RoundShape:
    """Numbers that follow from the dial (`num_teachers`, `num_students`, `prompts_per_teacher`, `num_generations`).

    A part of [`PopulationSelfPlayConfig`], which holds the settings.
    """

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


def derive_batch(args: PopulationSelfPlayConfig) -> None:
    """Derive `gradient_accumulation_steps` so that an optimizer step covers a round, or a batch of the dataset."""
    derive = _derive_self_play if args.num_teachers else _derive_dataset
    derive(args, int(os.environ.get("WORLD_SIZE", 1)))


def _derive_self_play(args: PopulationSelfPlayConfig, world_size: int) -> None:
    rows, per_pass = args.rows_per_round, args.per_device_train_batch_size * world_size
    if rows % per_pass:
        fitting = [b for b in range(1, rows // world_size + 1) if rows % (b * world_size) == 0]
        if not fitting:
            raise ValueError(
                f"{rows} rows a round cannot be split among {world_size} processes. Choose prompts_per_teacher or "
                "num_generations so that the rows are a multiple of the processes."
            )
        best = min(fitting, key=lambda b: abs(b - args.per_device_train_batch_size))
        each = args.rows_per_member
        raise ValueError(
            f"{rows} rows a round (num_teachers={args.num_teachers} x {each['teacher']} and num_students="
            f"{args.num_students} x {each['student']}) do not divide into passes of per_device_train_batch_size="
            f"{args.per_device_train_batch_size} on {world_size} process(es). Set per_device_train_batch_size to "
            f"{best}."
        )
    derived = rows // per_pass
    given = {
        "gradient_accumulation_steps": (args.gradient_accumulation_steps, (1, derived)),
        "steps_per_generation": (args.steps_per_generation, (None, derived)),
        "generation_batch_size": (args.generation_batch_size, (None, rows)),
    }
    for name, (value, allowed) in given.items():
        if value not in allowed:
            raise ValueError(
                f"{name}={value} contradicts the {rows} rows of a round; leave it out (it becomes {allowed[1]})."
            )
    args.gradient_accumulation_steps = derived
    args.steps_per_generation = args.generation_batch_size = None


def _derive_dataset(args: PopulationSelfPlayConfig, world_size: int) -> None:
    """One generation batch is one optimizer step, and holds as many groups of every member."""
    unit, per_pass = args.num_generations * args.num_students, args.per_device_train_batch_size * world_size
    fitting = unit // math.gcd(unit, per_pass)
    if args.gradient_accumulation_steps == 1:
        args.gradient_accumulation_steps = fitting
    if args.gradient_accumulation_steps % fitting:
        raise ValueError(
            f"gradient_accumulation_steps={args.gradient_accumulation_steps} with per_device_train_batch_size="
            f"{args.per_device_train_batch_size} on {world_size} process(es) makes batches that do not hold equally "
            f"many groups of num_generations={args.num_generations} rows of num_students={args.num_students} members. "
            f"Set gradient_accumulation_steps to a multiple of {fitting}."
        )
    rows = per_pass * args.gradient_accumulation_steps
    given = {
        "steps_per_generation": (args.steps_per_generation, (None, args.gradient_accumulation_steps)),
        "generation_batch_size": (args.generation_batch_size, (None, rows)),
    }
    for name, (value, allowed) in given.items():
        if value not in allowed:
            raise ValueError(
                f"{name}={value}: all rows of a generation batch belong to one optimizer step of a population. Leave "
                f"it out (it becomes {allowed[1]})."
            )
    args.steps_per_generation = args.generation_batch_size = None
