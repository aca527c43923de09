"""Reads and writes PEFT folders as factors, and says whether an adapter fits others."""

import math
import os
from pickle import UnpicklingError

from peft import LoraConfig
from peft.utils.other import get_pattern_key
from peft.utils.save_and_load import load_peft_weights
from safetensors.torch import save_file

from ..run_files.files import damage_told, read_json, write_file, write_files
from ..run_files.layout import ADAPTER_CONFIG_FILE, ADAPTER_FILE, ADAPTER_FILES
from .factors import Factors, from_tensors, to_tensors
from .lora_config import CHANGING_BASE, MORE_THAN_PAIRS


def read_adapter(folder: str | os.PathLike) -> tuple[LoraConfig, Factors]:
    """Configuration and factors of a LoRA adapter that PEFT saved.

    Rank-stabilised scaling and rank and alpha patterns are supported: every matrix has its own rank and scaling.

    Raises:
        ValueError: If the folder has no LoRA adapter, or the adapter is damaged or has more than pairs of A and B of
            linear layers, or PEFT changes the base for it.
    """
    folder = os.fspath(folder)
    needed = f"it is not a PEFT folder: {ADAPTER_CONFIG_FILE} and {ADAPTER_FILE} are needed."
    kind = read_json(os.path.join(folder, ADAPTER_CONFIG_FILE), missing=needed).get("peft_type")
    path = next(filter(os.path.isfile, (os.path.join(folder, name) for name in ADAPTER_FILES)), None)
    if path is None:
        raise ValueError(f"{folder} holds no {ADAPTER_FILE}: {needed}")
    if kind != "LORA":
        raise ValueError(f"{folder} holds an adapter of type {kind!r}; only LORA can be read.")
    config = LoraConfig.from_pretrained(folder)
    assert isinstance(config, LoraConfig)
    for name, wanted in MORE_THAN_PAIRS.items():
        value = getattr(config, name)
        if value and value != wanted:
            raise ValueError(
                f"{folder} has {name}={value!r}, so it is more than pairs of A and B; train with {wanted!r}."
            )
    if str(begun := config.init_lora_weights).lower().startswith(CHANGING_BASE):
        raise ValueError(
            f"{folder} has init_lora_weights={begun!r}, with which PEFT changes the base, so it is more than pairs of "
            "A and B. Convert it with PEFT (save_pretrained with path_initial_model_for_weight_conversion), or train "
            "with True."
        )
    # Copied out of the mapped file into memory that torch aligns: matrix products of float32 round by alignment.
    try:
        with damage_told(path):
            tensors = {name: X.clone() for name, X in load_peft_weights(folder, device="cpu").items()}
    except (EOFError, OSError, RuntimeError, UnpicklingError) as error:
        if path.endswith(ADAPTER_FILE):
            raise
        told = (
            f"{path} is damaged, or holds more than weights ({type(error).__name__}). Save, copy or download it again."
        )
        raise ValueError(told) from error
    modules = [key.removesuffix(".lora_A.weight") for key in tensors if key.endswith(".lora_A.weight")]
    pairs = {f"{module}.lora_{side}.weight" for module in modules for side in "AB"}
    usable = {key for key, X in tensors.items() if X.dim() == 2 and X.is_floating_point()}
    other = sorted(tensors.keys() ^ pairs) + [key for key in tensors if key not in usable]
    if other or not modules:
        raise ValueError(f"{folder} holds other tensors than lora_A and lora_B of linear layers: {other[:4]}.")
    return config, from_tensors(tensors, {module: _scaling(config, module, tensors) for module in modules})


def write_adapter(folder: str | os.PathLike, config: LoraConfig, factors: Factors) -> None:
    """Writes a PEFT folder for `PeftModel.from_pretrained`. `config` must fit the shapes of the factors."""
    tensors = {name: X.contiguous().clone() for name, X in to_tensors(factors).items()}
    path = os.path.join(folder, ADAPTER_FILE)
    write_file(path, lambda aside: save_file(tensors, aside, metadata={"format": "pt"}))
    write_files(folder, config.save_pretrained)


def misfit(config: LoraConfig, factors: Factors, own: Factors) -> str | None:
    """Why an adapter cannot take the place of one in a population, and its settings, in words; `None` if it can.

    Args:
        config (`LoraConfig`), factors (`Factors`): The adapter, from [`read_adapter`].
        own (`Factors`): Factors of the one in the population. Rank, scaling and modules must be the same.
    """
    problem = _difference(factors, own)
    if problem is None:
        return None
    if len({(len(factor.A), factor.scaling) for factor in factors.values()}) > 1:
        return f"{problem}. Its matrices have different ranks or scalings, and those of a population have one."
    stabilised = "with rank-stabilised scaling, which needs a peft_config"
    return (
        f"{problem}. Its own settings are lora_r: {config.r}, lora_alpha: {config.lora_alpha}, lora_target_modules: "
        f"[{', '.join(_ends(factors))}], {stabilised if config.use_rslora else 'without rank-stabilised scaling'}."
    )


def _difference(factors: Factors, own: Factors) -> str | None:
    if own.keys() != factors.keys():
        if _ends(factors) != _ends(own):
            return f"it adapts {', '.join(_ends(factors))}, this population {', '.join(_ends(own))}"
        reason = "it belongs to another base model, or adapts other layers"
        return f"it adapts {len(factors)} matrices, this population {len(own)}: {reason}"
    for path, (A, B, scaling) in factors.items():
        mine = own[path]
        if A.shape[0] != mine.A.shape[0]:
            return f"it has rank {A.shape[0]}, this population {mine.A.shape[0]}"
        if (A.shape, B.shape) != (mine.A.shape, mine.B.shape):
            return f"its matrices at {path} have different sizes: it belongs to another base model"
        if scaling != mine.scaling:
            return f"its scaling is {scaling:g}, this population's {mine.scaling:g}"
    return None


def _ends(factors: Factors) -> list[str]:
    """Names of the adapted modules, as in `target_modules`."""
    return sorted({path.rpartition(".")[2] for path in factors})


def _scaling(config: LoraConfig, module: str, tensors: dict) -> float:
    """`alpha / r`, or `alpha / sqrt(r)`, with the module's own alpha and rank where patterns give them."""
    r = tensors[f"{module}.lora_A.weight"].shape[0]
    patterns = config.alpha_pattern or {}
    alpha = patterns.get(get_pattern_key(list(patterns), module.removeprefix("base_model.model.")), config.lora_alpha)
    return alpha / (math.sqrt(r) if config.use_rslora else r)
