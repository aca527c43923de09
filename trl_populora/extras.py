"""Packages that only some runs need: which extra of this package brings them, and the message where one is missing."""

import sys
from importlib.util import find_spec


EXTRAS = {
    "bitsandbytes": ("bitsandbytes", "quantized"),
    "gguf": ("gguf", "smollm2"),
    "jinja2": ("Jinja2", "report"),
    "lightning": ("lightning", "lightning"),
    "math_verify": ("math-verify", "math"),
    "matplotlib": ("matplotlib", "report"),
    "plotly": ("plotly", "report"),
    "submitit": ("submitit", "slurm"),
    "vllm": ("vllm", "vllm"),
}
"""Module -> the name of its package, and the extra that brings it."""


class MissingPackageError(ImportError, ValueError):
    """A package is missing. Commands report it as a mistake that the user can fix, like every `ValueError`."""


def is_installed(module: str) -> bool:
    """Whether a top-level module can be found; it is not imported."""
    return sys.modules.get(module) is not None or find_spec(module) is not None


def require(module: str, *, user: str) -> None:
    """Raises an error if a package is not installed, before the work that needs it begins.

    Args:
        module (`str`): A key of `EXTRAS`.
        user (`str`): What needs the package, as text for the message, such as `"use_vllm=true"`.

    Raises:
        MissingPackageError: If it is not installed, with the command that installs it.
    """
    if not is_installed(module):
        package, extra = EXTRAS[module]
        alone = " in a new environment" if module == "vllm" else ""  # it needs an older transformers
        raise MissingPackageError(
            f"{user} needs {package}, which is not installed: pip install 'trl-populora[{extra}]'{alone}."
        )
