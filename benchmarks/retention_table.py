"""The table of docs/evolution.md from the curves of `populora retention`, of one run or of several with other seeds.

    python benchmarks/retention_table.py runs/retention/retention.json [MORE.json ...] \
        [--json benchmarks/results/retention_chains.json] [--picture docs/images/retention_chains.png]

Differences between a child and the clone of the same seed and round, in points of pass@1: means with Student's 95 %
interval over seeds, at birth and in the last round. Where all seeds have the same difference, there is no interval.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from trl_populora.reporting.over_seeds import interval
from trl_populora.reporting.retention_plot import save_retention_plot
from trl_populora.retention import CLONE, RetentionCurve
from trl_populora.run_files.files import write_json


def main() -> None:
    parser = argparse.ArgumentParser(description="The table of the retention test.")
    parser.add_argument("files", nargs="+", type=Path, help="retention.json of runs with different seeds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the curves of all files to one")
    parser.add_argument("--picture", metavar="FILE", help="draw them")
    options = parser.parse_args()
    data = [curve for file in options.files for curve in json.loads(file.read_text())]
    data.sort(key=lambda curve: curve["seed"])
    names = [(curve["operator"], curve["seed"]) for curve in data]
    twice = sorted({seed for operator, seed in names if names.count((operator, seed)) > 1})
    if twice:
        parser.error(f"seeds {twice} are in more than one file: name files of runs with different seeds.")
    curves = [
        RetentionCurve(**{key: value for key, value in one.items() if key != "steps_to_recover"}) for one in data
    ]
    print(table(curves))
    if options.json:
        write_json(options.json, data)
    if options.picture:
        save_retention_plot(curves, options.picture)


def table(curves: Sequence[RetentionCurve]) -> str:
    """Markdown: first a sentence about parents and clones, then one row for each operator."""
    by_operator: dict[str, list[RetentionCurve]] = {}
    for curve in curves:
        by_operator.setdefault(curve.operator, []).append(curve)
    clones = by_operator.pop(CLONE)
    parent, born, last = (
        f"{100 * fmean(values):.1f} %"
        for values in (
            [one.parent_pass_at_1 for one in clones],
            [one.pass_at_1[0] for one in clones],
            [one.pass_at_1[-1] for one in clones],
        )
    )
    seeds, rounds = ", ".join(str(one.seed) for one in clones), clones[0].rounds[-1]
    lines = [
        f"Seeds {seeds}: first parents {parent}, clones {born} at birth and {last} after {rounds} rounds.",
        "",
        f"| operator | at birth | after {rounds} rounds | rounds until level, by seed |",
        "|---|---|---|---|",
    ]
    for name, own in by_operator.items():
        level = ", ".join("never" if one.steps_to_recover is None else str(one.steps_to_recover) for one in own)
        lines.append(f"| `{name}` | {_points(own, 0)} | {_points(own, -1)} | {level} |")
    return "\n".join(lines)


def _points(curves: Sequence[RetentionCurve], exam: int) -> str:
    mean, low, high = interval([100 * curve.difference[exam] for curve in curves])
    return f"{mean:+.1f}" if low is None or high is None else f"{mean:+.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
