"""What happens between rounds: the replacement step, and the round's summary."""

import math
import sys
import time
import zlib
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.utils import logging

from ..diagnostics import RoundSummary, round_metrics
from ..diagnostics.metrics import combination, is_zero_without
from ..diagnostics.weights import measure_weights
from ..evolution import EvolutionEvent, NotFiniteError, evolve, recombine
from .config import PopulationSelfPlayConfig
from .probing import probe
from .resuming import cut_back
from .run_record import write_run_file
from .source_checks import checked_summary
from .trackers import Trackers


if TYPE_CHECKING:
    from .trainer import PopulationSelfPlayTrainer


logger = logging.get_logger(__name__)


class RoundCallback(TrainerCallback):
    """At the end of each round: recombines or replaces members if it is due, and reports the round.

    The optimizer state of replaced members is reset. It runs before logging and saving. So metrics and checkpoints
    hold the population after replacement.
    """

    def __init__(self, trainer: "PopulationSelfPlayTrainer") -> None:
        self.trainer = trainer
        self.trackers = Trackers(trainer)
        self._alarms: tuple[str, ...] = ()  # of the last round
        self._since_log: list[dict[str, float]] = []  # metrics of the rounds since the last log
        self._unlogged: list[float] | None = None  # a list of TRL's that is replaced after the next log

    def on_train_begin(
        self, args: PopulationSelfPlayConfig, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        trainer = self.trainer
        self.trackers.check_open()
        trainer.updates.check(trainer.optimizer)
        trainer.guard.remember()
        if trainer.accelerator.is_main_process:
            if state.global_step == 0:
                trainer.folder.start(overwrite=args.overwrite_output_dir)
            else:
                cut_back(trainer)
            write_run_file(trainer)  # before other files, which it says to be a run's
            if state.global_step == 0:
                trainer.folder.append_events([event.to_json() for event in trainer.lineage])
                self._warn_of_members_away(args)
            if state.global_step < state.max_steps:
                trainer.folder.reopen()
        trainer.has_trained = True
        if state.global_step == 0:
            trainer.source.begin_run()
        self.trackers.begin()
        if args.is_probed:
            trainer.probes.begin(step=state.global_step)
            if state.global_step == 0 and trainer.probes.has_exams:
                probe(trainer)
                trainer.stopping.agree()

    def _warn_of_members_away(self, args: PopulationSelfPlayConfig) -> None:
        away = [name for name in self.trainer.population if self._has_moved(name)] if args.beta else []
        if away:
            logger.warning(
                f"beta={args.beta} pulls members towards the base, but {', '.join(away)} does not start: "
                "what was learned before would be undone. Set beta to 0.0, or start from fresh adapters."
            )

    def _has_moved(self, name: str) -> bool:
        return any(factor.B.any() for factor in self.trainer.population.factors(name).values())

    def on_step_end(
        self, args: PopulationSelfPlayConfig, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        trainer = self.trainer
        trainer.updates.set_back(trainer.optimizer)
        if state.global_step % trainer.num_iterations:
            return
        # before evolution: members as they played
        updates = trainer.updates
        norms = {name: fmean(steps) for name, steps in updates.norms.items()}
        summary = self._weighed(checked_summary(trainer.source, norms))
        members = tuple(replace(one, updates=updates.counts[one.name]) for one in summary.members)
        summary = replace(summary, members=members)
        updates.begin_round()
        start = time.perf_counter()
        recombined = self._recombine(state.global_step)
        if recombined:
            seconds = summary.seconds | {"recombine": time.perf_counter() - start}
            summary = replace(summary, recombined=recombined, seconds=seconds)
        events, alarms = self._evolve(state.global_step)
        trainer.ranks.check_equal(
            {name: trainer.population.parameters(name) for name in trainer.population}, step=state.global_step
        )
        alarms += trainer.guard.end_round()
        trainer.guard.remember(recombined)
        self._report(
            replace(summary, events=tuple(event.to_json() for event in events), alarms=(*summary.alarms, *alarms))
        )

    def on_log(
        self,
        args: PopulationSelfPlayConfig,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any],
        **kwargs: Any,
    ) -> None:
        # Trainer keeps all logs. The names are made anew in every round, and are longer than the numbers.
        if state.log_history:  # a callback may have emptied it
            state.log_history[-1] = {sys.intern(name): value for name, value in state.log_history[-1].items()}
        if logs.keys() & {"loss", "train_loss"}:
            self.trackers.log(step=state.global_step)

    def _weighed(self, summary: RoundSummary) -> RoundSummary:
        """The summary with the weight metrics, in rounds that measure them. Only the log needs them."""
        trainer, every = self.trainer, self.trainer.args.weight_metrics_interval
        if not every or (summary.round + 1) % every or not trainer.accelerator.is_main_process:
            return summary
        start = time.perf_counter()
        roles = dict.fromkeys(member.role for member in trainer.population.values())
        members = {
            f"{role}s": {name: trainer.population.factors(name) for name in trainer.population.names(role)}
            for role in roles
        }
        summary = measure_weights(summary, members)
        return replace(summary, seconds=summary.seconds | {"weights": time.perf_counter() - start})

    def _recombine(self, step: int) -> tuple[str, ...]:
        """Recombines if it is due, but not after the last round, nor right before a replacement step. Returns the
        members that changed."""
        trainer, args = self.trainer, self.trainer.args
        rounds, every = step // trainer.num_iterations, args.recombination_interval
        if not every or rounds % every or step >= trainer.state.max_steps:
            return ()
        if args.evolution is not None and args.evolution.due(rounds):
            return ()
        trainer.progress.begin("recombine")
        roles = [role for role in ("teacher", "student") if args.recombination_roles in (f"{role}s", "both")]
        failing = trainer.guard.failing
        try:
            names = recombine(trainer.population, roles=roles, islands=args.islands, without=failing)
        except NotFiniteError as error:
            trainer.guard.alarms.append(f"nobody recombined: {error}")
            return ()
        for name in names:
            trainer.updates.spread(name)
        return names

    def _evolve(self, step: int) -> tuple[list[EvolutionEvent], tuple[str, ...]]:
        """Events of the replacement step, if there is one in this round, and alarms."""
        trainer, settings = self.trainer, self.trainer.args.evolution
        rounds = step // trainer.num_iterations
        if settings is None or not settings.due(rounds):
            return [], ()
        if step >= trainer.state.max_steps:  # a child that nobody trains would be saved and judged as a member
            return [], ()
        unrated = [name for name in trainer.population if math.isnan(trainer.ratings.fitness(name))]
        if unrated:
            return [], (f"nobody was replaced: no reward function has scored {', '.join(unrated)} yet",)
        rng = torch.Generator().manual_seed(zlib.crc32(f"{trainer.args.seed}:evolve:{step}".encode()))
        trainer.progress.begin("replace")
        trainer.source.before_replacement(step=step)
        try:
            events = evolve(
                trainer.population,
                trainer.ratings,
                settings=settings,
                step=step,
                rng=rng,
                steps_per_round=trainer.num_iterations,
                number=rounds // settings.interval,
            )
        except NotFiniteError as error:
            return [], (f"nobody was replaced: {error}",)
        for event in events:
            trainer.updates.start_over(event.slot, trainer.optimizer, trainer.lr_scheduler)
        trainer.lineage.extend(events)
        if trainer.accelerator.is_main_process:
            trainer.folder.append_events([event.to_json() for event in events])
        return events, ()

    def _report(self, summary: RoundSummary) -> None:
        trainer = self.trainer
        logged = trainer._metrics["train"]  # TRL logs the mean of each list, and clears them
        waiting = logged.get("round") is self._unlogged  # the name alone may be from a reward function's log_metric
        self._since_log = [*(self._since_log if waiting else ()), round_metrics(summary)]
        for name in dict.fromkeys(name for metrics in self._since_log for name in metrics):
            absent = 0.0 if is_zero_without(name, self_play=bool(summary.teachers)) else None
            values = [metrics.get(name, absent) for metrics in self._since_log]
            values = [value for value in values if value is not None]
            logged[name][:] = {"mean": values, "sum": [sum(values)], "last": values[-1:]}[combination(name)]
        self._unlogged = logged["round"]
        self.trackers.note(summary)
        if trainer.accelerator.is_main_process:
            trainer.folder.append_round(summary.round, summary.to_json(), trainer.source.rows())
            if trainer.on_round is not None:
                trainer.on_round(summary)
            for alarm in summary.alarms if trainer.on_round is None else ():
                if alarm not in self._alarms:
                    logger.warning(f"round {summary.round + 1}: {alarm}")
            self._alarms = summary.alarms
