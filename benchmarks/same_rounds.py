"""Whether two runs played the same rounds: completions of both, and how far gradient norms of their members differ.

    python benchmarks/same_rounds.py runs/one runs/other [--json FILE]

For runs that should differ by rounding only, such as with and without `share_prompts`. Rounds that both have count.
"""

import argparse
import json

import pandas

from trl_populora.reporting import read_history
from trl_populora.run_files.layout import round_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=2, metavar="RUN", help="folders of runs")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    histories = [{one.round: one for one in read_history(folder)} for folder in options.runs]
    numbers = sorted(histories[0].keys() & histories[1].keys())
    rows = same = 0
    gaps = [0.0]
    for number in numbers:
        one, other = (pandas.read_parquet(round_file(folder, number)).completion for folder in options.runs)
        rows += max(len(one), len(other))
        same += sum(a == b for a, b in zip(one, other, strict=False))
        norms = [{m.name: m.grad_norm or 0.0 for m in history[number].members} for history in histories]
        gaps += [abs(norm / norms[1][name] - 1) for name, norm in norms[0].items() if norms[1].get(name)]
    learning = [sum(history[number].seconds["learn"] for number in numbers) for history in histories]
    found = {
        "rounds": len(numbers),
        "completions": rows,
        "same": same,
        "grad_norm": max(gaps),
        "learn_seconds": [round(seconds) for seconds in learning],
    }
    print(json.dumps(found))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
