"""From names to benchmarks: those that come with the package, and a user's own by `module:Name`. An exam of a user's
own is a function of that name without arguments."""

from __future__ import annotations

from collections.abc import Callable

from ...named import named
from ...settings import suggest
from .benchmark import Benchmark


BUILT_IN = {
    "humaneval_plus": "trl_populora.evaluation.benchmarks.humaneval_plus:HUMANEVAL_PLUS",
    "mbpp_plus": "trl_populora.evaluation.benchmarks.mbpp_plus:MBPP_PLUS",
    "livecodebench": "trl_populora.evaluation.benchmarks.livecodebench:LIVECODEBENCH",
    "gsm8k": "trl_populora.evaluation.benchmarks.gsm8k:GSM8K",
    "math_500": "trl_populora.evaluation.benchmarks.math_500:MATH_500",
    "aime24": "trl_populora.evaluation.benchmarks.aime:AIME24",
    "aime25": "trl_populora.evaluation.benchmarks.aime:AIME25",
    "amc23": "trl_populora.evaluation.benchmarks.amc23:AMC23",
    "minerva": "trl_populora.evaluation.benchmarks.minerva:MINERVA",
    "olympiadbench": "trl_populora.evaluation.benchmarks.olympiadbench:OLYMPIADBENCH",
}
"""Benchmarks that come with the package: id -> record."""


def benchmark(name: str) -> Benchmark | Callable[..., object]:
    """
    The benchmark of a name.

    Args:
        name (`str`): Id of one of `BUILT_IN`, or `"module:Name"` of your own [`Benchmark`], or of your own function
            that returns an [`Exam`].

    Raises:
        ValueError: If there is no such benchmark.
    """
    path = BUILT_IN.get(name, name)
    module_name, _, attribute = path.partition(":")
    if not (module_name and attribute):
        own = "A record of your own is named 'module:Name'."
        raise ValueError(f"benchmark {name!r} is unknown. {suggest(name, BUILT_IN)} {own}")
    found = named(path, label=f"exam {name!r}")
    if not (isinstance(found, Benchmark) or callable(found)):
        raise ValueError(
            f"benchmark {name!r} is {found!r}, neither a trl_populora.evaluation.benchmarks.Benchmark nor a function "
            "that gives a trl_populora.evaluation.Exam."
        )
    return found
