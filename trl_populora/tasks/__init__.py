"""Tasks: the definition of a task type, the types of the package, the referee, and the buffer.

This subpackage turns text into tasks and answers into verdicts. It does not depend on models, members or rewards. It
runs no programs itself: task types pass jobs to the executor and compare plain values.
"""

from __future__ import annotations

from trl_populora.tasks.base import STYLES, Features, Run, TaskType, features_of, refused_by
from trl_populora.tasks.buffer import TaskBuffer, is_seed
from trl_populora.tasks.referee import Referee, Verdict
from trl_populora.tasks.registry import (
    DEFAULT_TYPES,
    families_of,
    known_task_types,
    make_task_types,
    recorded,
    task_type_class,
)
from trl_populora.tasks.task import INFRASTRUCTURE, REASONS, Answer, Draft, Payload, Refusal, Task, is_spared
from trl_populora.tasks.templates import BASE_STOP, read_back, render_prompt, tokenize_prompt


__all__ = [
    "BASE_STOP",
    "DEFAULT_TYPES",
    "INFRASTRUCTURE",
    "REASONS",
    "STYLES",
    "Answer",
    "Draft",
    "Features",
    "Payload",
    "Referee",
    "Refusal",
    "Run",
    "Task",
    "TaskBuffer",
    "TaskType",
    "Verdict",
    "families_of",
    "is_seed",
    "is_spared",
    "features_of",
    "known_task_types",
    "make_task_types",
    "recorded",
    "refused_by",
    "read_back",
    "render_prompt",
    "task_type_class",
    "tokenize_prompt",
]
