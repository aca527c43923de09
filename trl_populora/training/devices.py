"""`gpus`: the GPUs that PyTorch can use."""

from typing import Any

import torch


def gpus() -> list[Any]:
    """Properties of each, as from `torch.cuda.get_device_properties`. Empty if PyTorch cannot use them.

    `device_count` asks the driver, and so does `is_available` once Lightning is imported. Both count GPUs whose driver
    is too old for this PyTorch.
    """
    try:
        return [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    except (RuntimeError, AssertionError):  # the second: PyTorch without CUDA
        return []
