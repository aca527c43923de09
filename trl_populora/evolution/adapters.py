"""Reads and writes PEFT folders as factors, and makes a child again from the files of a run."""

import os
from collections.abc import Sequence

from peft import LoraConfig
from peft.utils.other import get_pattern_key
from peft.utils.save_and_load import load_peft_weights
from safetensors.torch import save_file

from trl_populora.population.factors import Factors, from_tensors, to_tensors
from trl_populora.population.lora_config import MORE_THAN_PAIRS
from trl_populora.run_files.files import read_json, write_file, write_files
from trl_populora.run_files.layout import ADAPTER_CONFIG_FILE, ADAPTER_FILE, ADAPTER_FILES
from trl_populora.run_files.run import read_table

from .lineage import EvolutionEvent
from .replacement import remake


def read_adapter(folder: str | os.PathLike) -> tuple[LoraConfig, Factors]:
    """Configuration and factors of a LoRA adapter that PEFT saved.

    Rank-stabilised scaling and rank and alpha patterns are supported: every matrix has its own rank and scaling.

    Raises:
        ValueError: If the folder has no LoRA adapter, or the adapter has more than pairs of A and B of linear layers.
    """
    folder = os.fspath(folder)
    needed = f"it is not a PEFT folder: {ADAPTER_CONFIG_FILE} and {ADAPTER_FILE} are needed."
    kind = read_json(os.path.join(folder, ADAPTER_CONFIG_FILE), missing=needed).get("peft_type")
    if not any(os.path.isfile(os.path.join(folder, name)) for name in ADAPTER_FILES):
        raise ValueError(f"{folder} holds no {ADAPTER_FILE}: {needed}")
    if kind != "LORA":
        raise ValueError(f"{folder} holds an adapter of type {kind!r}; operators know LORA only.")
    config = LoraConfig.from_pretrained(folder)
    assert isinstance(config, LoraConfig)
    for name, wanted in MORE_THAN_PAIRS.items():
        value = getattr(config, name)
        if value and value != wanted:
            raise ValueError(f"{folder} has {name}={value!r}, which operators cannot keep; train with {wanted!r}.")
    # Copied out of the mapped file into memory that torch aligns: matrix products of float32 round by alignment.
    tensors = {name: X.clone() for name, X in load_peft_weights(folder, device="cpu").items()}
    modules = [key.removesuffix(".lora_A.weight") for key in tensors if key.endswith(".lora_A.weight")]
    pairs = {f"{module}.lora_{side}.weight" for module in modules for side in "AB"}
    other = sorted(tensors.keys() ^ pairs) + [key for key in tensors if tensors[key].dim() != 2]
    if other or not modules:
        raise ValueError(f"{folder} holds other tensors than lora_A and lora_B of linear layers: {other[:4]}.")
    return config, from_tensors(tensors, {module: _scaling(config, module, tensors) for module in modules})


def write_adapter(folder: str | os.PathLike, config: LoraConfig, factors: Factors) -> None:
    """Writes a PEFT folder for `PeftModel.from_pretrained`. `config` must fit the shapes of the factors."""
    tensors = {name: X.contiguous().clone() for name, X in to_tensors(factors).items()}
    path = os.path.join(folder, ADAPTER_FILE)
    write_file(path, lambda aside: save_file(tensors, aside, metadata={"format": "pt"}))
    write_files(folder, config.save_pretrained)


def replay(event: EvolutionEvent, folders: Sequence[str | os.PathLike]) -> Factors:
    """Makes the child of an event again from adapters on disk; the result is bit-identical.

    Args:
        event (`EvolutionEvent`): A line of a run's `lineage.jsonl`.
        folders (`Sequence[str]`):
            Populations saved at the event's step, such as the run's `checkpoint-<step>`. Each parent must be in one of
            them, in the version that was the parent. The checkpoint of the same step has all parents that were not
            replaced. For a parent that was replaced in the same event, pass a population that was saved just before.

    Raises:
        ValueError: If a parent is in none of the folders.
    """
    versions = {os.fspath(folder): _versions(os.fspath(folder)) for folder in folders}
    parents = []
    for name, version in event.parents:
        holders = [folder for folder, table in versions.items() if table.get(name) == version]
        if not holders:
            raise ValueError(
                f"None of {list(versions)} holds {name}@{version}, a parent of {event.slot}@{event.version}. Name a "
                f"population saved at step {event.step}, while it lived."
            )
        parents.append(read_adapter(os.path.join(holders[0], name))[1])
    return remake(event, parents)


def _versions(folder: str) -> dict[str, int]:
    return {row["id"]: row["version"] for row in read_table(folder)["members"]}


def _scaling(config: LoraConfig, module: str, tensors: dict) -> float:
    """`alpha / r`, or `alpha / sqrt(r)`, with the module's own alpha and rank where patterns give them."""
    r = tensors[f"{module}.lora_A.weight"].shape[0]
    patterns = config.alpha_pattern or {}
    alpha = patterns.get(get_pattern_key(list(patterns), module.removeprefix("base_model.model.")), config.lora_alpha)
    return alpha / (r**0.5 if config.use_rslora else r)
