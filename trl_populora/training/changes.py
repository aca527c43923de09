"""Settings that differ from those before a resume: one warning, and `resumed` in `run.json`."""

import json
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from transformers.utils import logging

from ..reporting.played_run import flat
from ..run_files.files import read_json
from ..run_files.layout import TRAINER_STATE_FILE
from ..run_files.run import RunRecord, read_record
from .run_record import PLACES, grpo_defaults, run_record


if TYPE_CHECKING:
    from .trainer import PopulationSelfPlayTrainer

logger = logging.get_logger(__name__)

KEPT = ("learning_rate", "teacher_learning_rate", "student_learning_rate", "learning_rate_spread", "weight_decay")
KEPT += ("adam_beta1", "adam_beta2", "adam_epsilon", "shared_init", "initial_adapters", "seed_tasks", "seed_families")
"""Settings without effect on a resumed run: its members, optimizer and buffer are those of the checkpoint."""
ASIDE = (*PLACES, "overwrite_output_dir", "resize_on_resume", "vllm_adapter_dir", "vllm_server_")
ASIDE += ("executor_kwargs.workers", "probe_kwargs.data")
"""Beginnings of names of settings that are not compared. They do not change what a run learns."""


def note_changes(trainer: "PopulationSelfPlayTrainer", checkpoint: str) -> None:
    """Compares settings, data and reward functions with those in the `run.json` of the resumed run.

    One warning lists what differs, and `trainer.resumed` notes it for `run.json`. Settings without effect (`KEPT`) are
    set back to the values in force, so that all records of the run are true. (With `resize_on_resume`, new members use
    the new values, so they count as changed.)
    """
    record = record_before(checkpoint)
    if not record:
        return
    args, told = trainer.args, trainer.args.settings()
    before, now = (_settings(one, told) for one in (record, run_record(trainer)))
    state = read_json(os.path.join(checkpoint, TRAINER_STATE_FILE), missing="")
    earlier, step = record.get("resumed", []), state["global_step"]
    undone = {}  # by later resumes, whose rounds are removed
    for later in reversed([one for one in earlier if one["step"] >= step]):
        undone |= {name: value for name, (value, _) in later["changed"].items()}
    before |= {name: value for name, value in undone.items() if name in KEPT}
    useless = {}
    if not args.resize_on_resume:
        differing = [name for name in KEPT if name in before and before[name] != now[name]]
        useless = {name: [before[name], now[name]] for name in differing}
        for name in differing:
            now[name] = before[name]
            setattr(args, name, before[name])
        trainer.fixed = {name: getattr(args, name) for name in trainer.fixed}
    old, new = (_flat({name: one[name] for name in before.keys() & now.keys()}) for one in (before, now))
    old |= undone
    trainer.resumed = [one for one in earlier if one["step"] < step]
    trainer.warm_start = record.get("warm_start")
    changed = {n: [old.get(n), new.get(n)] for n in sorted(old | new) if old.get(n) != new.get(n)}
    if changed:
        trainer.resumed.append({"step": step, "changed": changed})
    if trainer.accelerator.is_main_process and (changed or useless):
        logger.warning(" ".join(_in_words(step, changed, useless)))


def record_before(checkpoint: str) -> RunRecord:
    """`run.json` of the run that a checkpoint belongs to; empty if there is none.

    Raises:
        ValueError: If it is damaged.
    """
    return read_record(os.path.dirname(os.path.abspath(checkpoint)))


def _in_words(step: int, changed: Mapping[str, list], useless: Mapping[str, list]) -> list[str]:
    told = [
        ", ".join(f"{name} {json.dumps(old)} -> {json.dumps(new)}" for name, (old, new) in one.items())
        for one in (changed, useless)
    ]
    sentences = [f"From step {step} on, the run has other settings than before: {told[0]}."] if changed else []
    if useless:
        sentences.append(
            f"These changes have no effect: {told[1]}. Members, optimizer and tasks of step {step} keep their values."
        )
    return sentences


def _settings(record: Mapping[str, Any], told: Collection[str]) -> dict[str, Any]:
    """All settings in a `run.json`, with the commit of the base, data and reward functions. GRPO's that are not `told`
    have its defaults."""
    names = ("revision", "dataset", "dataset_part", "dataset_hash", "reward_funcs")
    beside = {name: record[name] for name in names if name in record}
    defaults = {name: value for name, value in grpo_defaults().items() if name not in told}
    others = defaults | record["other_settings"] if "other_settings" in record else {}
    return others | record.get("settings", {}) | beside


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json.loads(text) for name, text in flat(settings).items() if not name.startswith(ASIDE)}
