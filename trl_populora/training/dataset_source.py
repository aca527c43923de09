"""`DatasetSource`: a population of students trained on the user's own prompts and reward functions.

There are no teachers, no executor and no games. Members are compared by their mean reward.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any, cast

from datasets import Dataset, concatenate_datasets
from torch.utils.data import Sampler as OrderSampler
from trl.trainer.utils import RepeatSampler

from ..diagnostics import RoundSummary
from ..diagnostics.dynamics import equality_alarms
from ..population.member import member_names
from .config import PopulationSelfPlayConfig
from .dataset_checks import check_dataset
from .reward_functions import check_reward_functions
from .row_source import RowSource


class DatasetSource(RowSource):
    """Source of rows for a user's dataset.

    Rows come in groups of `num_generations` completions of one prompt. Group `g` of a generation batch belongs to
    member `g mod N`. With shared prompts, a batch repeats each prompt for every member. With split prompts, it does
    not.
    """

    _functions: Sequence[Any] = ()  # reward functions, which must be callable with the columns of every dataset

    def make_reward_functions(
        self, args: PopulationSelfPlayConfig, functions: list, classes: list | None
    ) -> tuple[list, list | None]:
        if not functions:
            raise ValueError("reward_funcs is empty: training on a dataset (num_teachers=0) needs at least one.")
        self._functions = functions
        return functions, classes

    def make_datasets(
        self, args: PopulationSelfPlayConfig, train_dataset: Any, eval_dataset: Any
    ) -> tuple[Dataset, Dataset | dict[str, Dataset] | None]:
        """The user's datasets; for evaluation, every prompt once per member.

        Raises:
            ValueError: If there is no dataset to train on, it streams, holds images, has too few rows for one batch,
                or lacks a column that a reward function needs.
        """
        if train_dataset is None:
            raise ValueError(
                "num_teachers=0 trains the students on a dataset: pass train_dataset, or set num_teachers."
            )
        sets: dict[str, Any] = eval_dataset if isinstance(eval_dataset, dict) else {"eval_dataset": eval_dataset}
        for name, dataset in {"train_dataset": train_dataset, **sets}.items():
            self._check(name, dataset)
        if len(train_dataset) < args.prompts_per_batch:
            raise ValueError(
                f"train_dataset has {len(train_dataset)} prompts, fewer than the {args.prompts_per_batch} of one "
                "generation batch. Add rows, or lower gradient_accumulation_steps, per_device_train_batch_size or "
                "num_students."
            )
        hashes: Any = {name: rows_hash(dataset) for name, dataset in sets.items()}
        hashes = hashes if isinstance(eval_dataset, dict) else hashes["eval_dataset"]
        self.dataset_hash = {"train_dataset": rows_hash(train_dataset), "eval_dataset": hashes}
        members = member_names(args.num_teachers, args.num_students, shared=args.shared_member)
        sets = {
            name: None if dataset is None else _for_every_member(dataset, members) for name, dataset in sets.items()
        }
        return train_dataset, sets if isinstance(eval_dataset, dict) else sets["eval_dataset"]

    def order(self, dataset: Dataset, *, step: Callable[[], int]) -> OrderSampler[int]:
        """TRL's order of prompts, as a function of (seed, epoch)."""
        args, prompts = self.args, self.args.prompts_per_batch
        return PromptSampler(
            dataset,
            batch_size=prompts,
            mini_repeat_count=args.generation_batch_size // prompts,
            repeat_count=args.num_iterations * args.steps_per_generation,
            shuffle=args.shuffle_dataset,
            seed=args.seed,
            epoch=lambda: step() // (len(dataset) // prompts * args.num_iterations),
        )

    def begin(
        self, inputs: list[dict[str, Any]], *, round: int, step: int, training: bool
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Chooses the member for each of this process' rows. In evaluation, every member answers every prompt.

        Raises:
            ValueError: In evaluation, if rows do not say which member answers.
        """
        if not training and not all("player" in row for row in inputs):
            raise ValueError(
                "The rows to evaluate have no column 'player', which trainer.evaluate(dataset) adds for the member "
                "that answers. Use it in place of predict. A transform of the dataset (set_transform) must keep the "
                "column; map does so by itself."
            )
        members = self.assign_members(len(inputs)) if training else [row["player"] for row in inputs]
        return [{**row, "player": name} for row, name in zip(inputs, members, strict=True)], members

    def summary(self, *, grad_norms: Mapping[str, float]) -> RoundSummary:
        """As of every source, with an alarm if no row has an advantage."""
        summary = super().summary(grad_norms=grad_norms)
        groups = self.scored.rewards.reshape(-1, self.args.num_generations).tolist()
        return replace(summary, alarms=(*summary.alarms, *equality_alarms(groups)))

    def _check(self, name: str, dataset: Any) -> None:
        check_dataset(name, dataset)
        if dataset is not None:
            columns = [*(dataset[0] if len(dataset) else dataset.column_names)]  # as a format gives them
            check_reward_functions(self._functions, [*columns, "player"], of=name)

    def to_evaluate(self, dataset: Dataset) -> Dataset:
        """Every row once for every member."""
        own = isinstance(dataset, Dataset) and "player" in dataset.column_names  # the trainer's, which has it already
        if not (own and set(dataset["player"]) <= set(self.population)):
            self._check("eval_dataset", dataset)
            dataset = _for_every_member(dataset, list(self.population))
        return dataset


def rows_hash(dataset: Dataset | None) -> str | None:
    """A hash of all rows of a dataset in their order, 16 hexadecimal digits; `None` without a dataset.

    It depends on all columns, however they were loaded, and not on transforms. All rows are read once for it.
    """
    if dataset is None:
        return None
    digest, tables = hashlib.sha256(), cast(Any, dataset.with_format("arrow").iter(batch_size=1000))
    for table in tables:
        digest.update(json.dumps(table.to_pydict(), sort_keys=True, default=str).encode())
    return digest.hexdigest()[:16]


def _for_every_member(dataset: Dataset, members: Sequence[str]) -> Dataset:
    return concatenate_datasets([dataset.add_column("player", [name] * len(dataset)) for name in members])


class PromptSampler(RepeatSampler):
    """TRL's order of prompts, as a function of (seed, epoch), so that a resumed run sees the same prompts.

    Args:
        dataset (`Dataset`): Prompts.
        epoch (`Callable[[], int]`): Returns the number of the current epoch.
        settings: Other arguments of `trl.trainer.utils.RepeatSampler`.
    """

    def __init__(self, dataset: Sized, *, epoch: Callable[[], int], **settings: Any) -> None:
        super().__init__(dataset, **settings)
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(zlib.crc32(f"{self.seed}:{self.epoch()}".encode()))
        yield from super().__iter__()
