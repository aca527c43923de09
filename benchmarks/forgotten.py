"""What runs lose and win in an exam: of the questions that the base solves, those that an adapter does not, and the
other way round.

    python benchmarks/forgotten.py runs/experiments/NAME --exam chains_short \
        --json benchmarks/results/NAME_forgotten.json

One adapter of each finished run: the average of its students, or its only student. Where a question has several
answers, it counts as solved if most of them are right. Some losses and wins are chance: questions at the edge.
"""

import argparse
import json
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import pandas as pd

from trl_populora.reporting.over_seeds import difference, interval
from trl_populora.run_files.files import write_json
from trl_populora.run_files.layout import EVALUATION_FOLDER, TABLE_SUFFIX


def main() -> None:
    parser = argparse.ArgumentParser(description="Questions that runs lose and win against the base.")
    parser.add_argument("folder", type=Path, help="folder of an experiment")
    parser.add_argument("--exam", required=True, help="name of the exam in the records")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    arms: dict[str, dict[int, dict[str, int]]] = defaultdict(dict)
    for table in sorted(options.folder.glob(f"*/seed_*/{EVALUATION_FOLDER}/{options.exam}{TABLE_SUFFIX}")):
        run = table.parents[1]
        arms[run.parent.name][int(run.name.removeprefix("seed_"))] = changes(pd.read_parquet(table))
    if not arms:
        raise SystemExit(f"{options.folder} holds no run with answers to {options.exam!r}.")
    counts = {
        arm: {key: {seed: one[key] for seed, one in own.items()} for key in ("lost", "won")}
        for arm, own in arms.items()
    }
    found = {
        "exam": options.exam,
        "runs": arms,
        "means": {
            arm: {key: interval(list(own[key].values()))._asdict() for key in own} for arm, own in counts.items()
        },
        "differences": {
            f"{one} - {other}": {
                key: difference(counts[one][key], counts[other][key])._asdict() for key in counts[one]
            }
            for one, other in combinations(counts, 2)
        },
    }
    print(json.dumps(found, indent=1))
    if options.json:
        write_json(options.json, found)


def changes(answers: pd.DataFrame) -> dict[str, int]:
    """Numbers of questions of one run: `base` solved by the base, `lost` of them, and `won` of the others."""
    judged = answers[answers.verdict != "spared"]
    solved = (judged.verdict == "solved").groupby([judged.player, judged.question]).mean() > 0.5
    players = [name for name in solved.index.get_level_values(0).unique() if not name.startswith("teacher")]
    own = [name for name in players if name not in ("base", "average")]
    (adapter,) = ["average"] if "average" in players else own
    base, other = solved["base"].align(solved[adapter], join="inner")
    return {"base": int(base.sum()), "lost": int((base & ~other).sum()), "won": int((other & ~base).sum())}


if __name__ == "__main__":
    main()
