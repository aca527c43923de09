"""The warm start: a few supervised steps on seed tasks, so that members of a small base propose and answer in format.

One teacher and one student are trained, together in each batch, by `lightning.Trainer`; the others of their role then
get the same weights. Bases that follow the format by themselves need none of this.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from transformers import PreTrainedTokenizerBase

from ...population import Population
from ...tasks import EASY_FAMILIES, TaskType
from .seed_examples import SeedExamples
from .supervised import Row, SupervisedModule, encode, fit, model_forward


REDRAWS = 50  # draws for a row that fits, before `max_length` counts as too small


@dataclass(frozen=True)
class WarmStartReport:
    """What a warm start did.

    Attributes:
        trained (`tuple[str, ...]`): Adapters that were trained; those of the same role are now equal to them.
        steps (`int`), rows (`int`), tokens (`int`): Optimizer steps, rows and tokens (prompts included) in all.
        seconds (`float`): Wall-clock time.
        losses (`tuple[dict[str, float], ...]`): Per step, mean loss per completion token of each trained adapter.
    """

    trained: tuple[str, ...]
    steps: int
    rows: int
    tokens: int
    seconds: float
    losses: tuple[dict[str, float], ...]

    def to_json(self) -> dict:
        return asdict(self)


def warm_start(
    population: Population,
    tokenizer: PreTrainedTokenizerBase,
    task_types: Mapping[str, TaskType],
    *,
    families: Sequence[str] | None = EASY_FAMILIES,
    steps: int = 20,
    rows_per_role: int = 8,
    learning_rate: float = 1e-3,
    warmup_steps: int = 2,
    max_length: int = 1024,
    rows_per_pass: int = 8,
    template: str = "chat",
    seed: int = 0,
    progress_bar: bool = False,
    on_step: Callable[[int, float], None] | None = None,
) -> WarmStartReport:
    """Teach a population the format of proposals and answers, in place.

    Every step takes `rows_per_role` rows of each role, all task types in equal shares: teachers learn to propose seed
    tasks, students to answer them. A shared member learns both. Only the two trained adapters and their copies change;
    members keep their version. Values are our choice: twenty steps make most proposals of SmolLM2-135M valid.

    Args:
        population ([`Population`]): Members and their model, on the device to train on.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]): With an end-of-turn and a pad token.
        task_types (`Mapping[str, TaskType]`): Types to learn, worded as in training.
        families (`Sequence[str]`, *optional*): Families of seed programs, `None` for all. Default: the easy ones,
            whose short rows cost least.
        steps (`int`), rows_per_role (`int`): Length of the training.
        learning_rate (`float`): Peak; it rises over `warmup_steps` and decays linearly to zero.
        max_length (`int`): Longer rows are drawn again.
        rows_per_pass (`int`): Rows per forward pass; bounds memory.
        template (`str`): `"chat"` or `"base"`, as in training.
        seed (`int`): Seed of the examples.
        progress_bar (`bool`): Show Lightning's.
        on_step (`Callable[[int, float], None]`, *optional*): Called after each step with the step (from 1) and the
            mean loss of the trained adapters.

    Returns:
        [`WarmStartReport`]

    Raises:
        ValueError: If a number is out of range, a task type has no seed tasks, or rows do not fit into `max_length`.
    """
    for name, value in (("steps", steps), ("rows_per_role", rows_per_role), ("max_length", max_length)):
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1.")
    started = time.monotonic()
    learners = {"teacher": population.adapter_of("teacher_0"), "student": population.adapter_of("student_0")}
    counts = {"rows": 0, "tokens": 0}
    batches = _batches(
        SeedExamples(task_types, rng=random.Random(f"{seed}/warm start"), families=families, seed=seed),
        lambda example: encode(tokenizer, [example], template=template)[0],
        learners,
        steps=steps,
        rows_per_role=rows_per_role,
        max_length=max_length,
        counts=counts,
    )
    module = SupervisedModule(
        model_forward(population.model),
        {name: population.parameters(name) for name in dict.fromkeys(learners.values())},
        pad_token_id=tokenizer.pad_token_id,
        learning_rate=learning_rate,
        steps=steps,
        warmup_steps=min(warmup_steps, steps - 1),
        rows_per_pass=rows_per_pass,
        route=population.route,
        on_step=on_step and (lambda step, losses: on_step(step, sum(losses.values()) / len(losses))),
    )
    losses = fit(module, batches, device=torch.device(population.model.device), progress_bar=progress_bar)
    for role, source in learners.items():
        for target in population.names(role):
            if target != source:
                population.copy(source, target)
    seconds = time.monotonic() - started
    return WarmStartReport(
        tuple(dict.fromkeys(learners.values())), steps, seconds=seconds, losses=tuple(losses), **counts
    )


def _batches(
    examples: SeedExamples,
    to_row: Callable,
    learners: Mapping[str, str],
    *,
    steps: int,
    rows_per_role: int,
    max_length: int,
    counts: dict[str, int],
) -> Iterator[list[Row]]:
    types = list(examples.task_types)
    draws = {"teacher": examples.propose, "student": examples.solve}
    taken = 0
    for _ in range(steps):
        batch = []
        for _ in range(rows_per_role):
            type_id = types[taken % len(types)]  # types take turns, on from one step to the next
            taken += 1
            for role, member in learners.items():
                rows = (to_row(draws[role](type_id, member)) for _ in range(REDRAWS))
                row = next((row for row in rows if len(row.ids) <= max_length), None)
                if row is None:
                    raise ValueError(
                        f"max_length={max_length} is too short: {REDRAWS} {type_id} rows of a {role} were all longer."
                        " Raise it, or use the compact prompt style and fewer references."
                    )
                batch.append(row)
        counts["rows"] += len(batch)
        counts["tokens"] += sum(len(row.ids) for row in batch)
        yield batch
