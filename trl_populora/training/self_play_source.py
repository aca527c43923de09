"""`SelfPlaySource`: rows that the members make for each other, round by round."""

import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from transformers.utils import logging

from ..diagnostics import Observer, RoundSummary, task_metrics
from ..evolution import HallOfFame
from ..executor import Execution, Executor, Job
from ..generation import Sampler
from ..population import Population
from ..progress import watched_jobs
from ..run_files.layout import HALL_FOLDER
from ..run_files.secrets import without_secrets
from ..self_play import Crossing, Guest, Guests, PlayedRound, Ratings, Row, SelfPlay
from ..self_play.rewards import role_rewards, role_task_advantages
from ..self_play.sampling import Completion, Message
from ..tasks import TaskType, recorded
from .config import PopulationSelfPlayConfig
from .first_tasks import check_room, first_tasks, token_limits, types_in_play
from .founders import Founders
from .ranks import Ranks, equal_shares
from .reward_functions import check_reward_functions
from .row_source import RowSource
from .scored_rows import ScoredRows


logger = logging.get_logger(__name__)


def self_play_reward(completions: list, self_play_reward: list[float | None], **kwargs: Any) -> list[float | None]:
    """Reward function that returns the rewards of the round, which are already computed."""
    return self_play_reward


class SelfPlaySource(RowSource):
    """Source of rows for self-play: teachers write the tasks.

    Args:
        task_types (`Sequence[str | TaskType]`, *optional*): Task types, instead of those in the settings.

    Attributes:
        executor ([`Executor`]): Sandbox. task_types (`dict[str, TaskType]`): Types in play.
        buffer ([`TaskBuffer`]): Verified tasks. ratings ([`Ratings`]): TrueSkill of all players.
        self_play ([`SelfPlay`]): The rounds. played ([`PlayedRound`]): The newest round.
        sampler ([`Sampler`]): Samples completions. observer ([`Observer`]): Summarizes rounds.
        hall ([`HallOfFame`] or `None`): Champions of the past, if the run keeps any.
    """

    executor: Executor
    ratings: Ratings
    played: PlayedRound  # from the first round on

    def __init__(self, task_types: Sequence[str | TaskType] | None = None) -> None:
        self.given_types = task_types

    def make_reward_functions(
        self, args: PopulationSelfPlayConfig, functions: list, classes: list | None
    ) -> tuple[list, list | None]:
        """The reward of the game first, then the reward functions of the user."""
        columns = ("player", "role", "task_type", "self_play_reward")
        check_reward_functions(functions, columns, of="the rows of self-play")
        return [self_play_reward, *functions], None if classes is None else [None, *classes]

    def setup(self, args: PopulationSelfPlayConfig, population: Population, sampler: Sampler, ranks: Ranks) -> None:
        super().setup(args, population, sampler, ranks)
        self.executor = args.executor.make(ranks.cores)
        self.task_types = types_in_play(args, self.given_types)
        lengths = token_limits(args, self.task_types, sampler.count_tokens, sampler.read, sampler.max_length)
        self.buffer = first_tasks(args, self.task_types, lengths)
        self.ratings = Ratings(population.teachers, population.students)
        self.observer = Observer(self.task_types, prompts_per_teacher=args.prompts_per_teacher)
        self.execution_counts: Counter[str] = Counter()
        self.self_play = SelfPlay(
            task_types=self.task_types,
            run_many=self._run_many,
            buffer=self.buffer,
            ratings=self.ratings,
            settings=args.round_settings,
            lengths=lengths,
            progress=sampler.progress,
        )
        check_room(args, self.task_types, self.buffer, lengths, population.base_model.config)
        self.hall = HallOfFame(args.hall_of_fame_size) if args.hall_of_fame_probability else None
        self.role_rewards: dict[str, float] = {}
        self._local_rows: list[Row] = []
        self._order: list[int] = []

    def begin(
        self, inputs: list[dict[str, Any]], *, round: int, step: int, training: bool
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Plays a round and returns this process' share of its rows. The content of `inputs` is ignored.

        Raises:
            ValueError: In evaluation.
        """
        if not training:
            raise ValueError(
                "Self-play is not evaluated on a dataset: its members answer exams. Leave eval_dataset out, and name "
                "exams in probe_kwargs."
            )
        crossing = Crossing(self._invite(round))
        self.sampler.sync()
        population = self.population
        versions = {name: population[population.adapter_of(name)].version for name in population.teachers}
        played = self.self_play.play(self._sample, round=round, step=step, crossing=crossing, versions=versions)
        self._order = self._dealt(played.rows)
        self.played = played._replace(rows=[played.rows[i] for i in self._order])
        self._ready_at = time.perf_counter()
        start = self.ranks.index * len(inputs)
        self._local_rows = self.played.rows[start : start + len(inputs)]
        columns = [
            {
                "prompt": row.prompt,
                "player": row.player,
                "role": row.role,
                "task_type": row.type,
                "self_play_reward": row.reward,
            }
            for row in self._local_rows
        ]
        return columns, [self.population.adapter_of(row.player) for row in self._local_rows]

    def _dealt(self, rows: Sequence[Row]) -> list[int]:
        """The order in which every process gets its share: whole groups, about as many tokens for each process."""
        size = self.args.num_generations
        lengths = [len(row.completion.prompt_ids) + len(row.completion.ids) for row in rows]
        tokens = [sum(lengths[start : start + size]) for start in range(0, len(rows), size)]
        groups = equal_shares(tokens, self.ranks.accelerator.num_processes)
        return [group * size + i for group in groups for i in range(size)]

    def rollout(self, prompts: list, trainer: Any) -> dict[str, list | None]:
        """Returns the completions of this process' rows, which the round has already sampled."""
        completions = [row.completion for row in self._local_rows]
        return self.as_rollout([completion.prompt_ids for completion in completions], completions)

    def labels(self, members: list[str]) -> dict[str, list[str]]:
        """Player, role, task type and verdict of each row."""
        record = self.played.record
        # where teachers' rows wait and none is due, the rows are those of this round
        written = record.late_proposals or record.proposals
        verdicts = [item.verdict for item in (*written, *(one for one in record.attempts if one.learned))]
        verdicts = [verdicts[i] for i in self._order]
        own = slice(start := self.ranks.index * len(members), start + len(members))
        rows = self.played.rows
        columns = {
            "player": [row.player for row in rows],
            "role": [row.role for row in rows],
            "type": [row.type for row in rows],
            "verdict": verdicts,
        }
        return {name: values[own] for name, values in columns.items()}

    def spare(self, rewards: torch.Tensor) -> torch.Tensor:
        """Removes all rewards of rows that the executor failed to run."""
        rewards[rewards[:, 0].isnan()] = torch.nan
        return rewards

    def advantages(self, rows: ScoredRows) -> np.ndarray | None:
        """With `advantage="role_task"`: whitened over the tokens of a member, role and task type (AZR's TRR++)."""
        if self.args.advantage != "role_task":
            return None
        strata = [(row.player, row.role, row.type) for row in self.played.rows]
        scale = self.args.scale_rewards != "none"
        return role_task_advantages(rows.rewards, strata, weights=rows.loss_tokens, scale=scale)

    def finish(self, rows: ScoredRows, metrics: dict[str, list[float]]) -> None:
        """Adds the main numbers of each role, and removes TRL's, which average over opponents."""
        roles = [row.role for row in self.played.rows]
        self.role_rewards = role_rewards(
            rows.rewards, rows.by_function, roles=roles, group_size=self.args.num_generations
        )
        mixed = [f"rewards/{name}/{kind}" for name in rows.by_function for kind in ("mean", "std")]
        for name in ("reward", "reward_std", "frac_reward_zero_std", *mixed):
            metrics.pop(name, None)

    def summary(self, *, grad_norms: Mapping[str, float]) -> RoundSummary:
        summary = self.observer.observe(
            self.played.record,
            ratings=self.ratings,
            population=self.population,
            counts=self.execution_counts,
            tasks=task_metrics(self.played.record, self.buffer, self.task_types),
            seconds=self.played.seconds | {"learn": time.perf_counter() - self._ready_at},
            grad_norms=grad_norms,
        )
        return replace(summary, rewards=self.role_rewards)

    def rows(self) -> list[dict[str, Any]]:
        """Every completion of the round. Advantages are in the rows that members learn from."""
        population, players = self.population, (*self.population.teachers, *self.population.students)
        versions = {name: self.scored.versions[population.adapter_of(name)] for name in players}
        rows = list(self.played.record.rows(versions))
        kind = "late" if self.self_play.late.rounds else "learned"
        written = [row for row in rows if row["role"] == "teacher" and row["kind"] == kind]
        answered = [row for row in rows if row["role"] == "student" and row["learned"]]
        used = [values for _, values in sorted(zip(self._order, self.scored.used(), strict=True), key=itemgetter(0))]
        teachers = sum(row.role == "teacher" for row in self.played.rows)
        for row, values in (*zip(written, used[:teachers]), *zip(answered, used[teachers:], strict=True)):
            row |= values
        return rows

    def begin_run(self) -> None:
        """Forgets champions of an earlier run and rows that wait for their rewards."""
        self.self_play.late.load_state_dict([], self.task_types)
        if self.hall is not None:
            self.hall = HallOfFame(self.args.hall_of_fame_size)

    def before_replacement(self, *, step: int) -> None:
        """The fittest members enter the hall of fame, if there is one."""
        if self.hall is not None:
            self.hall.enter(self.population, self.ratings, step=step)

    def state_dict(self) -> dict[str, Any]:
        names, kwargs = recorded(list(self.task_types.values()))
        kwargs = {name: without_secrets(own) for name, own in kwargs.items()}
        return {
            "task_types": {"names": names, "kwargs": kwargs},  # for the commands that open a run
            "buffer": self.buffer.state_dict(),
            "observer": self.observer.state_dict(),
            "late": self.self_play.late.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if gone := self.buffer.load_state_dict(state["buffer"]):
            logger.warning(
                "%d tasks of the checkpoint show questions of exams, and are left out from now on. What members "
                "learned from them stays.",
                gone,
            )
        self.observer.load_state_dict(state["observer"], counts=self.execution_counts)
        self.self_play.late.load_state_dict(state["late"], self.task_types)
        self.self_play.late.leave_out(self.buffer.reserves)

    def save(self, folder: str) -> None:
        """Writes the champions, if the run keeps any."""
        if self.hall is not None:
            self.hall.save(os.path.join(folder, HALL_FOLDER))

    def load(self, folder: str) -> None:
        """Restores the champions, if the run keeps any and the folder has some."""
        path = os.path.join(folder, HALL_FOLDER)
        if self.hall is not None and os.path.isdir(path):
            self.hall = HallOfFame.load(path, capacity=self.hall.capacity)

    def make_founders(self, prompts: int) -> Founders:
        """The founders of this run, as opponents that nobody learns from."""
        return Founders(self, prompts=prompts)

    def close(self) -> None:
        self.executor.close()

    def _invite(self, round: int) -> Guests | None:
        """Draws the champions of the round and loads them into the guest adapters; none if there are no champions
        yet."""
        if not self.hall:
            return None
        rng = random.Random(self.self_play.settings.seed_for(round, "guests"))
        found = [self.hall.sample(role, rng) for role in ("teacher", "student")]
        champions = [one for one in found if one is not None]
        seats = self.population.guests[: len(champions)]
        for guest, champion in zip(seats, champions, strict=True):
            self.population.admit(guest, champion.factors, temperature=champion.temperature)
        return Guests(*(Guest(guest, one.title) for guest, one in zip(seats, champions, strict=True)))

    def _sample(self, prompts: Sequence[list[Message]], members: Sequence[str], *, seed: int) -> list[Completion]:
        adapters = [self.population.adapter_of(member) for member in members]
        return self.ranks.share(
            list(zip(prompts, adapters, strict=True)),
            lambda own, places: self.sampler([p for p, _ in own], [a for _, a in own], seed=seed, streams=places),
            evenly=self.args.shard_base,  # every forward is then a collective
            group=self.args.num_generations,
        )

    def _run_many(self, jobs: Sequence[Job]) -> list[Execution]:
        run = watched_jobs(self.executor, self.sampler.progress)
        executions = self.ranks.share(jobs, lambda own, places: run(own))
        self.execution_counts.update(execution.status.value for execution in executions)
        return executions
