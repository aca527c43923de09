"""Checks the LoRA settings of a population."""

from peft import LoraConfig


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
    if config.lora_alpha <= 0:
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
