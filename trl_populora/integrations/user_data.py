"""Loads the user's own prompts, reward functions and sampler by name, for recipes."""

import inspect
import os
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from datasets import (
    Dataset,
    DatasetDict,
    NamedSplit,
    ReadInstruction,
    concatenate_datasets,
    load_dataset,
    load_from_disk,
)
from datasets.exceptions import DatasetsError

from ..named import named


REWARDS = "'module.function', or the name of a function in trl.rewards"
FILES = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}


def load_prompts(name: str, *, config: str | None = None, split: str = "train") -> Dataset:
    """A dataset with a `prompt` column.

    Args:
        name (`str`): Hub id, a file (`.jsonl`, `.json`, `.parquet`, `.csv`), or a folder of `Dataset.save_to_disk`.
        config (`str`, *optional*): Configuration of a Hub dataset.
        split (`str`, *optional*, defaults to `"train"`): Split, or a part of it such as `"train[:100]"`. A file, and a
            saved dataset without splits, is one split named `"train"`.

    Raises:
        ValueError: If it cannot be loaded or has no prompts, is a file of another kind, or `config` is set for a file
            or a saved dataset.
    """
    kind, path = FILES.get(os.path.splitext(name)[1]), os.path.expanduser(name)
    if kind is None and os.path.isfile(path):
        raise ValueError(
            f"dataset_name={name!r} is a file of another kind than {', '.join(FILES)}. Convert or rename it."
        )
    saved = any(os.path.isfile(os.path.join(path, file)) for file in ("state.json", "dataset_dict.json"))
    if config is not None and (kind is not None or saved):
        raise ValueError(
            f"dataset_config={config!r} is for datasets of the Hub, and dataset_name={name!r} is a "
            f"{'file' if kind else 'saved dataset'}. Leave dataset_config out."
        )
    try:
        if kind is not None:
            dataset = load_dataset(kind, data_files=path, split=split)
        elif saved:
            dataset = _part(load_from_disk(path), split)
        else:
            dataset = load_dataset(name, config, split=split)
    except (OSError, ValueError, DatasetsError, StopIteration) as error:
        why = error.__cause__ or error  # datasets' own error only says that there is one
        if isinstance(why, StopIteration):  # of the reader of JSON
            why = "the file is empty"
        told = f"dataset_name={name!r} cannot be loaded: {' '.join(str(why).split())}"
        if isinstance(why, PermissionError) and kind is None and not saved:
            told += ". Set HF_HOME to a folder that can be written, where the dataset is kept"
        raise ValueError(told + f" (dataset_split={split!r})" * (split != "train")) from None
    if "prompt" not in dataset.column_names:
        raise ValueError(f"dataset_name={name!r} has no column 'prompt', only {dataset.column_names}.")
    return dataset


def is_missing_file(name: str) -> bool:
    """Whether `name` can only be a file or folder, and does not exist."""
    plain = not re.search(r"://|[*?[]", name) and (
        os.path.splitext(name)[1] in FILES or name.startswith((".", "/", "~"))
    )
    return plain and not os.path.exists(os.path.expanduser(name))


def _part(dataset: Dataset | DatasetDict, split: str) -> Dataset:
    """The split of a saved dataset, in the syntax of `load_dataset`: `"train[:100]"`, `"train+test"`."""
    splits = dataset if isinstance(dataset, DatasetDict) else {"train": dataset}
    rows = {name: len(own) for name, own in splits.items()}
    wanted = ReadInstruction.from_spec(split)
    parts = [one for one in wanted.to_absolute(rows) if one.from_ < one.to]
    if not parts:
        raise ValueError(f"the split has no rows, and the dataset has {rows}")
    chosen = [splits[one.splitname].select(range(one.from_, one.to)) for one in parts]
    return concatenate_datasets(chosen, split=NamedSplit(wanted.to_spec()))


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
