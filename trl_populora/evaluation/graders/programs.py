"""`ProgramTests`: grading a Python program by what it prints, or a method by what it returns, as LiveCodeBench does."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ...tasks import Run
from ..grading import Grade, Grader


def program_reference(function: str | None, public: str, private: str) -> str:
    """
    The reference of a problem of LiveCodeBench.

    Args:
        function (`str` or `None`): Name of the function or method; `None` for a program that reads standard input.
        public (`str`): Public tests: a JSON list of objects with `input` and `output`.
        private (`str`): Private tests: the same, or packed: base64 of zlib of a pickled JSON text.
    """
    return json.dumps({"function": function, "public": public, "private": private})


class ProgramTests(Grader):
    """Share of completions that pass all tests."""

    def judge(self, completions: Sequence[str], references: Sequence[str], run: Run) -> list[Grade]:
        """One grade for each completion."""
        raise NotImplementedError  # follows
