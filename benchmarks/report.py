"""What `populora report` costs: seconds, memory and size of the page of a run that is made up on the spot.

    python -m benchmarks.report --rounds 200 --members 8 --json /tmp/report.json

About a minute on a 2-core CPU, most of it for making the run. The report is written in a process of its own, so that
its time and its peak of resident memory are those of the command. `--folder` measures a run that exists.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.reporting.made_run import MadeRun


CHILD = """
import resource, sys, time
start = time.perf_counter()
from trl_populora.reporting.played_run import read_run
from trl_populora.reporting.run_page import write_report
path = write_report(read_run(sys.argv[1]), sys.argv[2])
spent = resource.getrusage(resource.RUSAGE_SELF)
print(time.perf_counter() - start, spent.ru_utime + spent.ru_stime, spent.ru_maxrss)
"""


def measure(folder: Path, page: Path) -> dict:
    """Seconds on the wall and of the processor, peak memory in MiB, and size of the page in MB."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), str(page)], capture_output=True, text=True, check=True
    )
    seconds, processor, peak = map(float, done.stdout.split())
    return {
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "peak_mib": round(peak / 1024),
        "page_mb": round(page.stat().st_size / 1e6, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--members", type=int, default=8, help="half of them teachers")
    parser.add_argument("--length", type=int, default=120, help="characters before every answer, about")
    parser.add_argument("--folder", type=Path, help="measure this run instead")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    if min(options.rounds, options.members // 2) < 1:
        parser.error("--rounds must be at least 1, and --members at least 2")
    with tempfile.TemporaryDirectory() as place:
        folder, half = options.folder, options.members // 2
        if folder is None:
            folder = Path(place) / "run"
            shape = {"teachers": half, "students": half, "prompts": 3, "evolution_interval": 20}
            MadeRun(folder, **shape, length=options.length).make(options.rounds)
        result = measure(folder, Path(place) / "report.html")
        tables = sum(path.stat().st_size for path in (folder / "rounds").glob("*.parquet"))
    result |= {"rounds": options.rounds, "members": options.members, "tables_mb": round(tables / 1e6, 2)}
    if options.folder:
        result |= {"rounds": None, "members": None}
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
