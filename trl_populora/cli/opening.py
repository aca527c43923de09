"""Makes objects from a run for the commands: population on its base, task types, sandbox. Finds what runs share."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..run_files.run import Run, read_record
from ..run_files.secrets import HIDDEN
from ..settings import from_mapping


if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ..executor import Executor
    from ..generation import TransformersSampler
    from ..population import Population
    from ..tasks import TaskType


OWN_MACHINE = ("workers", "accept_unsafe")
"""Settings of the sandbox that are about the machine, and not about what an answer may use."""


def add_unsafe_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accept-unsafe",
        action="store_true",
        help="run the model's programs even if this machine cannot isolate them (a setting of the run is ignored)",
    )


def load_population(run: Run) -> tuple[Population, PreTrainedTokenizerBase]:
    """The population on its base model, and the tokenizer."""
    from ..population import Population

    model, tokenizer = load_base(run.base, revision=run.revision, quantization=recorded_quantization(run))
    tokenizer.chat_template = run.chat_template or tokenizer.chat_template
    return Population.from_pretrained(run.folder, model), tokenizer


def recorded_quantization(run: Run) -> dict[str, Any] | None:
    """How the run's base was quantised, as `run.json` has it; `None` if it was not, or if this is another base."""
    record = read_record(run.record) if run.folder else {}
    return record.get("quantization") if record.get("model") == run.base else None


def find_base(name: str) -> str:
    """The folder of a run's base.

    Raises:
        ValueError: If it is not here, with the option that names another place.
    """
    from ..integrations.base_models import resolve_base

    try:
        return resolve_base(name)
    except ValueError as error:
        raise ValueError(f"{error} If the base of a run has another place here, name it with --base.") from None


def load_base(
    name: str,
    *,
    dtype: str | None = None,
    revision: str | None = None,
    quantization: dict[str, Any] | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A base model by its name in recipes, and its tokenizer.

    Args:
        name (`str`): Hub id, folder or `"tiny"`.
        dtype (`str`, *optional*): `"float32"` or `"bfloat16"`; bfloat16 on a GPU, float32 on a CPU if unset.
        revision (`str`, *optional*): Its commit on the Hub; the newest if unset.
        quantization (`dict`, *optional*): A `quantization_config` of transformers.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from ..extras import require
    from ..quiet import hide_loading_bars
    from ..run_files.files import damage_told

    hide_loading_bars()
    path = find_base(name)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    chosen = getattr(torch, dtype or ("bfloat16" if device == "cuda" else "float32"))
    which: dict[str, Any] = {"revision": revision} if revision else {}
    how = {**which}
    if quantization:
        if str(quantization.get("quant_method", "")).endswith("bitsandbytes"):
            require("bitsandbytes", user="the run's base in 4 or 8 bits")
        how["device_map"] = device
        if getattr(AutoConfig.from_pretrained(path, **which), "quantization_config", None) is None:
            how["quantization_config"] = quantization  # else it is so on disk
    try:
        with damage_told(f"the base {name!r}"):
            model = AutoModelForCausalLM.from_pretrained(path, dtype=chosen, **how)
    except OSError as error:
        if revision is None:
            raise
        why = str(error).splitlines()[0]
        raise ValueError(
            f"the base {name!r} cannot be loaded as of commit {revision}, on which the run was trained ({why}). To "
            "use another, name it with --base."
        ) from None
    if not quantization:
        model.to(device)  # pyright: ignore[reportArgumentType]  # transformers' wrapper hides the signature
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left", **which)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def make_sampler(
    run: Run, population: Population, tokenizer: PreTrainedTokenizerBase, *, temperature: float, **changes: Any
) -> TransformersSampler:
    """Sampler over the members, with the run's template and length limit, or with `changes` of them."""
    from ..generation import TransformersSampler

    settings = {
        "max_completion_length": run.setting("max_completion_length", 512),
        "temperature": temperature,
        "template": run.setting("prompt_template", "chat"),
        "chat_template_kwargs": run.chat_template_kwargs,
        "batch_size": run.setting("generation_rows", 64),
    }
    return TransformersSampler(population, tokenizer, **(settings | changes))


def make_task_types(run: Run, *, style: str | None = None) -> dict[str, TaskType]:
    """Task types in play in the run, worded as there, or in another style."""
    from ..tasks import DEFAULT_TYPES, make_task_types

    if "task_types" in run.source:
        recorded = dict(run.source["task_types"])
        for name, own in recorded["kwargs"].items():
            if secret := [key for key, value in (own or {}).items() if HIDDEN in json.dumps(value)]:
                raise ValueError(
                    f"{run.folder} does not hold {', '.join(secret)} of the task type {name}, because secrets are not "
                    "written. Let the type read it from an environment variable."
                )
        if style is not None:
            kwargs = recorded["kwargs"].items()  # `None`: they could not be recorded
            recorded["kwargs"] = {name: None if own is None else own | {"style": style} for name, own in kwargs}
        return make_task_types(**recorded)
    return make_task_types(
        run.setting("task_types", DEFAULT_TYPES),
        style=style or run.setting("prompt_style", "full"),
        num_references=run.setting("num_references", None),
        kwargs=run.setting("task_kwargs", None),
    )


def make_executor(run: Run, *, accept_unsafe: bool = False) -> Executor:
    """A sandbox with the run's limits. Other people's runs do not decide about this machine: how many programs run at
    the same time, and whether they may run without isolation, is not taken from the run."""
    from ..executor import ExecutorSettings

    recorded = {name: value for name, value in run.setting("executor_kwargs", {}).items() if name not in OWN_MACHINE}
    given = recorded | {"accept_unsafe": accept_unsafe}
    return from_mapping(ExecutorSettings, given, setting=f"executor_kwargs of {run.folder or run.base}").make()


def shared_setting(runs: Sequence[Run], name: str, option: str, *, given: Any = None) -> Any:
    """The value of a setting that all runs have, unless another is `given` by an option of the command.

    Raises:
        ValueError: If a run does not record it, or two differ; names the option that sets it for all.
    """
    if given is not None:
        return given
    for run in runs:
        if name not in run.settings:
            raise ValueError(f"{run.folder or run.base} does not record its {name}; set it with {option}.")
    for run in runs[1:]:
        if run.settings[name] != runs[0].settings[name]:
            raise ValueError(
                f"{name} is {runs[0].settings[name]!r} in {runs[0].folder} and {run.settings[name]!r} in "
                f"{run.folder}. Use {option} to choose one value for all, or evaluate the runs separately."
            )
    return runs[0].settings[name]


def shared_base(runs: Sequence[Run]) -> str:
    """The base that all runs have, by its name in the first.

    Raises:
        ValueError: If two differ, or their commits do.
    """
    from ..integrations.base_models import resolve_base

    for run in runs[1:]:
        commits = [one.revision for one in (runs[0], run)]
        if run.base == runs[0].base and all(commits) and len(set(commits)) > 1:
            raise ValueError(
                f"the base {run.base} is of commit {commits[0]} in {runs[0].folder} and of {commits[1]} in "
                f"{run.folder}. Use --base to choose one for all, or evaluate the runs separately."
            )
        if run.base != runs[0].base and resolve_base(run.base) != resolve_base(runs[0].base):
            raise ValueError(
                f"the base is {runs[0].base} in {runs[0].folder} and {run.base} in {run.folder}. Use --base to "
                "choose one for all, or evaluate the runs separately."
            )
    return runs[0].base


def shared_task_types(runs: Sequence[Run], *, style: str | None = None) -> dict[str, TaskType]:
    """The task types that all runs have.

    Raises:
        ValueError: If a run does not record its prompt style, or two have other types or settings of them.
    """
    from ..tasks.registry import recorded

    for run in runs:
        if style is None and "task_types" not in run.source:
            shared_setting([run], "prompt_style", "--style")
    types = [make_task_types(run, style=style) for run in runs]
    first, *others = [recorded(list(own.values()))[1] for own in types]
    for settings in filter(None, (settings for own in (first, *others) for settings in own.values())):
        settings.pop("num_references", None)  # of what teachers are shown
    for run, other in zip(runs[1:], others, strict=True):
        here, there = f"in {runs[0].folder}", f"in {run.folder}"
        if first.keys() != other.keys():
            raise ValueError(
                f"task types are {list(first)} {here} and {list(other)} {there}. Use --types to choose the task "
                "types for all runs, or evaluate them separately."
            )
        for name in first:
            if first[name] == other[name] and first[name] is not None:
                continue
            mine, yours = (own[name] or {} for own in (first, other))
            (key, *_) = [key for key in sorted({*mine, *yours}) if mine.get(key) != yours.get(key)] or ["settings"]
            option = "--style" if key == "style" else "--types"
            raise ValueError(
                f"{key} of {name} is {mine.get(key)!r} {here} and {yours.get(key)!r} {there}. Use {option} to choose "
                f"one value for all{'' if key == 'style' else ' (types then have their default settings)'}, or "
                "evaluate the runs separately."
            )
    return types[0]


def labels(runs: Sequence[Run]) -> list[str]:
    """A short name of each run: its folder's, or the whole path where two folders have one name.

    Raises:
        ValueError: If a run is given twice.
    """
    paths = [os.path.abspath(run.folder) for run in runs]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice:
        raise ValueError(f"{twice} is named twice.")
    short = [os.path.basename(path) for path in paths]
    return short if len(set(short)) == len(short) else [run.folder for run in runs]
