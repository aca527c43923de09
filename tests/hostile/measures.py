"""Executors without some measures of isolation, to see what the others do alone."""

from collections.abc import Sequence
from typing import Any

import pytest

from trl_populora.executor import executor
from trl_populora.executor.worker import Worker


def leave_out(patch: pytest.MonkeyPatch, measures: Sequence[str]) -> None:
    """Lets all executors that start from now on run without these measures (names of `levels`)."""

    def make(limits: Any, modules: list[str], settings: dict) -> Worker:
        return Worker(limits, modules, settings | {"without": list(measures)})

    patch.setattr(executor, "Worker", make)
