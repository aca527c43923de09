"""Reads the results of `populora evaluate` in a run's folder, if they are about the weights that are there."""

import os
from typing import Any

from ..run_files.layout import EVALUATION_FILE, EVALUATION_FOLDER
from ..run_files.run import BASE, adapter_fingerprint, read_scores


def read_evaluation(folder: str, *, archived: bool = True) -> dict[str, Any] | None:
    """Contents of `evaluation.json`; `None` if the run was not evaluated.

    Args:
        folder (`str`): Folder of the run.
        archived (`bool`, *optional*, defaults to `True`): Whether members may lack their adapters, as in a run
            that was archived without them.

    Raises:
        ValueError: If the file is damaged, or about weights other than those in the folder.
    """
    path = os.path.join(folder, EVALUATION_FOLDER, EVALUATION_FILE)
    record = read_scores(folder)
    if not record:
        return None
    evaluated = {name: value for name, value in record.get("weights", {}).items() if name != BASE}
    present = {name: adapter_fingerprint(folder, name) for name in evaluated}
    others = [name for name, value in evaluated.items() if present[name] != value and (present[name] or not archived)]
    if others:
        raise ValueError(
            f"{path} is about weights other than those in {folder} ({', '.join(others)}). `populora evaluate` scores "
            "the present ones."
        )
    return record
