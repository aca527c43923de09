"""Scores of players in an exam, and the table of samples. Comparisons are in `statistics.py`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .answering import Sample
from .exam import Exam
from .statistics import per_question


COLUMNS: Mapping[str, type] = {
    "exam": str,
    "version": str,
    "player": str,
    "question": str,
    "group": str,
    "sample": int,
    "prompt": str,
    "completion": str,
    "tokens": int,
    "prompt_tokens": int,
    "answer": str,
    "verdict": str,
    "detail": str,
    "seconds": float,
}
"""Columns of the table of samples. `prompt` is what its messages say, without the chat template; `seconds` is the
grader's CPU time."""


@dataclass(frozen=True)
class ExamResult:
    """Graded answers of some players to one exam.

    Args:
        exam ([`Exam`]): The questions.
        samples (`Sequence[Sample]`): Graded samples. Every player has equally many for every question.
    """

    exam: Exam
    samples: Sequence[Sample]

    @property
    def players(self) -> list[str]:
        """The players, in the order of the samples."""
        return list(dict.fromkeys(one.player for one in self.samples))

    @cached_property
    def of_player(self) -> dict[str, list[Sample]]:
        """Player -> its samples, in their order."""
        found: dict[str, list[Sample]] = {}
        for one in self.samples:
            found.setdefault(one.player, []).append(one)
        return found

    def scores(self, player: str) -> np.ndarray:
        """1 for a solved answer, 0 for another, NaN for a spared one; shape `(questions, samples)`."""
        own = self.of_player.get(player, [])
        table = np.full((len(self.exam.questions), max((one.number for one in own), default=0) + 1), math.nan)
        for one in own:
            table[one.question, one.number] = one.grade.score
        return table

    def accuracy(self, player: str, group: str | None = None) -> float:
        """Share of right answers of a player, with each question counted once: the mean over questions of the mean
        over samples, without spared samples. NaN if all are spared."""
        rates = per_question(self.scores(player))
        if group is not None:
            rates = rates[[one.group == group for one in self.exam.questions]]
        known = rates[~np.isnan(rates)]
        return float(known.mean()) if known.size else math.nan

    @property
    def groups(self) -> list[str]:
        """Groups of the questions; empty if no question has one. They are in the order of the questions, and those
        that differ only in numbers (`level 2`, `level 10`) in the order of these."""
        found = dict.fromkeys(one.group for one in self.exam.questions if one.group)
        kinds = {kind: place for place, kind in enumerate(dict.fromkeys(re.sub("[0-9]+", "", one) for one in found))}
        return sorted(
            found, key=lambda one: (kinds[re.sub("[0-9]+", "", one)], [*map(int, re.findall("[0-9]+", one))])
        )

    def rows(self) -> list[dict[str, Any]]:
        """The samples as rows with the keys of `COLUMNS`."""
        version = self.exam.version  # a hash of all questions
        return [
            {
                "exam": self.exam.name,
                "version": version,
                "player": one.player,
                "question": self.exam.questions[one.question].id,
                "group": self.exam.questions[one.question].group,
                "sample": one.number,
                "prompt": "\n\n".join(part["content"] for part in self.exam.questions[one.question].prompt),
                "completion": one.text,
                "tokens": one.tokens,
                "prompt_tokens": one.prompt_tokens,
                "answer": one.grade.answer,
                "verdict": one.grade.verdict,
                "detail": one.grade.detail,
                "seconds": one.grade.seconds,
            }
            for one in self.samples
        ]
