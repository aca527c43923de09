"""Speed of the executor beside a bare fork of the same interpreter, measured in turn in one run.

    python benchmarks/executor.py              # about five minutes on two cores
    python benchmarks/executor.py --quick      # the same in half a minute, too noisy to quote
    python benchmarks/executor.py --json       # prints the numbers as JSON in the last line

With `pip install pebble`, the work of one training step also runs through a pool of reused worker processes, the usual
way to run model-written code: faster, without any isolation, and one program can change the next one's result.
Rates are of (program, input) pairs, on one core unless they say otherwise.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import as_completed
from itertools import islice
from pathlib import Path

from trl_populora.executor import Executor, Job, Limits, Status, literals
from trl_populora.executor.executor import MODULES
from trl_populora.tasks.code import CodeO
from trl_populora.tasks.math.answers import JUDGE, LIMITS, MODULE


# What every user of os.fork would do. The server does without two things that it finds here: OpenSSL in `hashlib`, and
# the hook by which `random` seeds itself anew in each child.
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
LEAN = "def f(x): return x + 1"
FULL = "import math\ndef f(x): return x + 1"
LOOP = Job("def f(x):\n    while True: pass", ((1,),), Limits(cpu_seconds=0.3))
CORES = sorted(os.sched_getaffinity(0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON in the last line")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    options = parser.parse_args()
    scale = 0.1 if options.quick else 1.0
    rounds = 3 if options.quick else 7
    with Executor(1) as executor:
        print(
            f"{platform.machine()}, Linux {platform.release()}, Python {platform.python_version()}, {len(CORES)} cores"
        )
        print(f"isolation {executor.isolation}")
    numbers: dict[str, float | None] = {}
    for measure in (rates, overhead, scaling, step, overshoot, hangs, modules, soak):
        numbers |= measure(scale, rounds)
    for name, value in numbers.items():
        print(f"{name:24} {'not measured' if value is None else f'{value:.4g}'}")
    if options.json:
        print(json.dumps(numbers))


def rates(scale: float, rounds: int) -> dict:
    """One core: pairs per second with 1, 4 and 16 inputs, and bare forks per second, alternating."""
    os.sched_setaffinity(0, CORES[:1])
    count = int(400 * scale) + 10
    with Executor(1) as executor:
        variants: dict[str, Callable[[], float]] = {"bare_full": lambda: bare_forks(count, MODULES)}
        variants |= {"bare_lean": lambda: bare_forks(count, ())}
        for flavour, program in (("full", FULL), ("lean", LEAN)):
            for inputs in (1, 4, 16):
                variants[f"{flavour}_{inputs}"] = lambda p=program, n=inputs: pairs_per_second(executor, p, n, count)
        found = alternate(variants, rounds)
    os.sched_setaffinity(0, CORES)
    return {
        "ratio_full_1": found["full_1"] / found["bare_full"],
        "ratio_lean_1": found["lean_1"] / found["bare_lean"],
        **{f"per_core_{inputs}": found[f"full_{inputs}"] for inputs in (1, 4, 16)},
        **{f"per_core_lean_{inputs}": found[f"lean_{inputs}"] for inputs in (1, 4, 16)},
        "bare_fork_full": found["bare_full"],
        "bare_fork_lean": found["bare_lean"],
    }


def overhead(scale: float, rounds: int) -> dict:
    """One core: the share of time that seccomp, Landlock and namespaces add. Limits are on in both."""
    os.sched_setaffinity(0, CORES[:1])
    count = int(400 * scale) + 10
    with Executor(1) as confined, Executor(1, accept_unsafe=True) as open_:
        open_._without = ["seccomp", "landlock", "namespaces"]
        found = alternate(
            {
                "confined": lambda: pairs_per_second(confined, FULL, 1, count),
                "open": lambda: pairs_per_second(open_, FULL, 1, count),
            },
            rounds,
        )
    os.sched_setaffinity(0, CORES)
    return {"confinement_overhead": found["open"] / found["confined"] - 1}


def scaling(scale: float, rounds: int) -> dict:
    """Two workers on two cores against one on one."""
    if len(CORES) < 2:
        return {"scaling_2": None}
    count = int(600 * scale) + 20
    os.sched_setaffinity(0, CORES[:1])
    with Executor(1) as one:
        pairs_per_second(one, FULL, 1, 10)
        os.sched_setaffinity(0, CORES[:2])
        with Executor(2) as two:
            found = alternate(
                {
                    "one": lambda: pairs_per_second(one, FULL, 1, count),
                    "two": lambda: pairs_per_second(two, FULL, 1, 2 * count),
                },
                rounds,
            )
    os.sched_setaffinity(0, CORES)
    return {"scaling_2": found["two"] / found["one"]}


def step(scale: float, rounds: int) -> dict:
    """Seconds for 64 proposals and 1,024 attempts on two cores: ours, which checks a proposal in four servers, and a
    pool of reused processes, which runs it twice."""
    os.sched_setaffinity(0, CORES[:2])
    tasks = [task.payload for task in CodeO().seeds(64)]
    programs = [(task.program, literals.parse_arguments(task.input)) for task in tasks]
    proposals = [Job(program, (arguments,), deterministic=True) for program, arguments in programs]
    attempts = [Job(program, (arguments,)) for program, arguments in programs] * 16
    times = []
    with Executor(2) as executor:
        executor.run_many(proposals[:8])
        for _ in range(max(3, rounds // 2)):
            begin = time.perf_counter()
            executions = executor.run_many(proposals) + executor.run_many(attempts)
            times.append(time.perf_counter() - begin)
            assert {execution.status for execution in executions} == {Status.OK}
    pool = pool_step(programs)
    os.sched_setaffinity(0, CORES)
    return {"step_seconds": statistics.median(times), "step_seconds_pool": pool}


def pool_step(programs: list[tuple[str, tuple]]) -> float | None:
    """The same work through a pool of two reused processes, without any isolation."""
    try:
        from pebble import ProcessPool
    except ImportError:
        return None
    with ProcessPool(max_workers=2) as pool:
        for future in as_completed([pool.schedule(unsafe_run, args=programs[0]) for _ in range(8)]):
            future.result()
        begin = time.perf_counter()
        work = programs + programs + programs * 16
        futures = [pool.schedule(unsafe_run, args=pair, timeout=10) for pair in work]
        for future in futures:
            future.result()
        return time.perf_counter() - begin


def unsafe_run(program: str, arguments: tuple) -> str:
    names: dict = {}
    exec(program, names)
    return repr(names["f"](*arguments))


def overshoot(scale: float, rounds: int) -> dict:
    """The most CPU time, in ms, that an endless loop got beyond its limit."""
    with Executor(1) as executor:
        executions = [executor.run(LOOP.program, LOOP.inputs, LOOP.limits) for _ in range(rounds)]
    assert {execution.status for execution in executions} == {Status.CPU_TIMEOUT}
    return {"overshoot_ms": 1000 * max(execution.seconds - 0.3 for execution in executions)}


def hangs(scale: float, rounds: int) -> dict:
    """One core: programs per second where one in a hundred loops until its limit of 0.3 s."""
    os.sched_setaffinity(0, CORES[:1])
    jobs = ([Job(FULL, ((1,),))] * 50 + [LOOP] + [Job(FULL, ((1,),))] * 49) * max(1, int(6 * scale))
    with Executor(1) as executor:
        executor.run_many(jobs[:10])
        begin = time.perf_counter()
        executor.run_many(jobs)
        seconds = time.perf_counter() - begin
    os.sched_setaffinity(0, CORES)
    return {"hang_per_core": len(jobs) / seconds}


def modules(scale: float, rounds: int) -> dict:
    """One core: seconds of a query and of a verdict on an answer in LaTeX, of the first one with its server's start,
    and the rate of programs without modules beside those servers, over that without them."""
    os.sched_setaffinity(0, CORES[:1])
    count = int(400 * scale) + 10
    query = "import sqlite3\ndef f(text): return sqlite3.connect(':memory:').execute(text).fetchall()"
    jobs = {
        "query": Job(query, (("SELECT 1 + 1, 'a'",),), modules=("sqlite3",)),
        "verdict": Job(JUDGE, ((1, 2, r"\frac{2}{4}"),), LIMITS, modules=(MODULE,)),
    }
    found = {}
    with Executor(1) as executor, Executor(1) as other:
        for name, job in jobs.items():
            for prefix, number in (("first_", 1), ("", count)):
                begin = time.perf_counter()
                executions = executor.run_many([job] * number)
                found[f"{prefix}{name}_seconds"] = (time.perf_counter() - begin) / number
                assert {execution.status for execution in executions} == {Status.OK}
        rates = alternate(
            {
                "beside": lambda: pairs_per_second(executor, FULL, 1, count),
                "without": lambda: pairs_per_second(other, FULL, 1, count),
            },
            rounds,
        )
    os.sched_setaffinity(0, CORES)
    return found | {"beside_modules": rates["beside"] / rates["without"]}


def soak(scale: float, rounds: int) -> dict:
    """100,000 programs, one in fifty of them misbehaving: growth of all servers' memory in MB, and wrong results."""
    count = int(100_000 * scale)
    bad = [
        "def f(x):\n    return [0] * 10**9",
        "import os\ndef f(x): os._exit(0)",
        "def f(x): return f(x)",
        "def f(x: 1",
    ]

    def job(index: int) -> Job:
        if index % 50 == 49:
            return Job(bad[index // 50 % len(bad)], ((index,),), Limits(cpu_seconds=0.1))
        return Job(FULL if index % 2 else LEAN, ((index,),))

    first = most = 0.0
    wrong = 0
    with Executor(len(CORES)) as executor:
        for start in range(0, count, count // 50):
            indices = range(start, min(start + count // 50, count))
            for index, execution in zip(indices, executor.run_many([job(index) for index in indices])):
                right = execution.status is Status.OK and execution.values[0].value == index + 1
                wrong += right == (index % 50 == 49)
            memory = max(server_memory(executor))
            first, most = first or memory, max(most, memory)
    return {"soak_growth_mb": most - first, "soak_wrong": wrong}


def server_memory(executor: Executor) -> list[float]:
    """Resident MB of the processes of each fork server."""
    return [sum(map(resident, [pid, *children(pid)])) for pid in executor.pids]


def children(pid: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


def resident(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS")), 0.0)


def bare_forks(count: int, modules: tuple[str, ...]) -> float:
    """Forks per second of an interpreter of its own with these modules loaded."""
    command = [sys.executable, "-S", "-c", BARE, str(count), *modules]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def pairs_per_second(executor: Executor, program: str, inputs: int, count: int) -> float:
    """(program, input) pairs per second over `count` jobs."""
    jobs = [Job(program, tuple((index,) for index in range(inputs)))] * count
    executor.run_many(list(islice(jobs, 10)))
    begin = time.perf_counter()
    executions = executor.run_many(jobs)
    seconds = time.perf_counter() - begin
    assert {execution.status for execution in executions} == {Status.OK}
    return inputs * count / seconds


def alternate(variants: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median rate of each variant over rounds in which all are measured in turn."""
    found: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, measure in variants.items():
            found[name].append(measure())
    for name, values in found.items():
        print(f"    {name:12} median {statistics.median(values):7.0f}/s   from {min(values):.0f} to {max(values):.0f}")
    return {name: statistics.median(values) for name, values in found.items()}


if __name__ == "__main__":
    main()
