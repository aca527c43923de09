"""Statistics over seeds: a mean with its interval, the difference of two arms, an effect size.

The unit of chance is the seed. Intervals are Student's, at `LEVEL`, our choice: few seeds leave little to resample.
Where runs are compared by an exam, its questions are a second unit of chance ([`over_questions`]).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special, stats


LEVEL = 0.95


class Interval(NamedTuple):
    """A mean over seeds and its interval at `LEVEL`. The ends are `None` for one seed, or if all values are equal."""

    mean: float
    low: float | None
    high: float | None


class Difference(NamedTuple):
    """The mean of an arm minus that of the control.

    Attributes:
        difference (`float`): Mean of the paired differences, or difference of the means.
        low, high (`float` or `None`): Interval at `LEVEL`.
        p (`float` or `None`): Two-sided p-value of the same t test.
        effect (`float` or `None`): Hedges' g ([`hedges_g`]).
        paired (`bool`): Whether seeds were paired.
        seeds, control_seeds (`int`): Seeds of either arm that went into it.
        why (`str`): What the reader must know: why there is no interval or effect size, or which seeds were left out.
    """

    difference: float
    low: float | None
    high: float | None
    p: float | None
    effect: float | None
    paired: bool
    seeds: int
    control_seeds: int
    why: str

    def clear(self, comparisons: int) -> bool:
        """Whether the interval excludes 0 when all `comparisons` share the chance of an error (Bonferroni)."""
        return self.p is not None and self.p <= (1 - LEVEL) / comparisons


class Reach(NamedTuple):
    """An interval at `LEVEL` around a difference, and the p-value of the same test."""

    low: float
    high: float
    p: float


def interval(values: Sequence[float]) -> Interval:
    """Mean of at least one value, one of each seed, with Student's interval."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2 or _flat(np.array(values)):
        return Interval(mean, None, None)
    low, high, _ = _around(mean, float(stats.sem(values)), len(values) - 1)
    return Interval(mean, low, high)


def difference(arm: Mapping[int, float], control: Mapping[int, float]) -> Difference:
    """
    The difference of two arms. If every seed of one arm is also in the other, it is the mean of the paired
    differences. Otherwise it is the difference of the means, with Welch's interval.

    Args:
        arm, control (`Mapping[int, float]`): Seed -> value; at least one each.
    """
    common = sorted(arm.keys() & control.keys())
    if len(common) == 1 == min(len(arm), len(control)):
        (seed,) = common
        why = f"an arm has one seed, {seed}: the difference is that of this seed"
        return Difference(arm[seed] - control[seed], None, None, None, None, True, 1, 1, why)
    if len(common) >= 2 and len(common) == min(len(arm), len(control)):
        found = _paired(np.array([arm[seed] - control[seed] for seed in common]))
        if len(arm) == len(control):
            return found
        over = f"only over seeds {', '.join(map(str, common))}, which both have"
        return found._replace(why="; ".join(filter(None, (found.why, over))))
    return _unpaired(np.array(list(arm.values())), np.array(list(control.values())))


def over_questions(differences: np.ndarray) -> Reach | None:
    """
    The interval of a difference in an exam if other seeds were run, and other questions were asked.

    Seeds and questions are crossed random effects, because all runs answer the same questions. The variance of the
    mean is (M_seeds + M_questions - M_rest) / (S Q), by the mean squares of the two-way table. Degrees of freedom are
    Satterthwaite's. With few seeds this variance is uncertain, and questions lend it degrees of freedom. So the
    variance, the interval and p are at least those over seeds alone and over questions alone (our choice).

    Args:
        differences (`np.ndarray` of shape `(S, Q)`): Arm minus control, for each seed and question.

    Returns:
        [`Reach`], or `None` for fewer than two seeds or questions, or if the means of all seeds are equal, and those
        of all questions.
    """
    if min(differences.shape) < 2 or _flat(differences):
        return None
    S, Q = differences.shape
    mean, seeds, questions = differences.mean(), differences.mean(axis=1), differences.mean(axis=0)
    rest = differences - seeds[:, None] - questions + mean
    by_seeds, by_questions = seeds.var(ddof=1) / S, questions.var(ddof=1) / Q
    by_rest = (rest**2).sum() / ((S - 1) * (Q - 1)) / (S * Q)
    variance = max(by_seeds + by_questions - by_rest, by_seeds, by_questions)
    if variance < 1e-12 * differences.var():  # nothing but the rest varies
        return None
    parts = ((by_seeds, S - 1), (by_questions, Q - 1), (by_rest, (S - 1) * (Q - 1)))
    degrees = variance**2 / sum(part**2 / count for part, count in parts)
    tests = [(variance, degrees), (by_seeds, S - 1), (by_questions, Q - 1)]
    found = [_around(float(mean), math.sqrt(own), count) for own, count in tests if own > 0]
    return Reach(*(choose(ends) for choose, ends in zip((min, max, max), zip(*found, strict=True), strict=True)))


def hedges_g(difference: float, deviation: float, degrees: int) -> float | None:
    """
    A difference in standard deviations, without the bias of few seeds: J d (Hedges 1981), with the exact
    J = Γ(m / 2) / (√(m / 2) Γ((m - 1) / 2)) of m degrees of freedom.

    Args:
        difference (`float`): Difference of means.
        deviation (`float`): Standard deviation: of the paired differences, or the pooled one of two arms.
        degrees (`int`): Degrees of freedom of that deviation, m.

    Returns:
        `float` or `None`: `None` where the deviation is 0, and of one degree, whose J is 0.
    """
    if degrees < 2 or not deviation > 0:
        return None
    half = degrees / 2
    return (
        float(math.exp(special.gammaln(half) - special.gammaln(half - 0.5)) / math.sqrt(half)) * difference / deviation
    )


def _paired(found: np.ndarray) -> Difference:
    mean, deviation, count = float(found.mean()), float(found.std(ddof=1)), found.size
    if _flat(found):
        return Difference(mean, None, None, None, None, True, count, count, "same in every seed")
    error, degrees = deviation / math.sqrt(count), count - 1
    few = "" if degrees > 1 else "two seeds: no effect size"
    return Difference(
        mean, *_around(mean, error, degrees), hedges_g(mean, deviation, degrees), True, count, count, few
    )


def _unpaired(arm: np.ndarray, control: np.ndarray) -> Difference:
    mean, sizes = float(arm.mean() - control.mean()), (arm.size, control.size)
    if min(sizes) < 2:
        return Difference(mean, None, None, None, None, False, *sizes, "an arm has one seed")
    if _flat(arm) and _flat(control):
        return Difference(mean, None, None, None, None, False, *sizes, "seeds do not differ")
    parts = [float(one.var(ddof=1)) / one.size for one in (arm, control)]
    error = math.sqrt(sum(parts))
    degrees = sum(parts) ** 2 / sum(part**2 / (size - 1) for part, size in zip(parts, sizes))
    within = sum(sizes) - 2
    pooled = math.sqrt(sum(float(one.var(ddof=1)) * (one.size - 1) for one in (arm, control)) / within)
    return Difference(mean, *_around(mean, error, degrees), hedges_g(mean, pooled, within), False, *sizes, "")


def _flat(values: np.ndarray) -> bool:
    """Whether values are equal but for rounding."""
    return float(np.ptp(values)) <= 1e-12 * max(1.0, float(np.abs(values).max()))


def _around(mean: float, error: float, degrees: float) -> tuple[float, float, float]:
    """The interval's ends, and the p-value."""
    low, high = stats.t.interval(LEVEL, degrees, mean, error)
    return float(low), float(high), float(2 * stats.t.sf(abs(mean) / error, degrees))
