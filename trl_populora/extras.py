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
    """A package is missing: a failed import to Python, and to the commands what a user can mend."""


def is_installed(module: str) -> bool:
    """Whether a top-level module can be found; it is not imported."""
    return sys.modules.get(module) is not None or find_spec(module) is not None


def require(module: str, *, user: str) -> None:
    """Refuse to start what could not go on without a package.

    Args:
        module (`str`): A key of `EXTRAS`.
        user (`str`): What needs it, as the message says it, such as `"use_vllm=true"`.

    Raises:
        MissingPackageError: If it is not installed, with the command that installs it.
    """
    if not is_installed(module):
        package, extra = EXTRAS[module]
        raise MissingPackageError(
            f"{user} needs {package}, which is not installed: pip install 'trl-populora[{extra}]'."
        )
