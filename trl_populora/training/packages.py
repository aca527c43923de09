"""What the settings of a run need beyond the packages that are always there, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from transformers.utils import is_liger_kernel_available

from ..evaluation.exams import check_grader
from ..extras import MissingPackageError, require
from .trackers import check_trackers


if TYPE_CHECKING:
    from .config import PopulationSelfPlayConfig

MATH_REWARDS = "trl.rewards.accuracy_rewards"
"""Module of TRL whose functions import math-verify when they are called."""


def check_packages(args: PopulationSelfPlayConfig, reward_funcs: Sequence[Any]) -> None:
    """Refuse settings and reward functions whose packages are not installed.

    Raises:
        ValueError: Naming all that needs a package that is not installed, and the commands that install them.
    """
    checks: list[Callable[[], None]] = [partial(check_trackers, args.report_to)]
    if args.use_vllm and args.vllm_mode != "server":
        checks.append(partial(require, "vllm", user="use_vllm=true"))
    if args.use_liger_kernel:
        checks.append(_check_liger)
    for function in reward_funcs:
        if getattr(function, "__module__", None) == MATH_REWARDS:
            checks.append(partial(require, "math_verify", user=f"reward_funcs: {function.__name__}"))
    checks += [partial(check_grader, name) for name in (args.probes.exams or () if args.is_probed else ())]
    errors = []
    for check in checks:
        try:
            check()
        except ValueError as error:
            errors.append(error)
    if len(errors) > 1:
        raise MissingPackageError(" ".join(dict.fromkeys(map(str, errors))))
    if errors:
        raise errors[0]


def _check_liger() -> None:
    if not is_liger_kernel_available():
        raise MissingPackageError(
            "use_liger_kernel=true needs liger-kernel, which is not installed: pip install liger-kernel."
        )
