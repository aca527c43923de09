"""The files of a run that a repository has. No other file is ever uploaded.

Not included are tables of rounds (a separate dataset), optimizer and random states (part of checkpoints, which are
uploaded only on request), pickles, and other files in the folder.
"""

import json
import os
from collections.abc import Mapping

from safetensors import safe_open

from ..reporting.model_card import pictures_of, shown_evaluation
from ..run_files.checkpoint import files_of, whole_checkpoints
from ..run_files.files import damage_told, read_json
from ..run_files.layout import (
    ADAPTER_CONFIG_FILE,
    ADAPTER_FILE,
    CHAT_TEMPLATE_FILE,
    EVALUATION_FILE,
    EVALUATION_FOLDER,
    HISTORY_FILE,
    LINEAGE_FILE,
    POPULATION_FILE,
    PROBES_FILE,
    PROBES_FOLDER,
    ROUNDS_FOLDER,
    RUN_FILE,
    STATE_FILE,
    TABLE_SUFFIX,
)
from ..run_files.run import Run, read_record
from .client import Contents


TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
    *("special_tokens_map.json", "added_tokens.json", CHAT_TEMPLATE_FILE, "chat_template.json", "merges.txt"),
    *("vocab.json", "vocab.txt", "processor_config.json", "preprocessor_config.json"),
)
STATE_FILES = (POPULATION_FILE, STATE_FILE)
RECORD_FILES = (RUN_FILE, HISTORY_FILE, PROBES_FILE, LINEAGE_FILE)
SCORES = f"{EVALUATION_FOLDER}/{EVALUATION_FILE}"
OF_A_RUN = frozenset((*STATE_FILES, *RECORD_FILES, SCORES))
"""Files that commands read as those of the population beside them: of another one, they would be wrong."""


def population_contents(run: Run) -> Contents:
    """One folder per member, the table and state of the population, its record and pictures, without the card."""
    contents: dict[str, str | bytes] = {}
    for member in run.members:
        contents |= {f"{member}/{name}": content for name, content in adapter_contents(run, member).items()}
    for folder, names in ((run.folder, STATE_FILES), (run.record, RECORD_FILES)):
        contents |= {name: _read(folder, name) for name in names if os.path.isfile(os.path.join(folder, name))}
    if RUN_FILE in contents and read_record(run.record).get("model") != run.base:  # others find the base by it
        record = read_json(os.path.join(run.record, RUN_FILE), missing="")
        contents[RUN_FILE] = _json({**record, "model": run.base, "model_on_hub": run.hub_base is not None})
    if run.record == run.folder and shown_evaluation(run.record):  # else it is of other weights
        scores = read_json(os.path.join(run.record, SCORES), missing="")
        runs = {label: os.path.basename(os.path.abspath(path)) for label, path in scores.get("runs", {}).items()}
        contents[SCORES] = _json({**scores, "runs": runs})  # others need no path of ours
    for picture in pictures_of(run.record):
        contents[picture] = _read(run.record, picture)
    return {**contents, **tokenizer_contents(run)}


def member_contents(run: Run, member: str, *, base: str | None = None) -> Contents:
    """One adapter and the tokenizer at the root, without the card. `base` as in [`adapter_contents`]."""
    return {**adapter_contents(run, member, base=base), **tokenizer_contents(run)}


def adapter_contents(run: Run, member: str, *, base: str | None = None) -> Contents:
    """The two files of a member's PEFT folder. The base is named by `base`, or by its Hub id, or has no name.

    Raises:
        ValueError: If one is missing or damaged.
    """
    folder = os.path.join(run.folder, member)
    config = read_json(os.path.join(folder, ADAPTER_CONFIG_FILE), missing="the member's adapter is incomplete.")
    weights = os.path.join(folder, ADAPTER_FILE)
    if not os.path.isfile(weights):
        raise ValueError(f"{folder} holds no {ADAPTER_FILE}: the member's adapter is incomplete.")
    check_weights(weights)
    config["base_model_name_or_path"] = base or run.hub_base
    if run.revision:
        config["revision"] = run.revision
    return {ADAPTER_CONFIG_FILE: _json(config), ADAPTER_FILE: weights}


def check_weights(path: str) -> None:
    """Raises `ValueError` if a file of weights is damaged. It reads only its table."""
    with damage_told(path), safe_open(path, framework="pt") as file:
        file.keys()


def check_table(path: str) -> None:
    """Raises `ValueError` if a Parquet table is damaged. It reads only its metadata."""
    import pyarrow.parquet

    try:
        pyarrow.parquet.read_metadata(path)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is damaged: {error} Remove it, or copy it again.") from None


def tokenizer_contents(run: Run) -> Contents:
    """The tokenizer with its chat template, as saved beside the members."""
    return {name: _read(run.folder, name) for name in _listed(run.folder) if name in TOKENIZER_FILES}


def checkpoint_contents(folder: str, place: str) -> Contents:
    """All files of a complete checkpoint, in the folder `place`; nothing else that is in its folder."""
    return {f"{place}/{name}": os.path.join(folder, name) for name in files_of(folder)}


def newest_checkpoint(run: Run) -> str:
    """The newest complete checkpoint of a run; of a checkpoint, this one.

    Raises:
        ValueError: If there is none.
    """
    found = whole_checkpoints(run.record) if run.record == run.folder else [run.folder]
    if not found:
        raise ValueError(
            f"{run.record} holds no complete checkpoint. Push without --checkpoint, or save checkpoints with "
            f"save_steps."
        )
    return found[-1]


def table_contents(folder: str) -> Mapping[str, list[str]]:
    """Tables of a run's record: folder of tables -> their paths in order.

    Raises:
        ValueError: If there is none, or one is damaged.
    """
    if not os.path.isdir(folder):
        raise ValueError(f"{folder}: there is no such folder.")
    found = {}
    for name in (ROUNDS_FOLDER, PROBES_FOLDER):
        place = os.path.join(folder, name)
        tables = [os.path.join(place, one) for one in _listed(place) if one.endswith(TABLE_SUFFIX)]
        found |= {name: tables} if tables else {}
        for table in tables:
            check_table(table)
    if not found:
        raise ValueError(f"{folder} holds no tables of rounds.")
    return found


def _listed(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def _json(data: Mapping) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()


def _read(folder: str, name: str) -> bytes:
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()
