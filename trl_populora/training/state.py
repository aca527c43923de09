"""What a checkpoint holds beside adapters and TRL's own state: ratings, buffers and lineage, in `self_play.json`, and
the champions in `hall_of_fame/`.

Rounds draw their random numbers from (seed, round), so no generator state has to be kept.
"""

import json
import os

from ..evolution import EvolutionEvent, Lineage


STATE_FILE = "self_play.json"
HALL_FOLDER = "hall_of_fame"


def save_state(trainer, folder: str) -> None:
    """Write the state of the game into a checkpoint or output folder, whole or not at all."""
    state = {
        "step": trainer.state.global_step,
        "source": trainer.source.state_dict(),
        "guard": trainer.guard.state_dict(),
        "lineage": [event.to_json() for event in trainer.lineage],
    }
    path = os.path.join(folder, STATE_FILE)
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)
    trainer.source.save(folder)


def read_state(folder: str) -> dict:
    """What [`save_state`] wrote.

    Raises:
        ValueError: If the folder has no such state.
    """
    path = os.path.join(folder, STATE_FILE)
    if not os.path.isfile(path):
        raise ValueError(f"{folder} lacks {STATE_FILE}: it is not a whole checkpoint. Resume from an earlier one.")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def load_state(trainer, state: dict) -> None:
    """Restore what [`read_state`] read, weights being loaded already, and rewind the run's files to that step."""
    trainer.source.load_state_dict(state["source"])
    trainer.guard.load_state_dict(state["guard"])
    trainer.lineage = Lineage()
    trainer.lineage.extend([EvolutionEvent.from_json(event) for event in state["lineage"]])
    if trainer.accelerator.is_main_process:
        trainer.folder.rewind(state["step"], state["step"] // trainer.num_iterations, list(trainer.lineage))
