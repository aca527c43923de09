"""Loads the user's own prompts, reward functions and sampler by name, for recipes."""

import inspect
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetsError

from ..named import named
from ..training.prompts import check_prompts


REWARDS = "'module.function', or the name of a function in trl.rewards"
FILES = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}


def load_prompts(name: str, *, config: str | None = None, split: str = "train") -> Dataset:
    """A dataset with a `prompt` column.

    Args:
        name (`str`): Hub id, a file (`.jsonl`, `.json`, `.parquet`, `.csv`), or a folder of `Dataset.save_to_disk`.
        config (`str`, *optional*): Configuration of a Hub dataset.
        split (`str`, *optional*, defaults to `"train"`): Split.

    Raises:
        ValueError: If it cannot be loaded or has no prompts.
    """
    kind = FILES.get(os.path.splitext(name)[1])
    try:
        if kind is not None:
            dataset = load_dataset(kind, data_files=name, split="train")
        elif any(os.path.isfile(os.path.join(name, file)) for file in ("state.json", "dataset_dict.json")):
            dataset = load_from_disk(name)
        else:
            dataset = load_dataset(name, config, split=split)
    except (OSError, ValueError, DatasetsError) as error:
        why = error.__cause__ or error  # datasets' own error only says that there is one
        raise ValueError(f"dataset_name={name!r} cannot be loaded: {' '.join(str(why).split())}") from None
    if isinstance(dataset, DatasetDict):
        if split not in dataset:
            raise ValueError(f"dataset_split={split!r} is not in {name!r}, which has {sorted(dataset)}.")
        dataset = dataset[split]
    if "prompt" not in dataset.column_names:
        raise ValueError(f"dataset_name={name!r} has no column 'prompt', only {dataset.column_names}.")
    check_prompts(f"dataset_name={name!r}", dataset)
    return dataset


def load_rewards(names: Sequence[str]) -> list[Any]:
    """Reward functions by name: `module.function` from the path or the working folder, or a function of `trl.rewards`.

    Raises:
        ValueError: If there is no such function.
    """
    functions = []
    for name in names:
        module, _, attribute = name.rpartition(".")
        function = named(f"{module or 'trl.rewards'}:{attribute}", label=f"reward_funcs: {name!r}", form=REWARDS)
        if not callable(function):
            raise ValueError(f"reward_funcs: {name!r} is a {type(function).__name__}, not a function.")
        functions.append(function)
    return functions


def load_sampler(name: str, kwargs: dict[str, Any] | None = None) -> Any:
    """Loads the trainer's argument `sampler` by name.

    Args:
        name (`str`): `module:Name` of a subclass of [`Sampler`], or of a function that makes one, such as
            `trl_populora.generation:server_sampler`.
        kwargs (`dict[str, Any]`, *optional*): Additional arguments of the class or function.

    Raises:
        ValueError: If it does not exist, or does not accept these arguments.
    """
    found = named(name, label=f"sampler: {name!r}")
    if not kwargs:
        return found
    try:
        inspect.signature(found).bind_partial(**kwargs)
    except TypeError as error:
        raise ValueError(f"sampler_kwargs={kwargs} do not fit {name!r}: {error}.") from None
    return partial(getattr(found, "from_args", found), **kwargs)
