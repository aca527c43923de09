"""Compares runs: groups them into arms and seeds, and computes curves, differences between arms, and costs.

It only computes numbers. `over_seeds` has intervals and effect sizes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from ..diagnostics import RoundSummary
from ..run_files.run import AVERAGE
from .over_seeds import Difference, Interval, difference, interval
from .played_run import ENDS, EXAMS, FINAL, SETTINGS, Curve, PlayedRun, flat
from .tables import Spent, champions_total, compute_totals, counted


LAST = 10
"""Rounds at the end over which an arm's curves are averaged to compare them, but at most half of the rounds."""
QUOTE = '"'


@dataclass(frozen=True)
class Arm:
    """Runs that differ only in their seed.

    Args:
        name (`str`): Name of the arm.
        runs (`tuple[PlayedRun, ...]`): At least one.
    """

    name: str
    runs: tuple[PlayedRun, ...]

    def by_seed(self, pick: Callable[[PlayedRun], float | None]) -> dict[int, float]:
        """Seed -> value, for seeds that have one. Several runs of a seed give their mean."""
        values: dict[int, list[float]] = {}
        for run in self.runs:
            if (value := pick(run)) is not None:
                values.setdefault(run.seed, []).append(value)
        return {seed: fmean(own) for seed, own in values.items()}


class Point(NamedTuple):
    """Mean over the seeds of an arm at a round, its interval, and the seeds with a value."""

    round: int
    mean: float
    low: float | None
    high: float | None
    seeds: int


class Row(NamedTuple):
    """One measure for all arms: values over seeds, and differences to the control; `None` without values."""

    measure: str
    values: tuple[Interval | None, ...]
    differences: tuple[Difference | None, ...]


class Cost(NamedTuple):
    """What a run of an arm learned from in the compared rounds, as a mean over the runs of the arm."""

    adapters: float
    rows: float
    prompt_tokens: float
    completion_tokens: float
    updates: float
    unlearned_rows: float
    unlearned_tokens: float
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """Comparison of arms over the rounds that all their runs have played. The first arm is the control.

    Args:
        arms (`tuple[Arm, ...]`): At least one.

    Raises:
        ValueError: If no round is in the history of all runs.
    """

    arms: tuple[Arm, ...]

    def __post_init__(self) -> None:
        if self.first > self.rounds:
            told = ", ".join(f"{run.folder} has rounds {run.first} to {run.rounds}" for run in self.runs)
            raise ValueError(f"No round is in the history of all runs: {told}. Compare runs with common rounds.")

    @property
    def runs(self) -> tuple[PlayedRun, ...]:
        return tuple(run for arm in self.arms for run in arm.runs)

    @property
    def first(self) -> int:
        """Number of the first round that all histories have."""
        return max(run.first for run in self.runs)

    @property
    def rounds(self) -> int:
        """Rounds that all runs have played."""
        return min(run.rounds for run in self.runs)

    @property
    def span(self) -> str:
        """The rounds that all histories have, in words."""
        return counted(self.rounds, "round") if self.first == 1 else f"rounds {self.first} to {self.rounds}"

    @property
    def last(self) -> int:
        """Number of last rounds over which a curve is averaged."""
        return min(LAST, max(1, (self.rounds - self.first + 1) // 2))

    @property
    def measures(self) -> list[str]:
        """Names of all curves and final exams, in the order in which runs have them."""
        curves = dict.fromkeys(name for run in self.runs for name in run.curves)
        evaluated = [exam for run in self.runs for exam in run.evaluation.get("exams", ())]
        kinds = (*ENDS, *([AVERAGE] if any(AVERAGE in exam["scores"] for exam in evaluated) else []))
        exams = dict.fromkeys(f"{FINAL}{exam}/{kind}" for run in self.runs for exam in run.exams for kind in kinds)
        return [*curves, *exams]

    def run_curve(self, run: PlayedRun, measure: str) -> Curve:
        """A run's curve in the rounds that all histories have. An exam may be taken before the first of them."""
        rounds = range(self.first - measure.startswith(EXAMS), self.rounds + 1)
        return {number: value for number, value in run.curve(measure).items() if number in rounds}

    def curve(self, arm: Arm, measure: str) -> list[Point]:
        """An arm's mean and interval, for every common round in which at least one seed has a value."""
        curves = {id(run): self.run_curve(run, measure) for run in arm.runs}
        rounds = sorted({number for curve in curves.values() for number in curve})
        points = []
        for number in rounds:
            values = list(arm.by_seed(lambda run, number=number: curves[id(run)].get(number)).values())
            points.append(Point(number, *interval(values), len(values)))
        return points

    def value(self, run: PlayedRun, measure: str) -> float | None:
        """A run's value of a measure, or `None`: the mean over the last common rounds. For an exam during the run, the
        score at the newest probe that all runs with this exam have."""
        if measure.startswith(FINAL):
            exam, _, kind = measure.removeprefix(FINAL).rpartition("/")
            return run.exams.get(exam, {}).get(kind)
        curve = run.curve(measure)
        if measure.startswith(EXAMS):
            common = set.intersection(*(set(one.curves[measure]) for one in self.runs if measure in one.curves))
            newest = max((number for number in common if number <= self.rounds), default=None)
            return curve.get(newest) if newest is not None else None
        return tail_mean(curve, self.rounds, self.last)

    def row(self, measure: str, pick: Callable[[PlayedRun], float | None] | None = None) -> Row:
        """A measure of all arms, by [`Comparison.value`] or by another number of each run."""
        pick = pick or (lambda run: self.value(run, measure))
        values = [arm.by_seed(pick) for arm in self.arms]
        return Row(
            measure,
            tuple(interval(list(own.values())) if own else None for own in values),
            tuple(difference(own, values[0]) if own and values[0] else None for own in values[1:]),
        )

    def cost(self, arm: Arm) -> Cost:
        """What a run of the arm has cost, in mean over its runs."""
        return Cost(*map(fmean, zip(*(run_cost(self._common(run)) for run in arm.runs))))

    def adapters(self, arm: Arm) -> dict[str, tuple[float, ...]]:
        """Adapter -> the numbers of [`tables.Spent`] as means over runs; and `"champions"`, if there were any."""
        histories = [self._common(run) for run in arm.runs]
        totals: list[dict[str, Spent]] = [compute_totals(history) for history in histories]
        guests = [champions_total(history) for history in histories]
        if any(one.unlearned_rows for one in guests):
            totals = [own | {"champions": one} for own, one in zip(totals, guests, strict=True)]
        names = dict.fromkeys(name for own in totals for name in own)
        return {name: tuple(map(fmean, zip(*(own[name] for own in totals if name in own)))) for name in names}

    def _common(self, run: PlayedRun) -> list[RoundSummary]:
        return [summary for summary in run.history if self.first <= summary.round + 1 <= self.rounds]

    def settings(self) -> tuple[dict[str, list[str]], dict[str, str]]:
        """Settings in which arms differ, with the value of each arm, and settings that all arms share. A missing value
        is `""`."""
        arms = [arm.runs[0].settings for arm in self.arms]
        names = dict.fromkeys(name for own in arms for name in own)
        table = {name: [own.get(name, "") for own in arms] for name in names}
        differ = {name: values for name, values in table.items() if len(set(values)) > 1}
        return differ, {name: values[0] for name, values in table.items() if name not in differ}

    def equal_runs(self) -> list[str]:
        """A sentence for each group of runs, of several arms, in which all rewards and gradients were equal."""
        courses: dict[tuple, list[int]] = {}
        for number, run in enumerate(self.runs):
            course = [(one.name, one.reward, one.grad_norm) for summary in run.history for one in summary.members]
            if any(norm is not None for *_, norm in course):
                courses.setdefault(tuple(course), []).append(number)
        equal = [own for own in courses.values() if len({self._placed[number][0].name for number in own}) > 1]
        return [
            f"{self._named(own)}: all rewards and gradient norms of these runs are equal, so what the arms set "
            "differently has changed nothing."
            for own in equal
        ]

    def circumstances(self) -> list[str]:
        """Differences between runs besides settings, such as versions, commits and machines, and final exams that were
        not given to all, one sentence each."""
        told_elsewhere = (*SETTINGS, "process", "resumed")
        records = [flat({k: v for k, v in run.record.items() if v and k not in told_elsewhere}) for run in self.runs]
        sentences = self._differences(dict(enumerate(records)))
        given: dict[str, dict[int, dict[str, str]]] = {}  # exam -> run -> how it was asked
        for number, run in enumerate(self.runs):
            for exam in run.evaluation.get("exams", ()):
                asked = {key: exam[key] for key in ("version", "decoding") if key in exam}
                given.setdefault(exam["exam"], {})[number] = flat({f"final exam {exam['exam']}": asked})
        for exam, asked in sorted(given.items()):
            if without := [number for number in range(len(self.runs)) if number not in asked]:
                sentences.append(f"Final exam {exam}: not given to {self._named(without)}.")
            sentences += self._differences(asked)
        return sentences

    def _differences(self, records: Mapping[int, Mapping[str, str]]) -> list[str]:
        """A sentence for each name whose values differ between the runs of these numbers."""
        sentences = []
        for name in sorted({name for record in records.values() for name in record}):
            places: dict[str, list[int]] = {}
            for number, record in records.items():
                places.setdefault(record.get(name, "not recorded"), []).append(number)
            if len(places) > 1:
                told = "; ".join(f"{value.strip(QUOTE)} in {self._named(own)}" for value, own in places.items())
                sentences.append(f"{_in_words(name)}: {told}.{self._confounded(list(places.values()))}")
        return sentences

    def _named(self, numbers: Sequence[int]) -> str:
        """Names for a set of runs: an arm if all its runs are in the set, otherwise each run as `arm/seed`, or by its
        folder if the arm has its seed twice."""
        placed, words = self._placed, []
        for arm in self.arms:
            some = [run for number, (other, run) in enumerate(placed) if other is arm and number in numbers]
            seeds = [run.seed for run in arm.runs]
            told = [run.folder if seeds.count(run.seed) > 1 else f"{arm.name}/{run.seed}" for run in some]
            words += [arm.name] if len(some) == len(seeds) else told
        return ", ".join(words)

    @property
    def _placed(self) -> list[tuple[Arm, PlayedRun]]:
        return [(arm, run) for arm in self.arms for run in arm.runs]

    def _confounded(self, groups: Sequence[Sequence[int]]) -> str:
        """A warning if no arm has runs of two groups. Then the property that makes the groups, and not the settings,
        may be the cause of a difference between arms."""
        arms = [{self._placed[number][0].name for number in group} for group in groups]
        together = any(one & other for i, one in enumerate(arms) for other in arms[:i])
        return (
            ""
            if together or len(self.arms) < 2
            else " It differs in the same way as the arms, so either may be the cause."
        )


def group_arms(runs: Sequence[PlayedRun]) -> tuple[Arm, ...]:
    """Groups runs into arms. Runs with the same settings, except for the seed and paths, are one arm. Arms are in the
    order of their first runs."""
    groups: dict[str, list[PlayedRun]] = {}
    for run in runs:
        groups.setdefault(json.dumps(run.settings, sort_keys=True), []).append(run)
    arms = [tuple(own) for own in groups.values()]
    unnamed = Comparison(tuple(Arm("", own) for own in arms))
    differ, _ = unnamed.settings()
    names = [_arm_name(own, {name: values[i] for name, values in differ.items()}) for i, own in enumerate(arms)]
    repeated = {name for name in names if names.count(name) > 1}
    return tuple(
        Arm(f"{name} ({own[0].folder})" if name in repeated else name, own)
        for name, own in zip(names, arms, strict=True)
    )


def _arm_name(runs: Sequence[PlayedRun], differ: Mapping[str, str]) -> str:
    """Name of an arm: its one or two different settings if they are short, otherwise the common part of its folders'
    names."""
    told = ", ".join(
        f"{name.removeprefix('settings.')}={value.strip(QUOTE) or 'unset'}" for name, value in differ.items()
    )
    if told and len(differ) <= 2 and len(told) <= 60:
        return told
    shared = os.path.commonprefix([run.name for run in runs])
    return shared.rstrip("-_. ") or shared or runs[0].name


def tail_mean(curve: Mapping[int, float], rounds: int, last: int) -> float | None:
    """Mean of the values in the last `last` of the first `rounds` rounds. Rounds without a value are left out."""
    values = [value for number, value in curve.items() if rounds - last < number <= rounds]
    return fmean(values) if values else None


def run_cost(history: Sequence[RoundSummary]) -> Cost:
    """What a run learned from in these rounds, at least one."""
    totals = compute_totals(history)
    seconds = sum(sum(summary.seconds.values()) for summary in history)
    spent = Spent(*map(sum, zip(*totals.values(), champions_total(history))))
    return Cost(len(totals), *spent, seconds=seconds)


def _in_words(name: str) -> str:
    """The words for a dotted name of a run's record, for sentences."""
    kind, _, rest = name.partition(".")
    return {
        "versions": f"Version of {rest}",
        "git": {"commit": "Commit", "changed": "Files differed from the commit"}.get(rest, name),
        "hardware": f"Hardware, {rest.replace('_', ' ')}",
        "exams": f"Version of the exam {rest}",
        "isolation": "Level of the sandbox",
    }.get(kind, name)
