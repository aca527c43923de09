"""How many examples Hypothesis draws: a fifth of them in the fast tests, all in `make test-slow`.

The marker `hypothesis`, which Hypothesis's own plugin gives to every property, selects them there. Tests with the
marker `sized` ask [`FULL`] themselves.
"""

import os

from hypothesis import settings


FULL = os.environ.get("HYPOTHESIS_PROFILE") == "full"


def drawn(number: int) -> int:
    """Examples of a property for which `number` are enough: at least five."""
    return number if FULL else max(number // 5, min(number, 5))


def examples(number: int) -> settings:
    """`hypothesis.settings` of a property that wants another number of examples than a hundred."""
    return settings(max_examples=drawn(number))


def load_profile() -> None:
    """The settings of all properties. A time per example would measure what else the machine does: there is none."""
    settings.register_profile("populora", max_examples=drawn(100), deadline=None)
    settings.load_profile("populora")
