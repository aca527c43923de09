"""What judging an answer to a word problem costs on one core: plain numbers, one LaTeX answer a job, batches of 64.

    python benchmarks/math_answers.py            # about a minute
    python benchmarks/math_answers.py --json     # prints the numbers as JSON in the last line

CPU time of the children is the kernel's count; wall time is that of the whole way through the executor. Variants
alternate; medians over the rounds.
"""

import argparse
import json
import logging
import os
import statistics
import time
from collections.abc import Callable

from math_verify import LatexExtractionConfig, parse, verify
from sympy import Rational

from trl_populora.executor import Executor, Job
from trl_populora.tasks.math.answers import BATCH, LIMITS, MODULE, judge_pairs


FORMS = (r"\frac{{{a}}}{{{b}}}", r"\frac{{{a}}}{{{b}}}\text{{ km}}", r"x={a}/{b}", r"{a}\%", r"{c}\frac{{{a}}}{{{b}}}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON in the last line")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    with Executor(1) as executor:
        begin = time.perf_counter()
        executor.run_many([nothing()])
        numbers = {"start of a fork server, s": time.perf_counter() - begin}
        numbers |= measure(executor, options.rounds)
    numbers |= shares(options.rounds)
    for name, value in numbers.items():
        print(f"{name:45} {value:.4g}")
    if options.json:
        print(json.dumps(numbers))


def nothing() -> Job:
    """A job in the same fork server that judges nothing."""
    return Job("def f(x): return x", ((1,),), LIMITS, modules=(MODULE,))


def answers(count: int, offset: int) -> list[tuple[str, str]]:
    """Right answers and texts to judge, no two equal, a half of them right."""
    pairs = []
    for n in range(count):
        a, b = 3 + n + count * offset, 1009 + n
        right = f"{a}/{b}" if n % 2 else f"{a + 1}/{b}"
        pairs.append((right, FORMS[n % len(FORMS)].format(a=a, b=b, c=n + 1)))
    return pairs


def measure(executor: Executor, rounds: int) -> dict[str, float]:
    """Seconds an answer."""
    spent: dict[str, list[float]] = {}

    def timed(name: str, pairs: list[tuple[str, str]]) -> None:
        seconds = []

        def run(jobs: list[Job]) -> list:
            executions = executor.run_many(jobs)
            seconds.extend(execution.seconds for execution in executions)
            return executions

        begin = time.perf_counter()
        judge_pairs(pairs, run)
        spent.setdefault(f"{name}, wall ms", []).append((time.perf_counter() - begin) / len(pairs) * 1000)
        spent.setdefault(f"{name}, CPU ms of children", []).append(sum(seconds) / len(pairs) * 1000)

    for offset in range(rounds):
        timed("plain number", [(str(n), str(n + n % 2)) for n in range(1000)])
        timed("one answer a job", answers(1, 7 * offset))
        timed(f"one of {BATCH} in a job", answers(BATCH, offset))
        timed(f"one of {16 * BATCH} in jobs of {BATCH}", answers(16 * BATCH, offset))
        begin = time.perf_counter()
        (execution,) = executor.run_many([nothing()])
        spent.setdefault("job that judges nothing, wall ms", []).append((time.perf_counter() - begin) * 1000)
        spent.setdefault("job that judges nothing, CPU ms of children", []).append(execution.seconds * 1000)
    return {name: statistics.median(values) for name, values in spent.items()}


def shares(rounds: int) -> dict[str, float]:
    """math-verify by itself, in this process: CPU milliseconds an answer in reading and in comparing."""
    logging.disable()  # it warns that it has no time limit
    config = (LatexExtractionConfig(),)
    spent: dict[str, list[float]] = {"math-verify here, parse, CPU ms": [], "math-verify here, verify, CPU ms": []}

    def clock(name: str, call: Callable[[], list]) -> list:
        begin = time.process_time()
        result = call()
        spent[name].append((time.process_time() - begin) / BATCH * 1000)
        return result

    for offset in range(rounds):
        pairs = answers(BATCH, offset)
        texts = [f"${text}$" for _, text in pairs]
        rights = [Rational(right) for right, _ in pairs]
        read = clock(
            "math-verify here, parse, CPU ms",
            lambda texts=texts: [parse(text, config, "no_fallback", parsing_timeout=None) for text in texts],
        )
        clock(
            "math-verify here, verify, CPU ms",
            lambda rights=rights, read=read: [verify(a, b, timeout_seconds=None) for a, b in zip(rights, read)],
        )
    return {name: statistics.median(values) for name, values in spent.items()}


if __name__ == "__main__":
    main()
