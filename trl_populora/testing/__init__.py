"""Contract suites for what users write themselves, to be called in their own tests. Plain asserts, no pytest needed.

Here: [`check_task_type`], the contract of a task type. What it throws at a type is in `hostile.py`; what runs in
processes of its own, under watch, in `child.py`.
"""

from trl_populora.testing.task_type import check_task_type


__all__ = ["check_task_type"]
