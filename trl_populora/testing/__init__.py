"""Contract checks for users' own classes, to be called in their tests. They use plain asserts and do not need pytest.

[`check_task_type`] checks the contract of a task type. `hostile.py` has the difficult texts. `child.py` runs checks in
separate, monitored processes.
"""

from trl_populora.testing.task_type import check_task_type


__all__ = ["check_task_type"]
