"""What a change of the package costs a run: the tiny recipe by two checkouts, in turn.

    git worktree add /tmp/before REVISION
    python benchmarks/two_trees.py /tmp/before . --rounds 8 --turns 5

Each turn runs both, in alternating order, each in a process of its own with one thread. Prints, last, the medians over
the turns of the ratio after / before: CPU seconds and wall-clock seconds of the whole process, and the median round.
About a minute for each run.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time


def run(tree: str, rounds: int) -> dict[str, float]:
    """CPU seconds, wall-clock seconds and the seconds of the median round of one run."""
    settings = {"PYTHONPATH": tree, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "trl_populora.train", "--config", "recipes/tiny/4t4s.yaml"]
        command += ["--max_steps", str(rounds), "--output_dir", folder]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, cwd=tree, env=os.environ | settings, check=True, capture_output=True)
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(os.path.join(folder, "history.jsonl"), encoding="utf-8") as file:
            each = [sum(json.loads(line)["seconds"].values()) for line in file]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": cpu, "wall": seconds, "round": statistics.median(each)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="folder of a checkout")
    parser.add_argument("after", help="folder of another")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    trees = {name: os.path.abspath(getattr(options, name)) for name in ("before", "after")}
    ratios = []
    for turn in range(options.turns):
        order = list(trees) if turn % 2 == 0 else list(trees)[::-1]
        times = {name: run(trees[name], options.rounds) for name in order}
        ratios.append({kind: times["after"][kind] / times["before"][kind] for kind in times["before"]})
        print(turn, {name: {k: round(v, 2) for k, v in own.items()} for name, own in times.items()}, flush=True)
    medians = {kind: round(statistics.median(one[kind] for one in ratios), 3) for kind in ratios[0]}
    print(json.dumps({"ratio": medians, "turns": options.turns, "rounds": options.rounds}))


if __name__ == "__main__":
    main()
