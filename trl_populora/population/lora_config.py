"""Which LoRA settings a population takes."""

from peft import LoraConfig


def check_lora_config(config: LoraConfig) -> None:
    """Refuse LoRA settings that routing, operators or multi-LoRA serving cannot honour for every member.

    Raises:
        ValueError: Naming the setting, its value and what to use.
    """
    if not isinstance(config, LoraConfig):
        raise ValueError(f"A population needs a peft.LoraConfig, got {type(config).__name__}.")
    if config.r < 1:
        raise ValueError(f"LoRA rank r={config.r} is not usable; choose at least 1, for example 16.")
    if config.lora_alpha <= 0:
        raise ValueError(f"lora_alpha={config.lora_alpha} is not usable; choose a positive value, for example 32.")
    refused = {
        "use_dora": (config.use_dora, False),
        "lora_bias": (config.lora_bias, False),
        "bias": (config.bias, "none"),
        "modules_to_save": (config.modules_to_save or None, None),
        "rank_pattern": (config.rank_pattern or {}, {}),
        "alpha_pattern": (config.alpha_pattern or {}, {}),
        "lora_dropout": (config.lora_dropout, 0.0),
        "target_parameters": (config.target_parameters or None, None),
    }
    for name, (value, wanted) in refused.items():
        if value != wanted:
            raise ValueError(f"{name}={value!r} is not supported in a population; set it to {wanted!r}.")
