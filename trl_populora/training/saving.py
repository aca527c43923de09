"""Writes adapters, state, and the trainer's part of a checkpoint, completely or not at all.

The trainer's overrides of Trainer's `_save*` call these functions. `run_files` writes the files. `resuming.py` reads
them.
"""

import copy
import os
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from ..run_files.checkpoint import write_checkpoint
from ..run_files.files import write_file, write_files, write_json
from ..run_files.layout import STAGING_FOLDER, STATE_FILE, TRAINING_ARGS_FILE
from ..run_files.secrets import without_secrets


if TYPE_CHECKING:
    from .trainer import PopulationSelfPlayTrainer


def about_run(trainer: "PopulationSelfPlayTrainer") -> dict[str, Any]:
    """Values that a checkpoint and the run that resumes from it must share; see [`check_origin`]."""
    return {
        "base": fingerprint(trainer.population.base_model),
        "fixed": trainer.args.fixed_settings | {"row_source": type(trainer.source).__name__},
    }


def save_run(trainer: "PopulationSelfPlayTrainer", folder: str) -> None:
    """Writes adapters, state, tokenizer and settings into a folder.

    Rounds draw their random numbers from (seed, round), so no generator state has to be stored.
    """
    trainer.population.save(folder)
    state = {
        "step": trainer.state.global_step,
        "ratings": trainer.source.ratings.state_dict(),
        "source": trainer.source.state_dict(),
        "guard": trainer.guard.state_dict(),
        "probes": trainer.probes.state_dict(),
        "lineage": [event.to_json() for event in trainer.lineage],
    }
    write_json(os.path.join(folder, STATE_FILE), state, indent=None)
    trainer.source.save(folder)
    trainer.probes.save(folder)
    write_files(folder, trainer.processing_class.save_pretrained)
    told = copy.copy(trainer.args)  # checkpoints are shared: without the token, and others in mappings
    vars(told).update(without_secrets(vars(told) | {"hub_token": None}))
    write_file(os.path.join(folder, TRAINING_ARGS_FILE), lambda aside: torch.save(told, aside))


def save_checkpoint(trainer: "PopulationSelfPlayTrainer", write: Callable[[], None]) -> bool:
    """Writes `checkpoint-<step>` aside, adds its manifest and moves it into place; returns whether this succeeded.

    Args:
        trainer ([`PopulationSelfPlayTrainer`]): Its `_get_output_dir` returns the temporary folder meanwhile.
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


def fingerprint(base_model: nn.Module) -> str:
    """Checksum of a base model's shapes and of the first values of each frozen tensor."""
    total = 0
    for name, parameter in base_model.named_parameters():
        if "lora_" not in name:
            whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            head = whole.detach().reshape(-1)[:256].to("cpu", copy=True).contiguous()
            values = head.float().numpy().tobytes()
            total = zlib.crc32(f"{name}:{tuple(parameter.shape)}".encode() + values, total)
    return f"{total:08x}"
