"""Reads the files of a run when it resumes, with the same or another number of members.

The trainer's overrides of Trainer's `_load*` call these functions.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerState
from transformers.utils import logging

from ..evolution import EvolutionEvent, Lineage, Offspring, tell
from ..population import Member, Population
from ..run_files.files import read_json
from ..run_files.layout import OPTIMIZER_FILE, SCHEDULER_FILE, STATE_FILE, TRAINER_STATE_FILE
from ..run_files.run import read_table


if TYPE_CHECKING:
    from .trainer import PopulationSelfPlayTrainer

logger = logging.get_logger(__name__)


def check_adapters(trainer: "PopulationSelfPlayTrainer", checkpoint: str) -> None:
    """Checks that the adapters of a checkpoint fit the population.

    Raises:
        ValueError: If rank, scaling or modules differ, or, without `resize_on_resume`, the members.
    """
    population, names = trainer.population, None
    if trainer.args.resize_on_resume:
        names = [row["id"] for row in read_table(checkpoint)["members"] if row["id"] in population]
    population.check_saved(checkpoint, names=names)


def load_run(trainer: "PopulationSelfPlayTrainer", checkpoint: str) -> None:
    """Restores population, state of the game and record; with `resize_on_resume`, also for another number of members.

    Raises:
        ValueError: If the checkpoint has no state, or the state of other members.
    """
    path = os.path.join(checkpoint, STATE_FILE)
    state = read_json(path, missing="it is not a complete checkpoint. Resume from an earlier one.")
    if trainer.args.resize_on_resume:
        adopt(trainer, checkpoint, state)
    else:
        trainer.population.load(checkpoint)
        load_state(trainer, state)
    trainer.source.load(checkpoint)
    trainer.probes.load(checkpoint, state.get("probes", {}))
    trainer.has_trained = True  # its members, at least, also if this is of the last step and no training follows


def load_finished(trainer: "PopulationSelfPlayTrainer", checkpoint: str) -> bool:
    """Restores a checkpoint if it is of the last step; returns whether it was. (Trainer would train one more step.)

    Raises:
        ValueError: If it is another run's. Nothing would be trained, and its weights would lie beside no record.
    """
    state = TrainerState.load_from_json(os.path.join(checkpoint, TRAINER_STATE_FILE))
    wanted = trainer.args.max_steps
    if wanted <= 0:  # counted in epochs
        wanted = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())[-1]
    if state.global_step < wanted:
        return False
    if trainer.folder.is_anothers:
        raise ValueError(
            f"{checkpoint} is another run's, at step {state.global_step}, and this run ends at step {wanted}: nothing "
            "is left to train. Raise max_steps (or num_train_epochs), or resume from a checkpoint of "
            f"{trainer.args.output_dir}."
        )
    load_run(trainer, checkpoint)
    trainer.state = state
    cut_back(trainer)
    if trainer.accelerator.is_main_process:
        step = state.global_step
        logger.warning(f"Nothing to do: {checkpoint} is already at step {step}, and the run ends at step {wanted}.")
    return True


def load_state(trainer: "PopulationSelfPlayTrainer", state: dict) -> None:
    """Restores the state of a checkpoint whose weights are already loaded."""
    trainer.source.ratings.load_state_dict(state["ratings"])
    trainer.source.load_state_dict(state["source"])
    trainer.guard.load_state_dict(state["guard"])
    trainer.lineage = Lineage()
    trainer.lineage.extend([EvolutionEvent.from_json(event) for event in state["lineage"]])


def cut_back(trainer: "PopulationSelfPlayTrainer") -> None:
    """Removes what the run has left after the step of its checkpoint. Call it when nothing can be refused any more."""
    if trainer.accelerator.is_main_process:
        step, lineage = trainer.state.global_step, [event.to_json() for event in trainer.lineage]
        trainer.folder.rewind(step, step // trainer.num_iterations, lineage)


def adopt(trainer: "PopulationSelfPlayTrainer", checkpoint: str, state: dict) -> None:
    """Loads a checkpoint of a population with another number of members.

    Members that exist in both continue. A new member starts as a copy of an old member of its role, with the rating
    and lineage event of a child. (New slot `i` copies slot `i` modulo the old number.) It has the temperature of that
    member and, if learning rates mutate, its learning rate. Other members are left behind.
    In self-play, ratings and games of the remaining members do not change, and no new rating interval begins. Our
    choice.

    Raises:
        ValueError: If the checkpoint has no member of a required role.
    """
    population: Population = trainer.population
    old = {row["id"]: Member.from_json(row) for row in read_table(checkpoint)["members"]}
    kept = [name for name in population if name in old]
    population.load(checkpoint, names=kept)
    load_state(trainer, {**state, "ratings": _resized(trainer.source.ratings.state_dict(), state["ratings"])})
    mutates = trainer.args.evolution is not None and trainer.args.evolution.mutate_learning_rate
    children = []
    for name, member in population.items():
        parents = [other for other in kept if old[other].role == member.role]
        if name not in kept:
            if not parents:
                raise ValueError(f"{checkpoint} has no {member.role}, so {name} has no member to copy.")
            earlier = [event.version for event in trainer.lineage if event.slot == name]  # of a larger population
            population.restore(replace(member, version=max(earlier, default=0)))
            parent = population[parents[member.slot % len(parents)]]
            children.append(_copy_of(population, parent, name, with_rate=mutates))
    trainer.lineage.extend(tell(population, trainer.ratings, children, step=state["step"], begin=False))
    trainer.guard.load_state_dict({"strikes": {n: k for n, k in state["guard"]["strikes"].items() if n in kept}})


def adopt_optimizer(optimizer: Optimizer, scheduler: LambdaLR, checkpoint: str) -> None:
    """Loads optimizer and schedule of a population of another size: only the moments of members that continue."""
    saved, schedule = (
        torch.load(os.path.join(checkpoint, name), map_location="cpu", weights_only=True)
        for name in (OPTIMIZER_FILE, SCHEDULER_FILE)
    )
    old = {group["member"]: i for i, group in enumerate(saved["param_groups"])}
    now = optimizer.state_dict()
    for i, group in enumerate(now["param_groups"]):
        if group["member"] not in old:
            continue
        before = saved["param_groups"][old[group["member"]]]
        for place, former in zip(group["params"], before["params"], strict=True):
            if former in saved["state"]:
                now["state"][place] = saved["state"][former]
        now["param_groups"][i] = {**before, "params": group["params"]}
    optimizer.load_state_dict(now)
    scheduler.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
    scheduler.last_epoch = schedule["last_epoch"]
    scheduler._step_count = schedule["_step_count"]
    rates = [base * factor(scheduler.last_epoch) for base, factor in zip(scheduler.base_lrs, scheduler.lr_lambdas)]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    scheduler._last_lr = rates


def _copy_of(population: Population, parent: Member, name: str, *, with_rate: bool) -> Offspring:
    return Offspring(
        slot=name,
        operator="clone",
        parameters={"seed": 0},
        parents=((parent.id, parent.version),),
        factors=population.factors(parent.id),
        fitness={},
        kind="join",
        learning_rate=parent.learning_rate if with_rate else None,
        temperature=parent.temperature,
    )


def _resized(ratings: dict, before: dict) -> dict:
    """Saved ratings of members that continue, and the prior for new members."""
    if "games" not in ratings:
        return {"rewards": {name: before["rewards"].get(name, []) for name in ratings["rewards"]}}
    for name in ratings["ratings"]:
        if name in before["ratings"]:
            ratings["ratings"][name] = before["ratings"][name]
        if name in before["proposals"]:
            ratings["proposals"][name] = before["proposals"][name]
    for table in ("games", "wins", "forfeits"):
        ratings[table] = _kept(before[table], before, ratings)
    ratings["recent"] = [_kept(table, before, ratings) for table in before["recent"]]
    for name in ("types", "correlations", "validity"):
        ratings[name] = before[name]
    return ratings


def _kept(table: Sequence[Sequence[float]], before: dict, now: dict) -> list[list[float]]:
    """A table of teachers x students with the entries of pairs of which both existed before, and 0 for the others."""
    old = {(t, s): n for t, row in zip(before["teachers"], table) for s, n in zip(before["students"], row)}
    return [[old.get((teacher, student), 0) for student in now["students"]] for teacher in now["teachers"]]
