"""What a change of the package costs a run: a recipe by two checkouts, in turn or at the same time.

    git worktree add /tmp/before REVISION
    python benchmarks/two_trees.py /tmp/before . --rounds 8 --turns 6 [--together] [--recipe NAME]

Each turn runs both, each in a process of its own with one thread: one after the other, in alternating order, or with
`--together` at the same time, each on a core of its own, and the cores are swapped from turn to turn. What else the
machine does then disturbs both alike. Prints, last, the ratios after / before of CPU seconds and wall-clock seconds of
the whole process and of the median round: the median over the turns, the least and the greatest. About a minute for
each run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor


TREES = ("before", "after")


def run(tree: str, recipe: str, rounds: int, core: int | None = None) -> dict[str, float]:
    """CPU seconds, wall-clock seconds and the seconds of the median round of one run, on any core or on one.

    Raises:
        RuntimeError: If the run failed.
    """
    if core is not None:
        os.sched_setaffinity(0, {core})  # of this thread; the process and all that it starts inherit it
    settings = {"PYTHONPATH": tree, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        command = [sys.executable, "-m", "trl_populora.train", "--config", f"recipes/{recipe}"]
        command += ["--max_steps", str(rounds), "--output_dir", folder]
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=tree, env=os.environ | settings, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)  # the CPU time of this run alone, and of what it waited for
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"The run in {tree} failed ({process.returncode}):\n{output.read()[-2000:]}")
        with open(os.path.join(folder, "history.jsonl"), encoding="utf-8") as file:
            each = [sum(json.loads(line)["seconds"].values()) for line in file]
    return {"cpu": usage.ru_utime + usage.ru_stime, "wall": seconds, "round": statistics.median(each)}


def in_turn(folders: list[str], recipe: str, rounds: int, turn: int) -> list[dict[str, float]]:
    """One after the other; who comes first alternates."""
    order = (0, 1) if turn % 2 == 0 else (1, 0)
    times = {index: run(folders[index], recipe, rounds) for index in order}
    return [times[0], times[1]]


def together(folders: list[str], recipe: str, rounds: int, turn: int, cores: list[int]) -> list[dict[str, float]]:
    """At the same time, on a core each; who has which alternates."""
    pinned = cores if turn % 2 == 0 else cores[::-1]
    with ThreadPoolExecutor(2) as threads:  # fresh in each turn: no other thread of this process is pinned
        return list(threads.map(run, folders, [recipe] * 2, [rounds] * 2, pinned))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="folder of a checkout")
    parser.add_argument("after", help="folder of another")
    parser.add_argument("--recipe", default="tiny/4t4s.yaml", help="in the folder recipes of both checkouts")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--turns", type=int, default=6, help="an even number: each has each place equally often")
    parser.add_argument("--together", action="store_true", help="both at the same time, on a core each")
    options = parser.parse_args(argv)
    if options.turns < 2 or options.turns % 2:
        parser.error(f"--turns {options.turns} must be even and at least 2.")
    cores = sorted(os.sched_getaffinity(0))[:2]
    if options.together and len(cores) < 2:
        parser.error("--together needs two cores, and this process may use one.")
    folders = [os.path.abspath(getattr(options, name)) for name in TREES]
    turns = []
    for turn in range(options.turns):
        if options.together:
            times = together(folders, options.recipe, options.rounds, turn, cores)
        else:
            times = in_turn(folders, options.recipe, options.rounds, turn)
        turns.append(times)
        print(turn, {name: {k: round(v, 2) for k, v in own.items()} for name, own in zip(TREES, times)}, flush=True)
    result = {}
    for kind in turns[0][0]:
        ratios = [after[kind] / before[kind] for before, after in turns]
        result[kind] = [round(value, 3) for value in (statistics.median(ratios), min(ratios), max(ratios))]
    print(json.dumps({"ratio": result, "turns": options.turns, "rounds": options.rounds}))


if __name__ == "__main__":
    main()
