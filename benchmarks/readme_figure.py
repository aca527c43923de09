"""The figure and the table of the README, from the committed results of three experiments.

    python benchmarks/readme_figure.py

in a clone, in a few seconds. It writes docs/images/measured.png and prints the table in Markdown. Both
show the same four arms in the same words. `tests/benchmarks/test_readme_figure.py` compares the table with the README.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import NamedTuple


ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/experiments"
FIGURE = ROOT / "docs/images/measured.png"
MEASURE = "mean_student"
ARMS = {
    "one agent": ("weak_recombination", "single_agent"),
    "one agent, four times the rows": ("weak_recombination", "single_agent_4x_rows"),
    "one agent, four times the rows, fitness sharing, twice the learning rate": (
        "weak_controls",
        "single_agent_4x_rows_sharing_2x",
    ),
    "four teachers and four students, fitness sharing, twice the learning rate, recombined students": (
        "weak_sharing",
        "sharing",
    ),
}
"""Name of each arm for readers -> its experiment and its name there."""
BEFORE = ROOT / "recipes" / "chains" / "base_weak" / "exam_before_last_phase.json"
"""Exam of the base before the phase of its training that lowered it (the README beside it)."""


class Arm(NamedTuple):
    """What is shown of an arm. `rows` are those of all its adapters; the interval is that of the mean over seeds."""

    name: str
    rows: int
    scores: list[float]
    mean: float
    low: float
    high: float


def arms() -> list[Arm]:
    """The arms, in the order of the table.

    Raises:
        ValueError: If the runs of an arm are not those of all seeds of its experiment.
    """
    found = []
    for name, (experiment, arm) in ARMS.items():
        record = _record(experiment)
        scores, cost = record["values"][MEASURE][arm], record["compute"][arm]
        if sorted(map(int, scores)) != sorted(record["seeds"]):
            raise ValueError(f"{arm} of {experiment} has the seeds {sorted(scores)} of {record['seeds']}.")
        rows = round(cost["rows_per_adapter"] * cost["adapters"])
        found.append(Arm(name, rows, list(scores.values()), *record["means"][MEASURE][arm]))
    return found


def base() -> float:
    """The score of the base: the mean over the groups of questions, which are equally large."""
    groups = next(iter(_record("weak_controls")["groups"].values()))
    return fmean(group["base"][0] for group in groups.values())


def before() -> float:
    """The score of the base before it was made worse."""
    (exam,) = json.loads(BEFORE.read_text())["exams"]
    return exam["scores"]["base"]["accuracy"]


def _record(experiment: str) -> dict:
    return json.loads((RESULTS / f"{experiment}.json").read_text())


def table(found: list[Arm]) -> str:
    """The table of the README."""
    lines = ["| 200 rounds of | rows in all | score | 95 % interval over seeds |", "|---|---|---|---|"]
    lines += [f"| {own.name} | {own.rows:,} | {own.mean:.3f} | {own.low:.3f} to {own.high:.3f} |" for own in found]
    return "\n".join(lines)


def draw(found: list[Arm], path: Path) -> None:
    """For each arm, a dot for each seed, and below them the mean with its interval. Lines show the base."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4.1), layout="constrained")
    for place, own in enumerate(found):
        color = "tab:blue" if own.name.startswith("one agent") else "tab:red"
        heights = [place - (0.14 if turn % 2 else 0.26) for turn in range(len(own.scores))]  # equal scores stay apart
        axis.plot(sorted(own.scores), heights, "o", color=color, markersize=6, alpha=0.6)
        ends = [[own.mean - own.low], [own.high - own.mean]]
        axis.errorbar(own.mean, place + 0.1, xerr=ends, fmt="D", color=color, markersize=7, linewidth=2, capsize=5)
        axis.annotate(f"{own.mean:.3f}", (own.mean, place + 0.21), ha="center", va="top", fontsize=11)
    for score, label in ((base(), "base, made worse"), (before(), "base before it\nwas made worse")):
        axis.axvline(score, color="gray", linestyle="--", linewidth=1)
        above = {"xycoords": ("data", "axes fraction"), "xytext": (0, 3), "textcoords": "offset points"}
        axis.annotate(f"{label}\n{score:.3f}", (score, 1.0), **above, ha="center", va="bottom", fontsize=11)
    axis.set_yticks(range(len(found)), [fill(own.name, 34) for own in found], fontsize=11)
    axis.set_ylim(len(found) - 0.4, -0.5)
    axis.set_xlim(0.34, 0.80)
    axis.tick_params(axis="x", labelsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    runs = "dot: the score of one seed; diamond: the mean of five seeds, with its 95 % interval"
    figure.supxlabel(f"score: share of 288 questions solved\n{runs}", fontsize=11)
    figure.savefig(path, dpi=200)
    plt.close(figure)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Makes the figure of the README, and prints its table in Markdown.")
    parser.add_argument("--output", type=Path, default=FIGURE, help="path of the figure (default: %(default)s)")
    options = parser.parse_args(words)
    found = arms()
    draw(found, options.output)
    print(table(found))


if __name__ == "__main__":
    main()
