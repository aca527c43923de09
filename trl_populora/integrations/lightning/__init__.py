"""Supervised training under `lightning.Trainer`: the warm start of a population, and the tiny base.

The only place that imports lightning. Examples come from seed tasks; the caller says what is trained on them.
"""

from .supervised import Example, SupervisedData, SupervisedModule, fit
from .warm_start import WarmStartReport, warm_start


__all__ = ["Example", "SupervisedData", "SupervisedModule", "WarmStartReport", "fit", "warm_start"]
