"""What a checkpoint holds beside adapters and TRL's own state: ratings, buffers and lineage, in `self_play.json`.

Rounds draw their random numbers from (seed, round), so no generator state has to be kept.
"""

import json
import os

from ..evolution import EvolutionEvent, Lineage


STATE_FILE = "self_play.json"


def save_state(trainer, folder: str) -> None:
    """Write the self-play state into a checkpoint or output folder, whole or not at all."""
    state = {
        "step": trainer.state.global_step,
        "ratings": trainer.ratings.state_dict(),
        "buffer": trainer.buffer.state_dict(),
        "observer": trainer.observer.state_dict(),
        "lineage": [event.to_json() for event in trainer.lineage],
    }
    path = os.path.join(folder, STATE_FILE)
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def load_state(trainer, folder: str) -> None:
    """Restore what [`save_state`] wrote, and rewind the run's files to that step.

    Raises:
        ValueError: If the folder has no self-play state.
    """
    path = os.path.join(folder, STATE_FILE)
    if not os.path.isfile(path):
        raise ValueError(f"{folder} lacks {STATE_FILE}: it is not a whole checkpoint. Resume from an earlier one.")
    with open(path, encoding="utf-8") as file:
        state = json.load(file)
    trainer.ratings.load_state_dict(state["ratings"])
    trainer.buffer.load_state_dict(state["buffer"])
    trainer.observer.load_state_dict(state["observer"])
    trainer.lineage = Lineage()
    trainer.lineage.extend([EvolutionEvent.from_json(event) for event in state["lineage"]])
    if trainer.accelerator.is_main_process:
        trainer.folder.rewind(state["step"] // trainer.num_iterations, list(trainer.lineage))
