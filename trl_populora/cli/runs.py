"""Opening a finished run (or any saved population): its members on their base, its task types, its sandbox.

Shared by the commands that look at runs. Reading a population's files belongs to `population`.
"""

import json
import os
from collections.abc import Mapping
from typing import NamedTuple


class Run(NamedTuple):
    """A run folder and what is known about it.

    Attributes:
        folder (`str`): Where it is. base (`str`): Base model as named in the recipe.
        members (`tuple[str, ...]`): Adapter names, teachers first. settings (`Mapping`): Settings, by name.
    """

    folder: str
    base: str
    members: tuple[str, ...]
    settings: Mapping

    def setting(self, name: str, default):
        """A setting of the run, or `default` where the folder does not tell."""
        return self.settings.get(name, default)


def open_run(folder: str, *, base: str | None = None) -> Run:
    """Read a run folder or a checkpoint in one.

    Args:
        folder (`str`): Folder with `population.json`.
        base (`str`, *optional*): Base model to use instead of the recorded one.

    Raises:
        ValueError: If it is no population, or its base model is not recorded anywhere.
    """
    from ..population.population import read_table

    members = tuple(row["id"] for row in read_table(folder)["members"])
    record = _read_json(folder, "run.json") or _read_json(os.path.dirname(os.path.abspath(folder)), "run.json")
    base = base or record.get("model") or _recorded_base(folder, members[0])
    if not base:
        raise ValueError(f"{folder} does not say what its base model is; name it with --base.")
    return Run(folder, base, members, record.get("settings", {}))


def load_population(run: Run):
    """The population on its base model, and the tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from ..integrations.base_models import resolve_base
    from ..population import Population
    from ..train import hush

    hush()
    path = resolve_base(run.base)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).to(device)
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Population.from_pretrained(run.folder, model), tokenizer


def make_sampler(run: Run, population, tokenizer, *, temperature: float):
    """Sampler over the members, with the run's template and length limit."""
    from ..generation import TransformersSampler

    return TransformersSampler(
        population,
        tokenizer,
        max_completion_length=run.setting("max_completion_length", 512),
        temperature=temperature,
        template=run.setting("prompt_template", "chat"),
        batch_size=run.setting("generation_rows", 64),
    )


def make_task_types(run: Run) -> dict:
    """Task types in play in the run, worded as there."""
    from ..tasks import DEFAULT_TYPES, make_task_types

    recorded = _read_json(run.folder, "self_play.json").get("source", {}).get("task_types")
    if recorded is not None:
        return make_task_types(**recorded)
    return make_task_types(
        run.setting("task_types", DEFAULT_TYPES),
        style=run.setting("prompt_style", "full"),
        num_references=run.setting("num_references", None),
        kwargs=run.setting("task_kwargs", None),
    )


def make_executor(run: Run):
    """The run's sandbox."""
    from ..executor import ExecutorSettings

    return ExecutorSettings(**run.setting("executor_kwargs", {})).make()


def _read_json(folder: str, name: str) -> dict:
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _recorded_base(folder: str, member: str) -> str | None:
    return _read_json(os.path.join(folder, member), "adapter_config.json").get("base_model_name_or_path")
