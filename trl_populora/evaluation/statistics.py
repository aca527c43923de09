"""What shares of right answers are worth: intervals, paired differences, pass@k, and the best member without its luck.

Arrays of questions have shape `(questions,)`: each entry is a player's share of right answers to that question, NaN
where nothing is known (spared). The unit of chance is the question, everywhere.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import stats


class Estimate(NamedTuple):
    """A mean over questions, and its interval; NaN if there are none."""

    value: float
    low: float
    high: float


def share(rates: np.ndarray, *, level: float = 0.95) -> Estimate:
    """Mean of the known rates, with Wilson's score interval.

    For rates of 0 and 1 it is Wilson's interval itself (Wilson 1927). Rates between them, such as means over samples
    or members, vary less: their number counts as n / deff, with the design effect deff = variance / (p (1 - p)), as
    is usual in surveys (Korn and Graubard 1998). It stays within [0, 1], and where nobody solves anything it is not
    empty.
    """
    rates = rates[~np.isnan(rates)]
    if not rates.size:
        return Estimate(math.nan, math.nan, math.nan)
    p, variance = float(rates.mean()), float(rates.var())
    effect = variance / (p * (1 - p)) if 0 < p < 1 else 1.0
    z = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt(effect / rates.size)
    center, spread = (p + z * z / 2) / (1 + z * z), z * math.sqrt(p * (1 - p) + z * z / 4) / (1 + z * z)
    return Estimate(p, max(0.0, center - spread), min(1.0, center + spread))
