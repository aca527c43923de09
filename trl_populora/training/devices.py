"""The GPUs that PyTorch can use, and what Triton needs beside them."""

import os
import shutil
import sys
import sysconfig
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


def missing_for_triton() -> list[str]:
    """What this machine lacks for Triton, each with the fix. TRL's loss on a GPU needs it, and it compiles when a
    kernel first runs."""
    header = os.path.join(sysconfig.get_paths("posix_prefix")["include"], "Python.h")
    found = {
        "no C compiler: install gcc": os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"),
        f"no {header}: install python{sys.version_info[0]}.{sys.version_info[1]}-dev": os.path.exists(header),
        "no /sbin/ldconfig: set TRITON_LIBCUDA_PATH to the folder with libcuda.so.1": os.environ.get(
            "TRITON_LIBCUDA_PATH"
        )
        or os.path.exists("/sbin/ldconfig"),
    }
    return [fix for fix, is_there in found.items() if not is_there]
