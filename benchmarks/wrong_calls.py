"""How long `populora` takes to answer wrong calls: wall-clock and CPU seconds of the whole process, best of so many.

    python benchmarks/wrong_calls.py --times 3

On a busy machine only the CPU seconds mean anything. `python -X importtime -m trl_populora.cli ...` shows what for.
"""

import argparse
import resource
import subprocess
import sys
import time


CALLS = {
    "unknown command": ["trian"],
    "unknown option": ["report", "runs/demo", "--plot"],
    "missing folder, report": ["report", "/no/such"],
    "missing folder, evaluate": ["evaluate", "/no/such"],
    "missing folder, push": ["push", "/no/such"],
    "missing folder, runs": ["runs", "/no/such"],
    "missing recipe": ["train", "--config", "/no/such.yaml"],
    "unknown setting": ["train", "--config", "recipes/tiny/4t4s.yaml", "--num_teacherz", "2"],
    "missing base": ["train", "--config", "recipes/tiny/4t4s.yaml", "--model_name_or_path", "./no"],
    "unknown operator": ["evolve", "a", "--operator", "dear", "--output", "b"],
    "a right one: --version": ["--version"],
}


def measure(words: list[str]) -> tuple[float, float, int]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code = subprocess.run([sys.executable, "-m", "trl_populora.cli", *words], capture_output=True).returncode
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    args = parser.parse_args()
    print("| call | wall, s | CPU, s | exit code |\n|---|---|---|---|")
    for name, words in CALLS.items():
        runs = [measure(words) for _ in range(args.times)]
        print(f"| {name} | {min(r[0] for r in runs):.2f} | {min(r[1] for r in runs):.2f} | {runs[0][2]} |")


if __name__ == "__main__":
    main()
