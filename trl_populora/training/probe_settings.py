"""`ProbeSettings`: what is measured during a run, at the steps of `eval_strategy`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformers.utils import logging

from ..evaluation import exam_keys
from ..tasks import TaskType


if TYPE_CHECKING:
    from .config import PopulationSelfPlayConfig


logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class ProbeSettings:
    """Evaluations during a run, from which nobody learns (docs/probes.md).

    Args:
        exams (`list[str]`, *optional*): Names of exams, as in [`make_exams`], such as `["held_out",
            "gsm8k[:50]"]`. Default: `["held_out"]` in self-play, none on a dataset.
        data (`str`, *optional*): Folder with the files of benchmarks. If unset, they come from the Hub.
        teachers (`bool`, *optional*, defaults to `False`): Whether teachers take the exams, too.
        founders (`int`, *optional*, defaults to `8`): Number of proposal prompts per task type for the games against
            the founders (the first members), in self-play. 0 plays no such games.
        max_completion_length (`int`, *optional*): Maximum tokens of an answer. If unset, that of the exam, or else
            that of the run.

    Raises:
        ValueError: If a value is out of range.
    """

    exams: tuple[str, ...] | None = None
    data: str | None = None
    teachers: bool = False
    founders: int = 8
    max_completion_length: int | None = None

    def __post_init__(self) -> None:
        if self.founders < 0:
            raise ValueError(f"founders={self.founders} must be 0 (no games against founders) or more.")
        if self.max_completion_length is not None and self.max_completion_length < 1:
            raise ValueError(f"max_completion_length={self.max_completion_length} must be at least 1, or unset.")
        if self.exams is not None and len(set(self.exams)) < len(self.exams):
            raise ValueError(f"exams={list(self.exams)} names an exam twice.")


def asked_keys(args: PopulationSelfPlayConfig, types: Mapping[str, TaskType]) -> set[str]:
    """Keys of tasks in the exams of the probes, and in `reserved_exams`. The run may not learn from these tasks."""
    asked = {"probe_kwargs.exams": args.is_probed and args.probes.exams, "reserved_exams": args.reserved_exams}
    found: set[str] = set()
    for setting, names in asked.items():
        try:
            for name in names or ():
                keys = exam_keys([name], types)
                if not keys and setting == "reserved_exams":
                    logger.warning("reserved_exams: %s has no tasks, so nothing is kept out of training for it.", name)
                found |= keys
        except ValueError as error:
            raise ValueError(f"{setting}: {error}") from None
    return found
