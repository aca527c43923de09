"""Tasks: what is played. `code_o`, `code_i` and `code_f`, their prompts, parsing, validity and correctness, the buffer
and the seed tasks.

This room turns text into tasks and answers into verdicts. It knows no model, no member and no reward, and runs nothing
itself: task types hand jobs to the executor and compare canonical bytes.
"""

from __future__ import annotations

from trl_populora.tasks.base import STYLES, TaskLimits, TaskType
from trl_populora.tasks.buffer import TaskBuffer, draft_key, is_seed
from trl_populora.tasks.code_f import CodeF
from trl_populora.tasks.code_i import CodeI
from trl_populora.tasks.code_o import CodeO
from trl_populora.tasks.families import EASY_FAMILIES, FAMILIES
from trl_populora.tasks.hygiene import check_program
from trl_populora.tasks.seeds import generate_task, identity_tasks, seed_tasks
from trl_populora.tasks.task import REASONS, Answer, Draft, Refusal, Task
from trl_populora.tasks.templates import BASE_STOP, render_prompt
from trl_populora.tasks.verdict import INFRASTRUCTURE, Verdict, is_spared, judge_answers


__all__ = [
    "BASE_STOP",
    "EASY_FAMILIES",
    "FAMILIES",
    "INFRASTRUCTURE",
    "REASONS",
    "STYLES",
    "Answer",
    "CodeF",
    "CodeI",
    "CodeO",
    "Draft",
    "Refusal",
    "Task",
    "TaskBuffer",
    "TaskLimits",
    "TaskType",
    "Verdict",
    "check_program",
    "draft_key",
    "generate_task",
    "identity_tasks",
    "is_spared",
    "judge_answers",
    "is_seed",
    "render_prompt",
    "seed_tasks",
    "task_types",
]


def task_types(
    style: str = "full",
    *,
    num_function_inputs: int = 10,
    num_references: int | None = None,
    limits: TaskLimits | None = None,
) -> dict[str, TaskType]:
    """
    The three task types, ready to use. Add your own to the dict.

    Args:
        style (`str`, *optional*, defaults to `"full"`):
            Wording of the prompts, `"full"` or `"compact"`; see [`TaskType`].
        num_function_inputs (`int`, *optional*, defaults to `10`):
            Inputs per `code_f` task, at least 2; half of them, rounded down, are visible.
        num_references (`int`, *optional*):
            Reference tasks per proposal prompt. Default: 6 in the full style, 1 in the compact style.
        limits (`TaskLimits`, *optional*):
            Limits of size and precision.

    Returns:
        `dict[str, TaskType]`: by id: `"code_o"`, `"code_i"`, `"code_f"`.
    """
    common = {"style": style, "limits": limits or TaskLimits(), "num_references": num_references}
    types = (CodeO(**common), CodeI(**common), CodeF(**common, num_inputs=num_function_inputs))
    return {task_type.id: task_type for task_type in types}
