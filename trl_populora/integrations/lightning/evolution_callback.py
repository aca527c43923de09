"""`EvolutionCallback`: population based training under `lightning.Trainer`, by any logged validation metric."""

import json
import logging
import math
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor

from ...evolution import EvolutionEvent, EvolutionSettings, Lineage, NotFiniteError, evolve
from ...population import Population
from ...self_play import Rating
from .population_module import PopulationModule, schedulers_of


logger = logging.getLogger(__name__)

MODES = ("min", "max")
UNITS = ("epochs", "validations")


class EvolutionCallback(lightning.Callback):
    """Replaces the worst members of each role by children of the best, at the end of a validation run.

    Selection, operators and lineage are those of [`evolve`]. A child starts without optimizer moments, at its own
    learning rate. Nobody is replaced at the end of training, because the child would not be trained. (What stops
    training after the validation, as `EarlyStopping` does, comes too late for that.) If no optimizer step was taken
    since the last replacement, evolution waits for a later validation. A checkpoint of the same validation holds the
    population after replacement, the lineage and the state of evolution. So a resumed run equals a run that was never
    stopped.

    Fitness is the latest value of the metric, with its sign changed if smaller is better. A child needs a value of its
    own at the next validation. A member whose metric is not finite ranks last. If the weights of a parent or a child
    are not finite, nobody is replaced (our choice).

    Args:
        metric (`str`):
            A logged metric, such as `"val_loss"`. The fitness of member `student_0` is `val_loss/student_0`. Use
            [`PopulationModule.log_rows`] to log your own metrics.
        mode (`str`, *optional*, defaults to `"min"`): Which is better, `"min"` or `"max"`.
        interval (`int`, *optional*, defaults to `1`): Epochs or validation runs between two evolution steps.
        unit (`str`, *optional*, defaults to `"epochs"`):
            Unit of `interval`: `"epochs"` or `"validations"`. With epochs, evolution happens at the end of the next
            validation run.
        seed (`int`, *optional*): Seed of evolution; the population's if unset. Decisions are a function of it, the
            optimizer step and the metric.
        lineage_file (`str`, *optional*): File of JSON lines to which every event is also appended.
        evolution (*optional*):
            Other settings of [`EvolutionSettings`]: `fraction`, `operators`, `mutate_learning_rate` and so on.
            `min_age` and `max_age` count optimizer steps.

    Attributes:
        lineage ([`Lineage`]): All events so far.

    Raises:
        ValueError: If a value is out of range or unknown; at the start of training, if the module is not a
            [`PopulationModule`], its roles cannot evolve, there is no validation, the strategy or a scheduler does not
            allow evolution, or the file has another run's lineage; at the first validation, which Lightning's sanity
            check runs before training, if a member's metric has not been logged; at the validation after a
            replacement, if that of the child has not.
    """

    def __init__(
        self,
        metric: str,
        *,
        mode: str = "min",
        interval: int = 1,
        unit: str = "epochs",
        seed: int | None = None,
        lineage_file: str | os.PathLike | None = None,
        **evolution: Any,
    ) -> None:
        if not isinstance(metric, str) or not metric:
            raise ValueError(f"metric is the name of a logged metric, such as 'val_loss', got {metric!r}.")
        if mode not in MODES:
            raise ValueError(
                f"mode must be 'min' if a smaller {metric} is better, or 'max' if a larger one is, got {mode!r}."
            )
        if unit not in UNITS:
            raise ValueError(f"unit is one of {UNITS}, got {unit!r}.")
        self.metric, self.mode, self.unit, self.seed = metric, mode, unit, seed
        self.settings = EvolutionSettings(interval=interval, **evolution)
        self.lineage_file = lineage_file
        self.lineage = Lineage()
        self._resumed = False
        self._start_counting()

    def _start_counting(self) -> None:
        self._validations = 0
        self._validated = -1  # batch at which the last validation ran
        self._last = 0  # epochs or validations at the last evolution step
        self._step = 0  # optimizer steps at the last evolution step
        self._number = 0  # evolution steps so far
        self._replaced: list[str] = []  # members that were replaced since the last batch of training
        self._inherited: dict[str, Tensor] = {}  # by child: what is logged of its predecessor

    # Checks ----------------------------------------------------------------------------------------------------

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if not isinstance(pl_module, PopulationModule):
            raise ValueError(f"EvolutionCallback needs a PopulationModule, got {type(pl_module).__name__}.")
        if (method := getattr(trainer.strategy, "_start_method", "popen")) != "popen":
            raise ValueError(
                f"The strategy starts its processes by {method!r}, as ddp_spawn, ddp_fork and ddp_notebook do: the "
                "lineage would be lost with them. Use strategy='ddp'."
            )
        population = pl_module.population
        sizes = [len(population.names(role)) for role in dict.fromkeys(m.role for m in population.values())]
        if max(sizes) < 2:
            raise ValueError(
                f"No member can be replaced among {list(population)}: evolution needs at least two members of a role."
            )
        self.settings.check_sizes(*(size for size in sizes if size > 1))
        self.settings.try_on(list(population.routing.layers))
        if self.settings.mutate_temperature:
            population.routing.check_head()
        tables = trainer.strategy.broadcast([member.to_json() for member in population.values()])
        if tables != [member.to_json() for member in population.values()]:
            raise ValueError("The processes hold different populations. Build it with the same arguments in each.")

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if not trainer.enable_validation:
            raise ValueError(f"Without validation there is no {self.metric} to evolve by: give val_dataloaders.")
        if self.settings.mutate_learning_rate:
            assert isinstance(pl_module, PopulationModule)
            groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
            named = {group.get("name") for group in groups if "initial_lr" in group}
            if missing := [name for name in pl_module.population if name not in named]:
                raise ValueError(
                    "mutate_learning_rate needs a group of parameters in an optimizer for each member, with its "
                    f"'name' and 'initial_lr': there is none for {', '.join(missing)}. Leave configure_optimizers "
                    "out, or make the groups as that of PopulationModule does."
                )
            for scheduler in (own for optimizer in trainer.optimizers for own in schedulers_of(trainer, optimizer)):
                if hasattr(scheduler, "max_lrs") or any("max_lr" in group for group in groups):
                    raise ValueError(
                        f"mutate_learning_rate does not work with {type(scheduler).__name__}, which computes learning "
                        "rates from a max_lr of its own. Use schedule=... of PopulationModule or another scheduler."
                    )
        resumed, self._resumed = self._resumed, False
        if not resumed and trainer.global_step == 0:  # another run by the same callback counts anew
            self._start_counting()
        if self.lineage_file is None or self.lineage.path is not None or not trainer.is_global_zero:
            return
        events, written = self.lineage.events, Lineage(self.lineage_file).events
        if written and not (resumed and _same_run(events, written)):
            raise ValueError(f"{self.lineage_file} holds the lineage of another run. Remove it or name another.")
        with suppress(FileNotFoundError):
            os.remove(self.lineage_file)  # what the checkpoint remembers is written again
        self.lineage = Lineage(self.lineage_file)
        self.lineage.extend(events)

    def on_sanity_check_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Refuses a metric that is not logged, before the first epoch."""
        assert isinstance(pl_module, PopulationModule)
        if not any(f"{self.metric}/{name}" in trainer.callback_metrics for name in pl_module.population):
            self._values(trainer, pl_module.population)

    # Evolution -------------------------------------------------------------------------------------------------

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Remembers what is logged of members that were replaced, so that it is not taken for the children's."""
        replaced, self._replaced = self._replaced, []
        for name in replaced:
            if (value := trainer.callback_metrics.get(f"{self.metric}/{name}")) is not None:  # none after a new `fit`
                self._inherited[name] = value

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if trainer.fit_loop.total_batch_idx == self._validated:
            return  # a run that goes on from a checkpoint of this validation finishes it once more
        assert isinstance(pl_module, PopulationModule)
        self._validated = trainer.fit_loop.total_batch_idx
        self._validations += 1
        values = self._values(trainer, pl_module.population)
        clock = self._validations if self.unit == "validations" else _epochs(trainer)
        if clock - self._last < self.settings.interval or trainer.global_step <= self._step:
            return
        self._last, self._step = clock, trainer.global_step
        if _is_over(trainer):
            return
        self._number += 1
        events = self._evolve(pl_module, values, step=trainer.global_step)
        for event in events:
            pl_module.start_over(event.slot)
            if trainer.world_size > 1:
                for parameter in pl_module.population.parameters(event.slot):
                    torch.distributed.broadcast(parameter.data, src=0)
            parents = ", ".join(f"{name}@{version}" for name, version in event.parents)
            logger.info("step %d: %s is now %s of %s", event.step, event.slot, event.operator, parents)
        self._replaced = [event.slot for event in events]
        self.lineage.extend(events)
        versions = {f"version/{name}": float(member.version) for name, member in pl_module.population.items()}
        for destination in trainer.loggers:
            destination.log_metrics({"evolution/replaced": float(len(events)), **versions}, step=trainer.global_step)

    def _values(self, trainer: lightning.Trainer, population: Population) -> dict[str, float]:
        """Latest value of the metric of each member, the same on every rank."""
        logged = trainer.callback_metrics
        missing = [name for name in population if f"{self.metric}/{name}" not in logged]
        if missing:
            known = sorted({key.rpartition("/")[0] for key in logged if key.rpartition("/")[2] in population})
            raise ValueError(
                f"No {self.metric}/{missing[0]} has been logged in validation. Metrics logged by member: {known}. "
                "Name one of them as metric, and make sure that every member has rows in the validation data."
            )
        for name, value in self._inherited.items():
            if logged[f"{self.metric}/{name}"] is value:
                raise ValueError(
                    f"{name} has been replaced, and no {self.metric}/{name} has been logged in validation since. Make "
                    "sure that every member has rows in every validation."
                )
        self._inherited = {}
        return trainer.strategy.broadcast({name: float(logged[f"{self.metric}/{name}"]) for name in population})

    def _evolve(self, module: PopulationModule, values: dict[str, float], *, step: int) -> list[EvolutionEvent]:
        ratings = _MetricRatings(values, less_is_better=self.mode == "min")
        seed = module.population.seed if self.seed is None else self.seed
        rng = torch.Generator().manual_seed(zlib.crc32(f"{seed}:evolve:{step}".encode()))
        diverged = [name for name, value in values.items() if not math.isfinite(value)]
        if diverged:
            rank_zero_warn(f"{self.metric} of {', '.join(diverged)} is not finite at step {step}.")
        try:
            return evolve(module.population, ratings, settings=self.settings, step=step, rng=rng, number=self._number)
        except NotFiniteError as error:
            rank_zero_warn(f"Nobody was replaced at step {step}: {error}")
            return []

    # Checkpoints -----------------------------------------------------------------------------------------------

    def on_save_checkpoint(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        loop, fetcher = trainer.fit_loop.epoch_loop, trainer.fit_loop._data_fetcher
        if not trainer.training or fetcher is None or self._validated == trainer.fit_loop.total_batch_idx:
            return
        if loop._should_check_val_fx(fetcher):
            rank_zero_warn(
                f"The checkpoint of step {trainer.global_step} is written before the validation that is due there. "
                "If you resume from it, Lightning skips that validation, and evolution is skipped, too. Save after "
                "validation (ModelCheckpoint with every_n_epochs or monitor), or at other steps."
            )

    def state_dict(self) -> dict[str, Any]:
        return {
            "validations": self._validations,
            "validated": self._validated,
            "last": self._last,
            "step": self._step,
            "number": self._number,
            "lineage": [event.to_json() for event in self.lineage],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for key in ("validations", "validated", "last", "step", "number"):
            setattr(self, f"_{key}", state_dict[key])
        self.lineage = Lineage()
        self.lineage.extend([EvolutionEvent.from_json(event) for event in state_dict["lineage"]])
        self._resumed = True


class _MetricRatings:
    """Replaces the `Ratings` of self-play: fitness of each member from a metric, higher is better."""

    def __init__(self, values: dict[str, float], *, less_is_better: bool) -> None:
        sign = -1.0 if less_is_better else 1.0
        self._fitness = {name: sign * value if math.isfinite(value) else -math.inf for name, value in values.items()}

    def fitness(self, name: str) -> float:
        return self._fitness[name]

    def __getitem__(self, name: str) -> Rating:
        return Rating(self._fitness[name], 0.0)

    def inherit(self, child: str, parents: Sequence[str], *, begin: bool = True) -> Rating:
        """The mean of the parents, only for the record: the next validation measures the child itself."""
        self._fitness[child] = fmean(self._fitness[parent] for parent in parents)
        return self[child]


def _epochs(trainer: lightning.Trainer) -> int:
    """Epochs whose last batch has been trained on."""
    return trainer.current_epoch + trainer.is_last_batch


def _is_over(trainer: lightning.Trainer) -> bool:
    """Whether training ends after this validation, as Lightning's loops will decide it."""
    epochs, steps, loop = _epochs(trainer), trainer.global_step, trainer.fit_loop
    if 0 < loop.max_steps <= steps or 0 < (loop.max_epochs or 0) <= epochs:
        return True
    return trainer.should_stop and epochs >= (loop.min_epochs or 0) and steps >= (loop.min_steps or 0)


def _same_run(one: Sequence[EvolutionEvent], other: Sequence[EvolutionEvent]) -> bool:
    """Whether the longer record goes on from the shorter one. A run that is resumed has fewer events than its file, or
    more, if that was of another machine."""
    return all(json.dumps(a.to_json()) == json.dumps(b.to_json()) for a, b in zip(one, other))
