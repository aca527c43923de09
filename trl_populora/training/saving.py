"""What a population's trainer writes and reads of a run: its part of a checkpoint, whole or not at all, and resuming.

The trainer's overrides of Trainer's `_save*` and `_load*` call these; how files are written is `run_files`'.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerState
from transformers.utils import logging

from ..run_files.checkpoint import WRITE_ERRORS, write_checkpoint
from ..run_files.files import write_file, write_files
from ..run_files.layout import STAGING_FOLDER, TRAINER_STATE_FILE, TRAINING_ARGS_FILE
from .resize import adopt
from .state import fingerprint, load_state, read_state, save_state


if TYPE_CHECKING:
    from .trainer import PopulationSelfPlayTrainer


logger = logging.get_logger(__name__)


def about_run(trainer: "PopulationSelfPlayTrainer") -> dict[str, Any]:
    """What a checkpoint and the run that resumes from it must have in common; see [`check_origin`]."""
    return {
        "base": fingerprint(trainer.population.base_model),
        "fixed": trainer.args.fixed_settings | {"row_source": type(trainer.source).__name__},
    }


def save_run(trainer: "PopulationSelfPlayTrainer", folder: str) -> None:
    """Writes adapters, state of the game, tokenizer and settings into a folder."""
    trainer.population.save(folder)
    save_state(trainer, folder)
    write_files(folder, trainer.processing_class.save_pretrained)
    write_file(os.path.join(folder, TRAINING_ARGS_FILE), lambda aside: torch.save(trainer.args, aside))


def save_checkpoint(trainer: "PopulationSelfPlayTrainer", write: Callable[[], None]) -> bool:
    """Writes `checkpoint-<step>` aside, seals it and moves it into place; returns whether that went well.

    Args:
        trainer ([`PopulationSelfPlayTrainer`]): Its `_get_output_dir` says meanwhile where to write.
        write (`Callable`): Trainer's own way of writing this process' files.
    """

    def write_and_flush() -> None:
        write()
        trainer.folder.flush()

    trainer.guard.remember()
    trainer.staging = os.path.join(trainer.args.output_dir, STAGING_FOLDER)
    try:
        return write_checkpoint(
            write_and_flush,
            output_dir=trainer.args.output_dir,
            step=trainer.state.global_step,
            is_main=trainer.ranks.is_main,
            problems=trainer.ranks.problems,
            about=about_run(trainer) | {"processes": trainer.accelerator.num_processes},
            save_total_limit=trainer.args.save_total_limit,
        )
    finally:
        trainer.staging = None


def save_for_upload(trainer: "PopulationSelfPlayTrainer") -> bool:
    """Writes the newest adapters to where Trainer's upload of a checkpoint takes them from; returns whether it can."""
    if trainer.staging is not None:  # the checkpoint is not whole yet
        return False
    if trainer.args.hub_strategy == "end":
        return True
    try:
        trainer._save(trainer.args.output_dir)
    except WRITE_ERRORS as error:
        logger.warning(f"Nothing is uploaded from {trainer.args.output_dir}: {error}.")
        return False
    return True


def load_run(trainer: "PopulationSelfPlayTrainer", checkpoint: str) -> None:
    """Restores population, game and record; with `resize_on_resume`, of another number of members."""
    state = read_state(checkpoint)
    if trainer.args.resize_on_resume:
        adopt(trainer, checkpoint, state)
    else:
        trainer.population.load(checkpoint)
        load_state(trainer, state)
    trainer.source.load(checkpoint)


def load_finished(trainer: "PopulationSelfPlayTrainer", checkpoint: str) -> bool:
    """Restores a checkpoint, if it is of the last step: nothing is left to train, and Trainer would go one step on."""
    state = TrainerState.load_from_json(os.path.join(checkpoint, TRAINER_STATE_FILE))
    if state.global_step < (trainer.args.max_steps if trainer.args.max_steps > 0 else state.max_steps):
        return False
    load_run(trainer, checkpoint)
    trainer.state = state
    return True
