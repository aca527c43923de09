"""Opens a run: the table of its members, its base model, its settings."""

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypedDict, cast, get_type_hints

from ..settings import describe, holds
from .checkpoint import newest_checkpoint
from .files import read_json
from .layout import (
    ADAPTER_CONFIG_FILE,
    ADAPTER_FILE,
    CHAT_TEMPLATE_FILE,
    EVALUATION_FILE,
    EVALUATION_FOLDER,
    HISTORY_FILE,
    POPULATION_FILE,
    RUN_FILE,
    STATE_FILE,
    begun_by_a_run,
    checkpoints,
)


TABLE_VERSION = 1
TINY = "tiny"
"""The base model that the repository brings, by the name that recipes give it."""
BASE = "base"
"""Name in results of the base without an adapter."""
AVERAGE = "average"
"""Name in results of the average of a run's students: one adapter, whose update is the mean of theirs."""
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
DATA_FILES = (".json", ".jsonl", ".parquet", ".csv")


def _all(kind: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


class RunRecord(TypedDict, total=False):
    """Entries of `run.json` that are read. All may be unset."""

    model: str
    revision: str
    model_on_hub: bool
    dataset: str
    dataset_on_hub: bool
    dataset_part: dict[str, Any]
    dataset_hash: dict[str, Any]
    warm_start: dict[str, Any]
    settings: dict[str, Any]
    other_settings: dict[str, Any]
    reward_funcs: list[str]
    sampler: dict[str, Any]
    quantization: dict[str, Any]
    lora: dict[str, Any]
    exams: dict[str, Any]
    processes: int
    process: dict[str, Any]
    isolation: str
    versions: dict[str, Any]
    hardware: dict[str, Any]
    git: dict[str, Any]
    resumed: list[dict[str, Any]]


SETTINGS = {
    **_all(int, "num_teachers num_students max_steps num_iterations evolution_interval seed seed_tasks"),
    **_all(int, "max_completion_length generation_rows num_references"),
    **_all(float, "temperature learning_rate teacher_learning_rate student_learning_rate learning_rate_spread"),
    **_all(str, "prompt_template prompt_style teacher_reward eval_strategy"),
    **_all(list[str], "task_types reserved_exams seed_families"),
    **_all(dict[str, Any], "executor_kwargs probe_kwargs task_kwargs"),
}
"""Entries of its `settings` that are read -> their types. All may be unset."""
OTHERS = {"chat_template_kwargs": dict[str, Any]}
"""The same for entries of its `other_settings`."""
SCORES = {"exams": list[dict[str, Any]], "weights": dict[str, str]}
"""The same for `evaluation.json`."""
EXAM = {"exam": str, "version": str, "scores": dict[str, dict], "decoding": dict[str, Any]}
"""The same for entries of its `exams`."""
TABLE = {"num_teachers": int, "num_students": int, "shared_member": bool}
"""The same for `population.json`, which has all of them."""
MEMBER = {"role": str, "version": int, "operator": str, "parents": list[str]}
"""The same for its members."""
CHANGE = {"step": int, "changed": dict[str, list]}
"""The same for entries of `resumed`."""


class Run(NamedTuple):
    """A run folder and its data.

    Attributes:
        folder (`str`): Path of the folder. base (`str`): Base model as named in the recipe.
        members (`tuple[str, ...]`): Adapter names, teachers first. settings (`Mapping`): Settings, by name.
        hub_base (`str`, *optional*): The base's id on the Hub; `None` if it was a local folder when the run began.
        revision (`str`, *optional*): The base's commit on the Hub; `None` if it is not recorded, or for another base.
    """

    folder: str
    base: str
    members: tuple[str, ...]
    settings: Mapping
    hub_base: str | None = None
    revision: str | None = None

    @property
    def record(self) -> str:
        """Folder of the run's record: this one, or for a checkpoint the one above."""
        places = (self.folder, os.path.dirname(os.path.abspath(self.folder)))
        names = (RUN_FILE, HISTORY_FILE)
        holds = [any(os.path.isfile(os.path.join(place, name)) for name in names) for place in places]
        return places[1] if holds == [False, True] else self.folder

    @property
    def step(self) -> int:
        """Training step of the saved state; 0 if there is none."""
        return _known(os.path.join(self.folder, STATE_FILE)).get("step", 0)

    def setting(self, name: str, default: Any) -> Any:
        """A setting of the run, or `default` if it is not recorded."""
        return self.settings.get(name, default)

    @property
    def chat_template_kwargs(self) -> Mapping:
        """Variables of the chat template."""
        record = read_record(self.record) if self.folder else {}
        return record.get("other_settings", {}).get("chat_template_kwargs") or {}

    @property
    def chat_template(self) -> str | None:
        """The chat template of the tokenizer that was saved with the members, which may be another than the base's;
        `None` if there is none, or if this is another base."""
        path = os.path.join(self.folder, CHAT_TEMPLATE_FILE)
        if not (self.folder and os.path.isfile(path) and read_record(self.record).get("model") == self.base):
            return None
        with open(path, encoding="utf-8") as file:
            return file.read()

    @property
    def source(self) -> Mapping:
        """State of the source of rows, with a buffer and task types where it is self-play; empty if there is none."""
        return _known(os.path.join(self.folder, STATE_FILE)).get("source", {})


def open_run(folder: str, *, base: str | None = None) -> Run:
    """Reads a run folder, or a checkpoint in one.

    Args:
        folder (`str`): Folder with `population.json`.
        base (`str`, *optional*): Base model to use instead of the recorded one.

    Raises:
        ValueError: If it is not a population, or its base model is not recorded.
    """
    members = tuple(row["id"] for row in read_table(folder)["members"])
    above = os.path.dirname(os.path.abspath(folder))
    record = read_record(folder) or read_record(above)
    adapter = _known(os.path.join(folder, members[0], ADAPTER_CONFIG_FILE))
    name = base or record.get("model") or adapter.get("base_model_name_or_path")
    if not name:
        raise ValueError(f"{folder} does not record its base model; name it with --base.")
    on_hub = None if base else record.get("model_on_hub")
    if on_hub is False and name != TINY and not os.path.isdir(os.path.expanduser(name)):
        name = name if name.startswith((".", "/", "~")) else os.path.join(os.curdir, name)  # which is no id on the Hub
    hub_base = name if on_hub else None if on_hub is False else hub_id(name)
    revision = None if base else record.get("revision")
    return Run(folder, name, members, record.get("settings", {}), hub_base, revision)


def read_record(folder: str) -> RunRecord:
    """Content of `run.json` of a run folder; empty if there is none.

    Raises:
        ValueError: If it is damaged.
    """
    path = os.path.join(folder, RUN_FILE)
    found, known = _known(path).items(), get_type_hints(RunRecord)
    record = cast("RunRecord", {name: value for name, value in found if value is not None or name not in known})
    _check(path, record, known)
    _check(path, record.get("settings", {}), SETTINGS, of="settings.")
    _check(path, record.get("other_settings", {}), OTHERS, of="other_settings.")
    for change in record.get("resumed", ()):
        _check(path, change, CHANGE, of="resumed.", required=CHANGE)
    return record


def read_scores(folder: str) -> dict:
    """Content of `evaluation.json` of a run folder; empty if it was not evaluated.

    Raises:
        ValueError: If it is damaged.
    """
    path = os.path.join(folder, EVALUATION_FOLDER, EVALUATION_FILE)
    record = _known(path)
    if os.path.isfile(path):
        _check(path, record, SCORES, required=("exams",))
    for exam in record.get("exams", ()):
        _check(path, exam, EXAM, of="exams.", required=("exam", "scores"))
    return record


def _check(
    path: str, held: Mapping[str, Any], kinds: Mapping[str, Any], *, of: str = "", required: Collection[str] = ()
) -> None:
    """Refuses a file if what it holds of `kinds` has another type, or if something required is unset."""
    for name, kind in kinds.items():
        value = held.get(name)
        if value is None and name not in required:
            continue
        if not holds(value, kind):
            value = repr(value) if name in held else "missing"
            raise ValueError(f"{path} is damaged ({of}{name} is {value} and not {describe(kind)}). Restore the file.")


def hub_id(name: str) -> str | None:
    """A model's or dataset's name, if it is an id on the Hub and neither `"tiny"` nor anything local."""
    local = name == TINY or os.path.exists(os.path.expanduser(name)) or os.path.splitext(name)[1] in DATA_FILES
    return name if not local and HUB_ID.fullmatch(name) and not name.startswith(".") else None


def adapter_fingerprint(folder: str, member: str) -> str:
    """A hash of a saved member's weights and their scaling, 16 hexadecimal digits; empty if they are not there."""
    path = os.path.join(folder, member, ADAPTER_FILE)
    if not os.path.isfile(path):
        return ""
    config = _known(os.path.join(folder, member, ADAPTER_CONFIG_FILE))
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(repr([config.get(name) for name in ("r", "lora_alpha", "use_rslora")]).encode())
    return digest.hexdigest()[:16]


def read_table(folder: str | os.PathLike) -> dict:
    """The table of members of a saved population.

    Raises:
        ValueError: If the folder has none, or one of another format.
    """
    path = os.path.join(folder, POPULATION_FILE)
    if not os.path.isdir(folder):
        raise ValueError(f"{os.fspath(folder)!r}: there is no such folder.")
    table = read_json(path, missing=_why_unsaved(os.fspath(folder)))
    if table.get("format") != TABLE_VERSION:
        raise ValueError(f"{path} has format {table.get('format')!r}; this version reads format {TABLE_VERSION}.")
    members = table.get("members")
    named = isinstance(members, list) and all(isinstance(row, dict) and type(row.get("id")) is str for row in members)
    if not named or not members:
        raise ValueError(f"{path} is damaged (it lists no members). Restore the file.")
    _check(path, table, TABLE, required=TABLE)
    for row in members:
        _check(path, row, MEMBER, of=f"{row['id']}: ", required=MEMBER)
    wanted = 1 if table["shared_member"] else table["num_teachers"] + table["num_students"]
    if len(members) != wanted:
        raise ValueError(f"{path} is damaged (it lists {len(members)} members of {wanted}). Restore the file.")
    return table


def _why_unsaved(folder: str) -> str:
    """What to say of a folder without a table of members."""
    if not begun_by_a_run(folder):
        return "it is not a saved population."
    newest = newest_checkpoint(folder)
    if not newest and checkpoints(folder) and not os.path.isfile(os.path.join(folder, RUN_FILE)):
        return "it is a run of one policy (trl.GRPOConfig), and this reads populations."
    return "the run has not ended, or its script does not call trainer.save_model() after trainer.train(). " + (
        f"Name its newest checkpoint instead: {newest}." if newest else "It has no checkpoint either."
    )


def _known(path: str) -> dict:
    return read_json(path, missing="") if os.path.isfile(path) else {}
