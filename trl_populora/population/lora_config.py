"""Checks the LoRA settings of a population."""

import math
from collections.abc import Collection, Mapping

from peft import LoraConfig
from peft.tuners.lora import LoraLayer, ParamWrapper
from torch import nn

from trl_populora.settings import suggest


MORE_THAN_PAIRS = {  # settings with which an adapter is more than pairs of A and B, and the value without them
    "use_dora": False,
    "lora_bias": False,
    "bias": "none",
    "modules_to_save": None,
    "target_parameters": None,
    "trainable_token_indices": None,
    "layer_replication": None,
    "use_qalora": False,
    "use_bdlora": None,
    "alora_invocation_tokens": None,
    "arrow_config": None,
    "kasa_config": None,
    "monteclora_config": None,
    "velora_config": None,
}
CHANGING_BASE = ("pissa", "corda", "olora", "lora_ga", "loftq")
"""How `init_lora_weights` begins where PEFT changes the base, also when it loads the adapter. The update is then more
than B and A."""
INITS = (True, False, "gaussian", "orthogonal")
"""Values of `init_lora_weights` that leave the base as it is. Others subtract from it what an adapter begins with, or
need data."""


def check_lora_config(config: LoraConfig) -> None:
    """Refuses LoRA settings that routing, operators or multi-LoRA serving cannot apply for every member.

    Raises:
        ValueError: With the setting, its value and what to use instead.
    """
    if not isinstance(config, LoraConfig):
        raise ValueError(f"A population needs a peft.LoraConfig, got {type(config).__name__}.")
    if config.r < 1:
        raise ValueError(f"LoRA rank r={config.r} is not usable; choose at least 1, for example 16.")
    if not 0 < config.lora_alpha < math.inf:
        raise ValueError(f"lora_alpha={config.lora_alpha} is not usable; choose a positive value, for example 32.")
    if config.init_lora_weights not in INITS:
        raise ValueError(
            f"init_lora_weights={config.init_lora_weights!r} changes the base, which members share, or needs data; "
            f"choose one of {INITS}."
        )
    for name, wanted in (MORE_THAN_PAIRS | {"rank_pattern": {}, "alpha_pattern": {}, "lora_dropout": 0.0}).items():
        value = getattr(config, name)
        if value and value != wanted:
            raise ValueError(f"{name}={value!r} is not supported in a population; set it to {wanted!r}.")


def check_modules(base: nn.Module, wanted: Collection[str] | str | None, *, option: str) -> None:
    """Refuses names of `target_modules` that no module of the base has. PEFT skips them if other names match.

    Args:
        base (`torch.nn.Module`): The base, before it has adapters.
        wanted (`Collection[str]` or `str`, *optional*): Names or endings of paths. A single text ("all-linear" or a
            pattern) and `None` are left to PEFT.
        option (`str`): Name of the setting, for the message.

    Raises:
        ValueError: With all such names, and the name of a module that resembles the first one.
    """
    paths = [f".{path}" for path, _ in base.named_modules()]
    names = [] if wanted is None or isinstance(wanted, str) else sorted(wanted)
    missing = [name for name in names if not any(path.endswith(f".{name}") for path in paths)]
    if missing:
        modules = {path.rpartition(".")[2] for path in paths}
        hint = suggest(missing[0], modules, "Take it out, or set 'all-linear' for all linear layers.")
        told = ", ".join(map(repr, missing))
        raise ValueError(f"{option}={names}: the base has no module {told}. {hint}")


def check_linear(layers: Mapping[str, LoraLayer]) -> None:
    """Refuses adapters on an embedding, and on the experts of a mixture of experts or their router.

    Args:
        layers (`Mapping[str, LoraLayer]`): The layers that PEFT has given an adapter, by path.

    Raises:
        ValueError: With the path of such a layer.
    """
    embeddings = [path for path, layer in layers.items() if layer.lora_embedding_A]
    if embeddings:
        raise ValueError(
            f"The adapters' target_modules include {embeddings[0]}, an embedding. Members have adapters on linear "
            "layers only: take it out."
        )
    experts = {path for path, layer in layers.items() if isinstance(layer, ParamWrapper)}
    if experts:
        others = sorted({path.rpartition(".")[2] for path in layers.keys() - experts})
        raise ValueError(
            f"The adapters' target_modules include {min(experts)}, of a mixture of experts, which regroups rows. It "
            f"cannot be adapted per member: name other modules{f', such as {others}' * bool(others)}."
        )
