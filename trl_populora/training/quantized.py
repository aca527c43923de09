"""A base in 4 bits (bitsandbytes) under a population: what must be set so that its members train as on any other base.

Members keep their adapters in float32. Only the base's linear layers are packed; embeddings and LM head are not.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ..extras import require


def completed(config: Any, *, dtype: Any) -> Any:
    """A `quantization_config` with TRL's defaults instead of those of transformers, which are FP4 and float32.

    Args:
        config (`dict` or [`~transformers.BitsAndBytesConfig`] or `None`):
            What `from_pretrained` takes. Only a `dict` with `load_in_4bit` is completed: with NF4, and with
            computations in `dtype`.
        dtype (`str` or `torch.dtype`): Of the base's other weights.

    Raises:
        ValueError: If bitsandbytes is needed and not installed.
    """
    mapping = isinstance(config, Mapping)
    if config.get("load_in_4bit") if mapping else getattr(config, "load_in_4bit", False):
        require("bitsandbytes", user="quantization_config with load_in_4bit")
        if mapping:
            computing = "bfloat16" if dtype in (None, "auto") else dtype
            return {"bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": computing} | dict(config)
    return config


def keep_gradients(base: nn.Module) -> None:
    """Stops bitsandbytes from packing 4-bit weights in another way at the first pass without gradients.

    It does so on CPUs with AVX512-BF16, for speed. From then on no gradient passes through these layers, and nothing
    says so (bitsandbytes 0.50, `matmul_4bit`). On a GPU there is only one way.

    Raises:
        ValueError: If it has happened already.
    """
    module: Any
    for name, module in base.named_modules():
        if not hasattr(module, "support_avx512bf16_for_cpu"):
            continue
        module.support_avx512bf16_for_cpu = False
        if getattr(getattr(module.weight, "quant_state", None), "packing_format_for_cpu", False):
            raise ValueError(
                f"The 4-bit base has computed without gradients on this CPU before ({name}), and bitsandbytes has "
                "packed its weights in a way that lets no gradient through. Load it again, and train before sampling."
            )
