"""`Probes`: evaluations during a run from which nobody learns: exams with greedy decoding, and games against founders.

Probing changes nothing: rounds, rewards and weights are those of a run without it (tests/training/test_probes.py).
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transformers.utils import logging

from ..diagnostics.dynamics import mean
from ..evaluation import Exam, make_exams
from ..evaluation.evaluating import check_length
from ..evaluation.exam import plain_name
from ..generation.sampler import unchanged_random_states
from ..run_files.layout import FOUNDERS_FOLDER
from ..run_files.run import BASE
from .examiner import Examiner


if TYPE_CHECKING:
    from ..evaluation.results import ExamResult
    from .config import PopulationSelfPlayConfig
    from .founders import Founders
    from .row_source import RowSource

logger = logging.get_logger(__name__)


class Probes:
    """The probes of one run.

    Args:
        args ([`PopulationSelfPlayConfig`]): Settings.
        source ([`RowSource`]): Set up already.
        has_dataset (`bool`, *optional*, defaults to `False`): Whether TRL also evaluates members on a dataset.

    Attributes:
        exams (`list[Exam]` or `None`): The exams; `None` before [`Probes.prepare`].
        founders ([`Founders`] or `None`): The first members as opponents, if the run has any.
        last (`dict` or `None`): The newest record.

    Raises:
        ValueError: If an exam cannot be given, or evaluation is on and there is no exam, game or dataset.
    """

    def __init__(self, args: PopulationSelfPlayConfig, source: RowSource, *, has_dataset: bool = False) -> None:
        self.settings, self.source = args.probes, source
        self.examiner = Examiner(source)
        self.exams: list[Exam] | None = None
        self.founders: Founders | None = None
        self.last: dict[str, Any] | None = None
        self.seconds = 0.0
        self._base: dict[str, dict] = {}  # exam -> how it was asked, and scores of the base, which never change
        self._began, self._elapsed = time.perf_counter(), 0.0
        self._preparing = 0.0  # seconds of the founders' tasks, which are part of the first probe's cost
        if args.is_probed:
            self.prepare()
            if self.settings.founders:
                self.founders = source.make_founders(self.settings.founders)
            if not (self.has_exams or has_dataset):
                raise ValueError(
                    "eval_strategy is set, but there is nothing to evaluate with: name exams in probe_kwargs, pass an "
                    "eval_dataset if num_teachers=0, or set eval_strategy to 'no'."
                )

    @property
    def has_exams(self) -> bool:
        """Whether there are exams or games with founders."""
        return bool(self.exams or self.founders)

    def prepare(self) -> None:
        """Makes the exams, if that has not been done.

        Raises:
            ValueError: If one is unknown, has no data or cannot be given.
        """
        if self.exams is not None:
            return
        names = self.settings.exams
        if names is None:
            names = ["held_out"] if self.source.task_types else []
        try:
            exams = make_exams(names, self.source.task_types, data=self.settings.data)
            for exam in exams:
                self._check(exam)
        except ValueError as error:
            raise ValueError(f"probe_kwargs.exams: {error}") from None
        self.exams = exams

    def begin(self, *, step: int) -> None:
        """Called when training starts or resumes at this step. Starts the clock. At step 0, the current members become
        founders."""
        self._began = time.perf_counter()
        if step:
            return
        self.last, self.seconds, self._elapsed = None, 0.0, 0.0
        if self.founders is not None:
            with unchanged_random_states():
                self.source.sampler.sync()
                self.founders.start(self.examiner)
        self._preparing = time.perf_counter() - self._began

    def measure(self, *, step: int, round: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Evaluates the current members.

        Returns:
            `dict` and `list[dict]`: The record, and all answers to exams, with the keys of [`results.COLUMNS`].
        """
        start, self._preparing = time.perf_counter() - self._preparing, 0.0
        exams, founders, results = {}, None, []
        with unchanged_random_states():
            self.source.sampler.sync()
            for exam in self.exams or ():
                results.append(self._examine(exam))
                exams[exam.name] = self._summary(results[-1])
            if self.founders is not None and self.founders.started:
                founders, played = self.founders.play(self.examiner)
                results += played
        seconds = time.perf_counter() - start
        record = {"step": step, "round": round, "exams": exams, "founders": founders, "seconds": round_off(seconds)}
        return record, [row for result in results for row in result.rows()]

    def keep(self, record: dict[str, Any]) -> dict[str, Any]:
        """Adds the run's seconds so far to the record, and counts the probe's own."""
        self.seconds += record["seconds"]
        self.last = record | {"elapsed": round_off(self.elapsed), "probing": round_off(self.seconds)}
        return self.last

    @property
    def elapsed(self) -> float:
        """Seconds of training so far, including probes and the time before a resume."""
        return self._elapsed + time.perf_counter() - self._began

    def close(self) -> None:
        """Ends the processes that the probes have started. They may be used again."""
        self.examiner.close()

    # Files -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State that a resumed run needs, as data for JSON."""
        founders = self.founders
        return {
            "last": self.last,
            "base": self._base,
            "founders": founders.state_dict() if founders is not None and founders.started else None,
            "seconds": self.seconds,
            "elapsed": self.elapsed,
        }

    def save(self, folder: str) -> None:
        """Writes the founders' weights into a checkpoint."""
        if self.founders is not None:
            self.founders.save(os.path.join(folder, FOUNDERS_FOLDER))

    def load(self, folder: str, state: Mapping[str, Any]) -> None:
        """Restores the results of `state_dict` and `save`. The state is empty if the run had no probes so far."""
        self.last, self._base = state.get("last"), dict(state.get("base", {}))
        self.seconds, self._elapsed = state.get("seconds", 0.0), state.get("elapsed", 0.0)
        self._began = time.perf_counter()
        if self.founders is None:
            return
        if state.get("founders") is None:
            logger.warning(f"{folder} has no founders: the probes of this run have no games against them.")
            return
        self.founders.load(os.path.join(folder, FOUNDERS_FOLDER), state["founders"])

    # One exam ----------------------------------------------------------------------------------------------------

    @property
    def solvers(self) -> list[str]:
        """Members that solve tasks."""
        population = self.source.population
        return [*population.names("student"), *population.names("shared")]

    def _examine(self, exam: Exam) -> ExamResult:
        members = [*self.source.population.names("teacher")] if self.settings.teachers else []
        return self.examiner.examine(
            exam,
            [*members, *self.solvers],
            base=self._base.get(exam.name, {}).get("asked") != self._asked(exam),
            length=self.settings.max_completion_length,
        )

    def _asked(self, exam: Exam) -> list[Any]:
        """What the answers of the base depend on, as data for JSON."""
        sampler = self.source.sampler
        length = self.settings.max_completion_length or exam.max_completion_length or sampler.max_completion_length
        text = sampler.tokenizer.chat_template if sampler.template == "chat" else None
        return [exam.version, length, sampler.template, text, dict(sampler.chat_template_kwargs)]

    def _summary(self, result: ExamResult) -> dict[str, Any]:
        from ..evaluation.grading import summarise

        exam, players = result.exam, {}
        grades = {name: [one.grade for one in result.samples if one.player == name] for name in result.players}
        judged = not all(one.broke_the_grader for own in grades.values() for one in own)  # else zeros say nothing
        for player, own in grades.items():
            told = summarise(own)
            shares = {None: result.accuracy(player)} | {name: result.accuracy(player, name) for name in result.groups}
            known = {group: _known(share) if judged else None for group, share in shares.items()}
            players[player] = {
                "accuracy": known.pop(None),
                "groups": known,
                "well_formed": _known(told["well_formed"]) if judged else None,
                "spared": told["spared"],
            }
        if BASE not in players:
            players[BASE] = self._base[exam.name]["scores"]
        elif not any(one.broke_the_grader or one.verdict == "spared" for one in grades[BASE]):
            self._base[exam.name] = {"asked": self._asked(exam), "scores": players[BASE]}  # for later probes, too
        return {
            "version": exam.version,
            "questions": len(exam.questions),
            "mean": mean(players[name]["accuracy"] for name in self.solvers),
            "groups": {
                group: mean(players[name]["groups"][group] for name in self.solvers) for group in result.groups
            },
            "players": players,
        }

    def _check(self, exam: Exam) -> None:
        """Refuses exams that cannot be given or graded, before a run starts."""
        exam.make_grader(self.examiner.run)
        check_length(exam, self.source.sampler, max_completion_length=self.settings.max_completion_length)


def metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record under their names in trackers, without missing ones."""
    found: dict[str, float | None] = {}
    for name, exam in record["exams"].items():
        place = re.sub(r"[^\w.-]+", "_", plain_name(name)).strip("_")  # some trackers take no other characters
        found |= {f"{place}/{player}": scores["accuracy"] for player, scores in exam["players"].items()}
        found |= {f"{place}/{group}/mean": share for group, share in exam["groups"].items()}
        found[f"{place}/mean"] = exam["mean"]
    if record["founders"] is not None:
        for role in ("teachers", "students"):
            for player, numbers in record["founders"][role].items():
                found |= {f"founders/{kind}/{player}": value for kind, value in numbers.items()}
    found["probe_seconds"] = record["seconds"]
    return {name: value for name, value in found.items() if value is not None}


def round_off(seconds: float) -> float:
    return round(seconds, 3)


def _known(share: float) -> float | None:
    """JSON has no NaN: a share of nothing is null."""
    return None if math.isnan(share) else share
