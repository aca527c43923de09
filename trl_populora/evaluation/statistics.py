"""Statistics of shares of right answers: intervals, paired differences, pass@k, and the best member without selection
bias.

An array of *rates* has shape `(questions,)`: the share of right answers to each question, NaN if it is not known
(spared). Questions are the random unit in all functions. No function warns or returns NaN if all data are equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special, stats


LEVEL = 0.95
NORMAL = float(special.ndtri((1 + LEVEL) / 2))  # how far an interval goes, in standard errors
RESAMPLES = 9_999
FOLDS = 10


class Estimate(NamedTuple):
    """A mean over questions and its interval at `LEVEL`; NaN if nothing is known."""

    value: float
    low: float
    high: float


class Difference(NamedTuple):
    """A mean paired difference over questions and its interval at `LEVEL`.

    Attributes:
        difference, low, high (`float`): In [-1, 1]; NaN if nothing is known.
        significant (`bool`): Whether the interval at level 1 - (1 - `LEVEL`) / comparisons excludes 0 (Bonferroni)
            and a sign-flip test agrees. If few questions differ, the interval alone excludes 0 several times too
            often. The test is exact for two players that are equally good at every question.
    """

    difference: float
    low: float
    high: float
    significant: bool


def share(rates: np.ndarray) -> Estimate:
    """Mean of the known rates, with Wilson's score interval.

    For rates of 0 and 1 it is Wilson's interval itself (Wilson 1927). Rates between them, such as means over samples
    or members, vary less: their number counts as n / deff, with the design effect deff = variance / (p (1 - p)) times
    the square of the ratio of Student's quantile to the normal one, as in surveys (Korn and Graubard 1998). Between
    1 / n and 1, our choice: n equal rates, or a single one, do not show that there is no variance. It stays within
    [0, 1] and is never empty.
    """
    rates = rates[~np.isnan(rates)]
    if not rates.size:
        return Estimate(math.nan, math.nan, math.nan)
    p = float(rates.mean())
    effect = 1.0
    if 0 < p < 1 and rates.size > 1:
        few = float(special.stdtrit(rates.size - 1, (1 + LEVEL) / 2)) / NORMAL
        effect = min(1.0, max(1 / rates.size, few**2 * float(rates.var(ddof=1)) / (p * (1 - p))))
    ratio = NORMAL**2 * effect / rates.size
    center, spread = (p + ratio / 2) / (1 + ratio), math.sqrt(ratio * (p * (1 - p) + ratio / 4)) / (1 + ratio)
    return Estimate(p, float(max(0.0, min(p, center - spread))), float(min(1.0, max(p, center + spread))))


def difference(rates: np.ndarray, other: np.ndarray, *, comparisons: int = 1, seed: int = 0) -> Difference:
    """Mean of `rates - other` over the questions that both know, by the bootstrap over questions (BCa, Efron 1987).

    If all differences are equal, all resamples are equal, too. So if all n differences are c, the interval has the
    values that n questions cannot exclude: another share u of all questions, with (1 - u)^n = (1 - level) / 2, on
    which the difference is -1, or 1. It ends at c - u (1 + c) and c + u (1 - c).

    Args:
        rates, other (`np.ndarray`): Shape `(questions,)`, in [0, 1] or NaN.
        comparisons (`int`, *optional*, defaults to `1`): Number of comparisons made together.
        seed (`int`, *optional*, defaults to `0`): Seed of the resamples.

    Returns:
        [`Difference`]: NaN and not significant if there is no common question.
    """
    found = (rates - other)[~np.isnan(rates - other)]
    if not found.size:
        return Difference(math.nan, math.nan, math.nan, False)
    strict = 1 - (1 - LEVEL) / comparisons
    if np.ptp(found) < 1e-12:
        (low, high), bounds = (_equal_differences(float(found[0]), found.size, level) for level in (LEVEL, strict))
    else:
        resamples = max(RESAMPLES, 200 * comparisons)  # some beyond the strict bounds
        drawn = stats.bootstrap(
            (found,), np.mean, confidence_level=LEVEL, n_resamples=resamples, batch=500, method="BCa",
            rng=np.random.default_rng(seed),
        )  # fmt: skip
        again = stats.bootstrap(
            (found,), np.mean, confidence_level=strict, n_resamples=0, batch=500, method="BCa", bootstrap_result=drawn
        )
        (low, high), bounds = drawn.confidence_interval, again.confidence_interval
    excluded = bounds[0] > 0 or bounds[1] < 0
    significant = excluded and _flipped_at_random(found, comparisons, seed) <= 1 - strict
    return Difference(float(found.mean()), float(low), float(high), bool(significant))


def _flipped_at_random(found: np.ndarray, comparisons: int, seed: int) -> float:
    """Two-sided p-value: how often the mean with random signs is at least as far from 0."""
    tested = stats.permutation_test(
        (found[found != 0],), np.mean, permutation_type="samples", n_resamples=max(RESAMPLES, 200 * comparisons),
        batch=500, vectorized=True, rng=np.random.default_rng(seed),
    )  # fmt: skip
    return float(tested.pvalue)


def _equal_differences(value: float, count: int, level: float) -> tuple[float, float]:
    unseen = 1 - ((1 - level) / 2) ** (1 / count)
    return value - unseen * (1 + value), value + unseen * (1 - value)


def pass_at_k(scores: np.ndarray, k: int) -> np.ndarray:
    """Probability that of k samples at least one is right, question by question: the unbiased estimate from n samples
    of which c are right, 1 - C(n - c, k) / C(n, k), as the product of Chen et al. (2021), equation 1.

    Args:
        scores (`np.ndarray`): 1, 0 or NaN (spared), of shape `(questions, samples)`.
        k (`int`): At least 1.

    Returns:
        `np.ndarray`: Shape `(questions,)`; NaN if fewer than k samples are judged.
    """
    judged, solved = (~np.isnan(scores)).sum(axis=1), np.nansum(scores, axis=1).astype(int)
    rates = np.full(len(scores), math.nan)
    for i, (n, c) in enumerate(zip(judged, solved, strict=True)):
        if n >= k:
            rates[i] = 1.0 if n - c < k else 1.0 - float(np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))
    return rates


def per_question(scores: np.ndarray) -> np.ndarray:
    """Mean over samples, without spared ones: `(questions, samples)` -> `(questions,)`; NaN if all are spared."""
    judged = (~np.isnan(scores)).sum(axis=1)
    return np.where(judged > 0, np.nansum(scores, axis=1) / np.maximum(judged, 1), math.nan)


def mean_rates(players: Sequence[np.ndarray]) -> np.ndarray:
    """Mean over players for each question, without NaN; shape `(questions,)`."""
    return per_question(np.stack(players).T)


def chosen_elsewhere(players: Sequence[np.ndarray], *, weakest: bool = False, seed: int = 0) -> np.ndarray:
    """Rates of the best player, chosen on other questions than those it is scored on.

    The maximum of noisy scores is too high, and more so with more players. So questions are divided into ten random
    folds. For each fold, the player with the highest mean on all other folds is chosen (if several are equal, all of
    them), and its rates in this fold are used. The choice does not depend on the questions that are scored. So for
    equally good players, the expected mean of these rates is their common rate.

    Args:
        players (`Sequence[np.ndarray]`): Rates of each, of shape `(questions,)`.
        weakest (`bool`, *optional*, defaults to `False`): Whether to choose the lowest mean instead.
        seed (`int`, *optional*, defaults to `0`): Seed of the folds.

    Returns:
        `np.ndarray`: Shape `(questions,)`. With one question, nothing can be chosen, and it is the mean over players.
    """
    table = np.stack(players)
    count = table.shape[1]
    if count < 2:
        return mean_rates(players)
    dealt = np.random.default_rng(seed).permutation(count) % min(FOLDS, count)
    rates = np.full(count, math.nan)
    for fold in range(dealt.max() + 1):
        others, own = table[:, dealt != fold], dealt == fold
        means = per_question(others)
        if np.isnan(means).all():
            continue
        target = np.nanmin(means) if weakest else np.nanmax(means)
        chosen = [row[own] for row, mean in zip(table, means, strict=True) if abs(mean - target) < 1e-12]
        rates[own] = mean_rates(chosen)
    return rates
