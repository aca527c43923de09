"""`RowSource`: where the rows of a generation phase come from, and what their rewards mean.

Everything that depends on the origin of rows is in a source, and the trainer does not depend on the kind of source.
The package has two: self-play (`self_play_source.py`) and a dataset (`dataset_source.py`). Users pass their own
subclass as `PopulationSelfPlayTrainer(..., row_source=MySource())`.
"""

import math
import time
import zlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import Sampler as OrderSampler
from transformers import PreTrainedTokenizerBase

from ..diagnostics import MemberSummary, RoundSummary
from ..diagnostics.dynamics import distinct, mean, reward_alarms
from ..population import Population
from .config import PopulationSelfPlayConfig
from .ranks import Ranks
from .reward_ratings import RewardRatings
from .scored_rows import ScoredRows


if TYPE_CHECKING:
    from trl.trainer.grpo_trainer import RewardFunc

    from ..executor import Executor
    from ..generation import Sampler
    from ..self_play import Completion, Ratings
    from ..tasks import TaskBuffer, TaskType
    from .founders import Founders
    from .trainer import PopulationSelfPlayTrainer


class RowSource(ABC):
    """Where rows come from.

    A subclass defines the prompts ([`RowSource.begin`]) and the rewards ([`RowSource.make_reward_functions`]).
    Everything else has a default: every member samples its rows with the trainer's sampler, and members are rated by
    their mean reward.

    The trainer calls, in this order: `make_reward_functions` and `make_datasets` while it is constructed, `setup` at
    the end of that; `order` for the sampler of the dataset; `begin_run` before round 0; `begin`, `labels` (with
    `log_completions`), `rollout`, `spare`, `advantages` and `finish` in each generation phase; `summary`, before a
    replacement step `before_replacement`, and `rows` at the end of each round. At `rows`, members may have been
    replaced already. `state_dict` and `save` are for a checkpoint, `to_evaluate` for `trainer.evaluate(dataset)`.

    Attributes:
        args ([`PopulationSelfPlayConfig`]): Settings. population ([`Population`]): Members.
        sampler ([`Sampler`]): Samples completions. ranks ([`Ranks`]): Processes of the run.
        ratings ([`Ratings`] or [`RewardRatings`]): Selection uses their `fitness`. It is NaN for a member that cannot
            be compared yet.
        task_types (`Mapping[str, TaskType]`), executor ([`Executor`]): Task types and sandbox, if there are any.
        dataset_hash (`dict`, *optional*): Hashes of the rows of a user's datasets, by which a resume notices others.
        scored ([`ScoredRows`]): The newest rows that members learn from, with their rewards; from the first round on.

    Example:
        ```python
        >>> class Counting(RowSource):
        ...     def make_reward_functions(self, args, functions, classes):
        ...         return [lambda completions, n, **_: [float(str(i) in c) for i, c in zip(n, completions)]], None
        ...
        ...     def begin(self, inputs, *, round, step, training):
        ...         rows = [{"prompt": f"Count to {round + 2}:", "n": round + 2} for _ in inputs]
        ...         return rows, self.assign_members(len(inputs))

        >>> PopulationSelfPlayTrainer("Qwen/Qwen2.5-0.5B", args=args, row_source=Counting()).train()
        ```
    """

    task_types: "Mapping[str, TaskType]" = {}
    executor: "Executor | None" = None
    dataset_hash: dict[str, Any] | None = None
    args: PopulationSelfPlayConfig
    population: Population
    sampler: "Sampler"
    ranks: Ranks
    ratings: "Ratings | RewardRatings"
    scored: ScoredRows
    buffer: "TaskBuffer"  # of self-play only

    # While the trainer is constructed ----------------------------------------------------------------------------

    @abstractmethod
    def make_reward_functions(
        self,
        args: PopulationSelfPlayConfig,
        functions: "list[RewardFunc]",
        classes: list[PreTrainedTokenizerBase | None] | None,
    ) -> "tuple[list[RewardFunc], list[PreTrainedTokenizerBase | None] | None]":
        """The reward functions of a run, and their processing classes.

        Args:
            args ([`PopulationSelfPlayConfig`]): Settings.
            functions (`list[RewardFunc]`): Reward functions that were passed to the trainer, possibly none.
            classes (`list`, *optional*): Their processing classes.

        Raises:
            ValueError: If the source cannot use them.
        """

    def make_datasets(
        self, args: PopulationSelfPlayConfig, train_dataset: Any, eval_dataset: Any
    ) -> tuple[Dataset, Dataset | dict[str, Dataset] | None]:
        """The datasets that TRL reads. The default is a placeholder of one batch, because `begin` makes the rows.

        Args:
            args ([`PopulationSelfPlayConfig`]): Settings.
            train_dataset, eval_dataset: Datasets that were passed to the trainer.

        Raises:
            ValueError: If the source does not use a dataset, or the dataset lacks something that it needs.
        """
        given = {"train_dataset": train_dataset, "eval_dataset": eval_dataset}
        useless = [name for name, dataset in given.items() if dataset is not None]
        if useless:
            raise ValueError(
                f"{', '.join(useless)} given to {type(self).__name__}, which makes its own rows. Leave it out. "
                "To train num_students adapters on your data, set num_teachers=0 and leave row_source out."
            )
        groups = args.rows_per_round // args.num_generations
        return Dataset.from_dict({"prompt": ["made by the source"] * groups}), None

    def setup(self, args: PopulationSelfPlayConfig, population: Population, sampler: "Sampler", ranks: Ranks) -> None:
        """Gets the objects that the trainer has made. A subclass that overrides this must call it first. Then it may
        set other `ratings`.

        Raises:
            ValueError: If `ratings` is an attribute of the class, which several runs would share.
        """
        if hasattr(type(self), "ratings"):
            raise ValueError(
                f"{type(self).__name__}.ratings is an attribute of the class. Set self.ratings in `setup`, after "
                "super().setup(...)."
            )
        self.args, self.population, self.sampler, self.ranks = args, population, sampler, ranks
        self.ratings = RewardRatings(list(population), window=args.evolution_interval or 20)
        self._evaluated = 0  # rows since the last round
        self._ready_at = self._sample_seconds = 0.0

    def order(self, dataset: Dataset, *, step: Callable[[], int]) -> OrderSampler | None:
        """The order of the dataset's rows, as a function of (seed, optimizer step); `None` for TRL's."""
        return None

    # In a generation phase ---------------------------------------------------------------------------------------

    @abstractmethod
    def begin(
        self, inputs: list[dict[str, Any]], *, round: int, step: int, training: bool
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Makes the prompts and chooses the member that answers each.

        Args:
            inputs (`list[dict]`): This process' rows of the dataset, as many as rows are needed.
            round, step (`int`): Number of the round from 0, and optimizer step.
            training (`bool`): Whether members learn from the rows; `False` in evaluation.

        Returns:
            `list[dict]` and `list[str]`: As many rows as `inputs`, with `"prompt"` and the columns for reward
            functions; and the adapter that answers each row. Groups of `num_generations` rows have the same prompt and
            adapter.
        """

    def rollout(self, prompts: list, trainer: "PopulationSelfPlayTrainer") -> dict[str, list | None]:
        """TRL's rollout function. By default each row is sampled from its member."""
        start, training = time.perf_counter(), trainer.model.training
        self.sampler.sync()
        prompt_ids, images, _ = trainer._tokenize_prompts(prompts)
        if images is not None:
            raise ValueError("The prompts hold images: a population trains on text only.")
        longest, limit = max(map(len, prompt_ids), default=0), self.sampler.max_length
        if limit is not None and longest + self.sampler.max_completion_length > limit:
            raise ValueError(
                f"A prompt of {longest} tokens and max_completion_length={self.sampler.max_completion_length} exceed "
                f"the {limit} tokens that the base or engine takes. Lower one of them, or leave such prompts out."
            )
        seeds = self._seeds(len(prompts), step=trainer.state.global_step, training=training)
        completions = self.sampler.checked_draw(prompt_ids, trainer.row_members, seeds)
        if training:
            self._ready_at = time.perf_counter()
            self._sample_seconds = self._ready_at - start
        return self.as_rollout(prompt_ids, completions)

    def labels(self, members: list[str]) -> dict[str, list[str]]:
        """Additional columns of TRL's table of completions (`log_completions`), for this process' rows.

        Args:
            members (`list[str]`): Adapter of each row.
        """
        return {"player": members}

    def spare(self, rewards: torch.Tensor) -> torch.Tensor:
        """The rewards of all processes' rows, shape `(N, functions)`, with NaN for rows that must not count. It
        returns a tensor of that shape."""
        return rewards

    def advantages(self, rows: ScoredRows) -> np.ndarray | None:
        """Advantages of the rows of all processes, shape `(N,)`, finite for all that count; `None` to use GRPO's group
        advantages."""
        return None

    def finish(self, rows: ScoredRows, metrics: dict[str, list[float]]) -> None:
        """Called with the result of a generation phase. By default, it updates the ratings by the mean reward of each
        member; in evaluation, it logs that. A subclass that overrides this calls it, or updates its ratings itself.

        Args:
            rows ([`ScoredRows`]): All rows with their rewards.
            metrics (`dict[str, list[float]]`): TRL's metrics of this phase. The source may add and remove entries. The
                mean of each is logged.
        """
        if rows.training:
            shares = rows.by_member()
            rewards: Any = {name: shares[name].rewards for name in self.population}
            self.ratings.update(rewards)
            return
        for name, reward in zip(rows.members, rows.rewards.tolist(), strict=True):
            metrics[f"reward/{name}"].append(reward)

    # At the end of a round ---------------------------------------------------------------------------------------

    def summary(self, *, grad_norms: Mapping[str, float]) -> RoundSummary:
        """Summary of the newest round, with the members as they played. Called when learning from the round has ended.

        Args:
            grad_norms (`Mapping[str, float]`): Member -> gradient norm before clipping.
        """
        members = tuple(self._member_summaries(grad_norms))
        return RoundSummary(
            round=self.scored.round,
            step=self.scored.step,
            members=members,
            teachers=(),
            students=self.population.students,
            games=(),
            wins=(),
            seconds={"sample": self._sample_seconds, "learn": time.perf_counter() - self._ready_at},
            alarms=reward_alarms(members),
        )

    def rows(self) -> list[dict[str, Any]]:
        """The newest round as a table with the keys of `COLUMNS` ([`run_files.round_table`]), one row per
        completion."""
        roles = {name: member.role for name, member in self.population.items()}
        rows = self.scored.records(group_size=self.args.num_generations)
        return [row | {"role": roles[row["member"]]} for row in rows]

    def to_evaluate(self, dataset: Dataset) -> Dataset:
        """The rows of a dataset that a user passes to `evaluate`; unchanged by default."""
        return dataset

    def begin_run(self) -> None:  # noqa: B027
        """Called before round 0. The source may have played another run before."""

    def before_replacement(self, *, step: int) -> None:  # noqa: B027 (most sources have nothing to do)
        """Called before weak members are replaced."""

    def make_founders(self, prompts: int) -> "Founders | None":
        """The founders that play against current members in probes, with `prompts` prompts per task type; `None` by
        default."""
        return None

    # Files -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State that a resumed run needs beside the ratings, as data for JSON."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Restores the result of `state_dict`."""

    def save(self, folder: str) -> None:  # noqa: B027
        """Writes state that is too large for `state_dict` into a checkpoint."""

    def load(self, folder: str) -> None:  # noqa: B027
        """Reads the files of `save`."""

    def close(self) -> None:  # noqa: B027
        """Ends the processes that the source has started. The source may be used again."""

    # For subclasses ----------------------------------------------------------------------------------------------

    def assign_members(self, rows: int) -> list[str]:
        """Members of this process' rows: group `g` of the whole batch belongs to member `g mod N`."""
        start, names = self.ranks.index * rows, list(self.population)
        return [names[(start + i) // self.args.num_generations % len(names)] for i in range(rows)]

    def as_rollout(
        self, prompt_ids: Sequence[Sequence[int]], completions: "list[Completion]"
    ) -> dict[str, list | None]:
        """The return value of a rollout function, as TRL requires it.

        Where the sampler reports log-probabilities, rows without them (which waited since the run had another sampler)
        get NaN, for which TRL does not correct.
        """
        known = [[math.nan] * len(one.ids) if one.logprobs is None else list(one.logprobs) for one in completions]
        return {
            "prompt_ids": [list(ids) for ids in prompt_ids],
            "completion_ids": [list(completion.ids) for completion in completions],
            "logprobs": known if self.sampler.reports_logprobs else None,
        }

    def _seeds(self, rows: int, *, step: int, training: bool) -> list[int]:
        """A 32-bit seed for each of this process' rows, from its place among all rows of the step."""
        start, purpose = self.ranks.index * rows, "train"
        if training:
            self._evaluated = 0
        else:
            start, purpose = start + self._evaluated, "evaluate"
            self._evaluated += rows * self.ranks.accelerator.num_processes
        places = range(start, start + rows)
        return [zlib.crc32(f"{self.args.seed}:{step}:{purpose}:{i}".encode()) - (1 << 31) for i in places]

    def _member_summaries(self, grad_norms: Mapping[str, float]) -> Iterator[MemberSummary]:
        shares, texts = self.scored.by_member(), defaultdict(list)
        for name, *row in zip(self.scored.members, self.scored.prompts, self.scored.completions, strict=True):
            texts[name].append(tuple(map(str, row)))
        for member in self.population.values():
            own = shares[member.id]
            scored = [row for row in zip(*own, strict=True) if math.isfinite(row[0])]
            rewards, tokens, prompt_tokens = zip(*scored, strict=True) if scored else ((), (), ())
            rating = self.ratings[member.id]
            rated = not math.isnan(rating.mu)
            yield MemberSummary(
                name=member.id,
                role=member.role,
                version=member.version,
                reward=mean(rewards),
                validity=None,
                solve_rate=None,
                mu=rating.mu if rated else None,  # JSON has no NaN
                sigma=rating.sigma if rated else None,
                length=sum(own.tokens) / max(len(own.tokens), 1),
                rows=len(rewards),
                tokens=sum(tokens),
                distinct=distinct(texts[member.id]),
                prompt_tokens=sum(prompt_tokens),
                unlearned_rows=len(own.rewards) - len(rewards),
                unlearned_tokens=sum(own.tokens) - sum(tokens),
                grad_norm=grad_norms.get(member.id),
            )
