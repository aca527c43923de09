"""What a checkpoint holds beside adapters and TRL's own state: ratings, buffers and lineage; and by which fingerprint
its base model is known.

Rounds draw their random numbers from (seed, round), so no generator state has to be kept.
"""

import os
import zlib

from torch import nn
from torch.distributed.tensor import DTensor

from ..evolution import EvolutionEvent, Lineage
from ..run_files.files import read_json, write_json
from ..run_files.layout import STATE_FILE


def save_state(trainer, folder: str) -> None:
    """Write the state of the game into a checkpoint or output folder, whole or not at all."""
    state = {
        "step": trainer.state.global_step,
        "source": trainer.source.state_dict(),
        "guard": trainer.guard.state_dict(),
        "lineage": [event.to_json() for event in trainer.lineage],
    }
    write_json(os.path.join(folder, STATE_FILE), state, indent=None)
    trainer.source.save(folder)


def read_state(folder: str) -> dict:
    """What [`save_state`] wrote.

    Raises:
        ValueError: If the folder has no such state.
    """
    return read_json(
        os.path.join(folder, STATE_FILE), missing="it is not a whole checkpoint. Resume from an earlier one."
    )


def load_state(trainer, state: dict) -> None:
    """Restore what [`read_state`] read, weights being loaded already, and rewind the run's files to that step."""
    trainer.source.load_state_dict(state["source"])
    trainer.guard.load_state_dict(state["guard"])
    trainer.lineage = Lineage()
    trainer.lineage.extend([EvolutionEvent.from_json(event) for event in state["lineage"]])
    if trainer.accelerator.is_main_process:
        trainer.folder.rewind(state["step"], state["step"] // trainer.num_iterations, state["lineage"])


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
