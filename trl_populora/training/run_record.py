"""`run.json`: what a run was made of, for people and for the commands that open its folder."""

import os
import platform
from dataclasses import MISSING, fields
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from huggingface_hub import try_to_load_from_cache
from transformers.utils import CONFIG_NAME, extract_commit_hash, logging
from trl import GRPOConfig

from ..reporting.model_card import versions
from ..run_files.files import write_json
from ..run_files.git import git_state
from ..run_files.layout import RUN_FILE
from ..run_files.process import this_process
from ..run_files.run import hub_id
from ..run_files.secrets import without_secrets
from .devices import gpus


if TYPE_CHECKING:
    from .config import PopulationSelfPlayConfig
    from .trainer import PopulationSelfPlayTrainer

logger = logging.get_logger(__name__)

PLAIN = (str, int, float, bool, type(None))
PLACES = "output_dir run_name hub_ push_to_hub logging_ report_to resume_from save_ disable_tqdm log_ project trackio "
PLACES = tuple((PLACES + "dataloader_ ddp_ local_rank").split())
"""Beginnings of names of settings about folders, logging and uploads, which do not change what a run learns."""


def write_run_file(trainer: "PopulationSelfPlayTrainer") -> None:
    """Leaves `run.json` in the run's folder. Warns if it cannot be written."""
    try:
        write_json(os.path.join(trainer.args.output_dir, RUN_FILE), run_record(trainer))
    except OSError as error:
        logger.warning(f"{RUN_FILE} in {trainer.args.output_dir} was not written: {error}.")


def run_record(trainer: "PopulationSelfPlayTrainer") -> dict[str, Any]:
    """The run as plain data, without secrets: base, data, settings, sampler, rewards, source of rows, exams, versions,
    machine."""
    source, config = trainer.source, trainer.population.base_model.config
    record = {
        "model": trainer.base_model_name,
        "model_on_hub": hub_id(trainer.base_model_name) is not None,  # here and now; elsewhere, a path means nothing
        "revision": trainer.base_revision,
        "quantization": _plain(getattr(config, "quantization_config", None)),
        "lora": None if trainer.given_lora is None else _plain(trainer.given_lora.to_dict()),
        "dataset": trainer.dataset_name,
        "dataset_on_hub": trainer.dataset_name and hub_id(trainer.dataset_name) is not None,
        "dataset_part": _part(trainer.train_dataset) if trainer.args.num_teachers == 0 else None,
        "dataset_hash": _plain(source.dataset_hash),
        "settings": _plain(trainer.args.settings()),
        "other_settings": other_settings(trainer.args),
        "sampler": _sampler(trainer),
        "reward_funcs": list(trainer.reward_func_names),
        "warm_start": _plain(trainer.warm_start),
        "resumed": _plain(trainer.resumed),
        "row_source": _path(type(source)),
        "processes": trainer.accelerator.num_processes,
        "process": this_process(),
        "versions": versions(),
        "hardware": hardware(),
        "git": git_state(),
        "isolation": source.executor.isolation if source.executor is not None else None,
    }
    return without_secrets(record) | {"exams": {exam.name: exam.version for exam in trainer.probes.exams or ()}}


def base_revision(model: Any, args: "PopulationSelfPlayConfig") -> str | None:
    """Commit on the Hub of a base that was loaded by its name: from its place in the Hub's cache, because no model or
    configuration holds it. `None` for a local folder, and for a model that was made before."""
    if not isinstance(model, str):
        return None
    path: Any = os.path.join(model, CONFIG_NAME)
    if hub_id(model):
        where = {
            key: value for key, value in (args.model_init_kwargs or {}).items() if key in ("revision", "cache_dir")
        }
        path = try_to_load_from_cache(model, CONFIG_NAME, **where)
    return extract_commit_hash(path, None) if isinstance(path, str) else None


def other_settings(args: "PopulationSelfPlayConfig") -> dict[str, Any]:
    """Settings of GRPO that `args.settings()` leaves out and that differ from GRPO's defaults, `PLACES` aside."""
    told = args.settings()
    values = {name: (getattr(args, name), default) for name, default in grpo_defaults().items() if name not in told}
    return {name: _plain(value) for name, (value, default) in values.items() if value != default}


def grpo_defaults() -> dict[str, Any]:
    """Defaults of GRPO's settings, `PLACES` aside."""
    return {
        one.name: one.default if one.default_factory is MISSING else one.default_factory()
        for one in fields(GRPOConfig)
        if one.init and not one.name.startswith(PLACES)
    }


def _part(dataset: Any) -> dict[str, Any]:
    """What tells parts of one dataset apart."""
    told = {name: getattr(dataset, name, None) for name in ("config_name", "split")}
    return {name: None if value is None else str(value) for name, value in told.items()} | {"rows": len(dataset)}


def hardware() -> dict[str, Any]:
    """Processor, cores that this process may use, memory in GiB, and the GPUs of this process by name and memory."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages / 2**30, 1),
        "gpus": [{"name": card.name, "memory_gib": round(card.total_memory / 2**30, 1)} for card in gpus()],
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            named = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        named = []
    return named[0] if named else platform.machine()


def _sampler(trainer: "PopulationSelfPlayTrainer") -> dict[str, Any]:
    """The sampler's class, and what it was made by and with, if that was given."""
    given, kwargs = trainer.given_sampler, {}
    if isinstance(given, partial):
        given, kwargs = given.func, given.keywords
    made_by = getattr(given, "__self__", given)  # a class, by its `from_args`
    return {
        "class": _path(type(trainer.source.sampler)),
        "made_by": None if made_by is None else _path(made_by),
        "kwargs": _plain(kwargs),
    }


def _path(named: Any) -> str:
    return f"{named.__module__}:{named.__qualname__}" if hasattr(named, "__qualname__") else repr(named)


def _plain(value: Any) -> Any:
    """A value as plain data for JSON. Objects that JSON cannot hold become their `repr`."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(_plain, value), key=repr)
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    return value if isinstance(value, PLAIN) else repr(value)
