"""Throughput of the executor beside a bare fork of a small interpreter, on one core.

    python benchmarks/executor.py --repeats 5

Prints the median and the range over the repeats, in programs and in calls per second. Needs an idle machine to mean
anything; read the ratios first.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

from trl_populora.executor import Executor, Job
from trl_populora.executor.executor import MODULES


BARE = """
import os, sys, time
for name in sys.argv[2:]:
    __import__(name)
begin = time.perf_counter()
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
print(int(sys.argv[1]) / (time.perf_counter() - begin))
"""


def bare_fork(count: int, modules: tuple[str, ...]) -> float:
    """Forks per second of an interpreter of its own with these modules loaded."""
    command = [sys.executable, "-S", "-c", BARE, str(count), *modules]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def jobs_per_second(executor: Executor, program: str, inputs: int, count: int) -> float:
    """Jobs per second, each with this many inputs."""
    jobs = [Job(program, tuple((index,) for index in range(inputs)))] * count
    begin = time.perf_counter()
    executions = executor.run_many(jobs)
    seconds = time.perf_counter() - begin
    assert {execution.status.value for execution in executions} == {"ok"}
    return count / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=400, help="jobs per measurement")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    flavours = {"lean": ("def f(x): return x + 1", ()), "full": ("import math\ndef f(x): return x + 1", MODULES)}
    with Executor(1) as executor:
        print(f"isolation {executor.isolation}, Python {sys.version.split()[0]}, one core")
        for flavour, (program, modules) in flavours.items():
            jobs_per_second(executor, program, 1, 20)
            bare = [bare_fork(arguments.jobs, modules) for _ in range(arguments.repeats)]
            report(f"{flavour}: bare fork", bare)
            for inputs in (1, 4, 16):
                rates = [jobs_per_second(executor, program, inputs, arguments.jobs) for _ in range(arguments.repeats)]
                calls = inputs * statistics.median(rates)
                ratio = calls / statistics.median(bare)
                report(f"{flavour}: {inputs:2} inputs", rates, f"  {calls:6.0f} calls/s, {ratio:.2f} of bare fork")


def report(name: str, rates: list[float], note: str = "") -> None:
    print(f"{name:16} {statistics.median(rates):6.0f}/s  [{min(rates):.0f}, {max(rates):.0f}]{note}")


if __name__ == "__main__":
    main()
