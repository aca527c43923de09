"""Results of an experiment for its page in docs/results: a small JSON, a figure, and tables made from that JSON.

    python benchmarks/experiment_results.py runs/experiments/NAME          # the runs -> JSON, figure and tables
    python benchmarks/experiment_results.py --tables                       # the JSON that are there -> tables

from the root of a clone, after `populora experiment recipes/experiments/NAME.yaml`. The JSON goes to
`benchmarks/results/experiments/NAME.json`, the figure to `docs/images/NAME.png`, and the tables between the marks of
`NAME` in a page of docs/results, or in docs/earlier_results.md. Intervals are Student's over seeds, those of `populora
experiment`; unlike its table, every pair of arms is compared here.

`benchmarks/results/experiments/NAME.tar.xz` has the files of the finished runs that all of this is made from, without
adapters. After `tar xf benchmarks/results/experiments/NAME.tar.xz -C runs/experiments`, the experiment goes on with
the runs that are missing, and `--results` makes the same results again.
"""

from __future__ import annotations

import argparse
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

from trl_populora.experiments.questions import right_by_question, with_questions
from trl_populora.reporting.over_seeds import difference, interval
from trl_populora.reporting.played_run import PlayedRun, read_run
from trl_populora.run_files.layout import (
    EVALUATION_FILE,
    EVALUATION_FOLDER,
    HISTORY_FILE,
    JOB_RECIPE,
    PLAN_FILE,
    POPULATION_FILE,
    PROBES_FILE,
    RESULTS_FILE,
    RUN_FILE,
    TABLE_SUFFIX,
)
from trl_populora.run_files.run import AVERAGE, BASE


RESULTS = Path("benchmarks/results/experiments")
CURVES = {"solve_rate": "share of attempts that solve", "complexity/ast_nodes": "AST nodes of programs"}
COSTS = {
    "adapters": "adapters",
    "rows_per_adapter": "rows per adapter",
    "completion_tokens_per_adapter": "completion tokens per adapter",
    "updates_per_adapter": "updates per adapter",
}
BLOCK = 10
"""Rounds that are averaged before seeds are, in curves."""
KEPT = (JOB_RECIPE, RUN_FILE, HISTORY_FILE, PROBES_FILE, POPULATION_FILE, f"{EVALUATION_FOLDER}/{EVALUATION_FILE}")
"""Files of a run that results are made from, beside the tables of its exams."""


def record_of(folder: Path) -> dict[str, Any]:
    """What is committed of an experiment: its plan, every value of every seed, all pairs of arms, curves and costs."""
    told = json.loads((folder / RESULTS_FILE).read_text())
    exam_names = json.loads((folder / PLAN_FILE).read_text())["exam_names"]
    runs: dict[str, list[PlayedRun]] = {arm: [] for arm in told["arms"]}
    for job in told["jobs"]:
        if job["state"] == "done":
            runs[job["arm"]].append(replace(read_run(job["folder"]), planned_seed=job["seed"]))
    keys = ("name", "question", "hypotheses", "measures", "arms", "seeds", "control", "exams", "registered", "written")
    return {
        **{key: told[key] for key in (*keys, "complete", "circumstances", "compute", "values")},
        "jobs": {job["job"]: {"state": job["state"], "rounds": job["rounds"]} for job in told["jobs"]},
        "hardware": next((run.record.get("hardware") for own in runs.values() for run in own), None),
        "means": {name: {arm: _interval(own) for arm, own in arms.items()} for name, arms in told["values"].items()},
        "pairs": {
            name: _pairs(arms, runs, told["measures"][name], exam_names) for name, arms in told["values"].items()
        },
        "answers": answers_by_question(runs, told["measures"], exam_names),
        "groups": {arm: _groups(own) for arm, own in runs.items() if own},
        "curves": {name: {arm: curve(own, name) for arm, own in runs.items() if own} for name in _drawn(told)},
    }


def _drawn(told: Mapping[str, Any]) -> dict[str, str]:
    """Metrics whose curves are drawn, with their labels: those of `CURVES`, and exams that are measured along runs."""
    probed = [one["metric"] for one in told["measures"].values() if one.get("metric", "").startswith("exam/")]
    return dict.fromkeys(probed, "share solved along the run") | CURVES


def _interval(by_seed: Mapping[str, float | None]) -> list[float | None] | None:
    known = [value for value in by_seed.values() if value is not None]
    return [_round(one) for one in interval(known)] if known else None


def _pairs(
    values: Mapping[str, Mapping[str, float | None]],
    runs: Mapping[str, Sequence[PlayedRun]],
    measure: Mapping[str, Any],
    exam_names: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    """`"A - B"` -> the paired difference of two arms; of an exam also its interval with other questions."""
    found = {}
    known = {
        arm: {int(seed): value for seed, value in own.items() if value is not None} for arm, own in values.items()
    }
    for one, other in combinations(reversed(list(runs)), 2):
        if known[one] and known[other]:
            own = difference(known[one], known[other])
            told = {name: _round(value) for name, value in own._asdict().items()}
            if (exam := measure.get("exam")) is not None:
                reach = with_questions(runs[one], runs[other], exam_names[exam], of=measure.get("of", "mean"))
                told["with_questions"] = reach and [_round(reach.low), _round(reach.high)]
            found[f"{one} - {other}"] = told
    return found


def answers_by_question(
    runs: Mapping[str, Sequence[PlayedRun]], measures: Mapping[str, Any], exam_names: Mapping[str, str]
) -> dict[str, Any]:
    """`"exam, of"` -> arm -> seed -> share of right answers to each question, a line of numbers by questions' ids; `-`
    for a question that was spared.

    With them, arms that are run later, or elsewhere, can be compared with these question by question.
    """
    found = {}
    for exam, of in dict.fromkeys((one["exam"], one.get("of", "mean")) for one in measures.values() if "exam" in one):
        if of in ("mean", AVERAGE):
            right = {
                arm: {str(run.seed): right_by_question(run, exam_names[exam], of=of) for run in own}
                for arm, own in runs.items()
            }
            asked = sorted({question for own in right.values() for one in own.values() for question in one})
            found[f"{exam}, {of}"] = {
                arm: {seed: _line(shares, asked) for seed, shares in own.items()} for arm, own in right.items()
            }
    return found


def _line(shares: Mapping[str, float], asked: Sequence[str]) -> str:
    return " ".join(f"{shares[question]:.4g}" if question in shares else "-" for question in asked)


def _groups(runs: Sequence[PlayedRun]) -> dict[str, dict[str, list[float]]]:
    """Group of questions -> accuracy of the base and of the mean student, a number for each run. With several exams,
    the exam's name is before the group's."""
    table: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        exams = run.evaluation["exams"]
        for exam in exams:
            own = exam["scores"]
            for group in exam.get("groups", ()):
                name = group if len(exams) == 1 else f"{exam['exam']}: {group}"
                students = [one["groups"][group] for player, one in own.items() if player not in (BASE, AVERAGE)]
                row = table.setdefault(name, {BASE: [], "students": []})
                row[BASE].append(_round(own[BASE]["groups"][group]))
                row["students"].append(_round(fmean(students)))
    return table


def curve(runs: Sequence[PlayedRun], name: str) -> list[list[float | None]]:
    """Last round of a block, mean over seeds, and the ends of its interval."""
    points = []
    for end in range(BLOCK, min(run.rounds for run in runs) + 1, BLOCK):
        own = [[v for n, v in run.curve(name).items() if end - BLOCK < n <= end] for run in runs]
        if values := [fmean(block) for block in own if block]:
            points.append([end, *(_round(one) for one in interval(values))])
    return points


def _round(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def keep_runs(folder: Path, path: Path) -> None:
    """Writes the registration and the files of the finished runs that results are made from into an archive."""
    told = json.loads((folder / RESULTS_FILE).read_text())
    runs = [Path(job["folder"]) for job in told["jobs"] if job["state"] == "done"]
    files = [run / name for run in runs for name in KEPT]
    files += [table for run in runs for table in sorted((run / EVALUATION_FOLDER).glob(f"*{TABLE_SUFFIX}"))]
    with tarfile.open(path, "w:xz") as archive:
        for file in [folder / PLAN_FILE, *(file for file in files if file.exists())]:
            archive.add(file, file.relative_to(folder.parent))


# Tables --------------------------------------------------------------------------------------------------------------


def tables(record: Mapping[str, Any]) -> str:
    """Markdown of one record: measures by arm, all pairs, groups of questions, costs, and what is missing."""
    arms = list(record["arms"])
    done = {
        arm: sum(own["state"] == "done" for name, own in record["jobs"].items() if name.split("/")[0] == arm)
        for arm in arms
    }
    lines = [
        "| measure | " + " | ".join(f"{arm} ({done[arm]} of {len(record['seeds'])} seeds)" for arm in arms) + " |"
    ]
    lines.append("|---|" + "---|" * len(arms))
    for name, means in record["means"].items():
        lines.append(f"| {name} | " + " | ".join(_told(means[arm]) for arm in arms) + " |")
    if any(record["pairs"].values()):
        lines += ["", "| difference | measure | mean | 95%, other seeds | 95%, other seeds and questions | seeds |"]
        lines.append("|---|---|---|---|---|---|")
    for pair in dict.fromkeys(pair for own in record["pairs"].values() for pair in own):
        for name, own in record["pairs"].items():
            if (found := own.get(pair)) is not None and not _said_before(record, name, pair):
                reach = "-" if found["low"] is None else f"{found['low']:+.3f} to {found['high']:+.3f}"
                wide = found.get("with_questions")
                more = "-" if wide is None else f"{wide[0]:+.3f} to {wide[1]:+.3f}"
                lines.append(f"| {pair} | {name} | {found['difference']:+.3f} | {reach} | {more} | {found['seeds']} |")
    if record["groups"]:
        first = next(iter(record["groups"].values()))
        lines += ["", "| exam, share solved | base | " + " | ".join(record["groups"]) + " |"]
        lines.append("|---|---|" + "---|" * len(record["groups"]))
        for group in first:
            shares = [first[group][BASE], *(own[group]["students"] for own in record["groups"].values())]
            name = group if group.isidentifier() else f"`{group}`"
            lines.append(f"| {name} | " + " | ".join(f"{fmean(own):.2f}" for own in shares) + " |")
    if record["compute"]:
        lines += ["", "| cost of a run | " + " | ".join(COSTS.values()) + " | minutes |", "|---|" + "---|" * 5]
        for arm, own in record["compute"].items():
            parts = [f"{own[name]:,.0f}" for name in COSTS]
            lines.append(f"| {arm} | " + " | ".join(parts) + f" | {own['seconds'] / 60:.1f} |")
    missing = [name for name, own in record["jobs"].items() if own["state"] != "done"]
    lines += ["", f"Not finished: {', '.join(missing)}." if missing else "All runs of the plan are in it."]
    return "\n".join(lines)


def _said_before(record: Mapping[str, Any], measure: str, pair: str) -> bool:
    """Whether an earlier measure of the exam has the same values in both arms, as where both have one student."""
    arms, values = pair.split(" - "), record["values"]
    earlier = list(values)[: list(values).index(measure)]
    return any(all(values[one][arm] == values[measure][arm] for arm in arms) for one in earlier)


def _told(mean: Sequence[float | None] | None) -> str:
    if mean is None:
        return "-"
    value, low, high = mean
    return f"{value:.3f}" if low is None else f"{value:.3f} ({low:.3f} to {high:.3f})"


def page_of(name: str) -> Path:
    """The page that has the tables of an experiment.

    Raises:
        ValueError: If none has marks for them.
    """
    pages = (*sorted(Path("docs/results").glob("*.md")), Path("docs/earlier_results.md"))
    for page in pages:
        if all(mark in page.read_text() for mark in _marks(name)):
            return page
    raise ValueError(f"none of {[str(page) for page in pages]} has the lines {_marks(name)}.")


def filled(page: str, record: Mapping[str, Any]) -> str:
    """The text of a page with an experiment's tables between its marks."""
    begin, end = _marks(record["name"])
    before, after = page.split(begin)[0], page.split(end)[1]
    return f"{before}{begin}\n{tables(record)}\n{end}{after}"


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- begin {name} -->", f"<!-- end {name} -->"


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Shares solved in the exam by group of questions, then curves of all arms: means over seeds, in blocks of rounds,
    and 95% bands of arms with three seeds or more."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    labels = {name: label for name, label in _drawn(record).items() if any(record["curves"][name].values())}
    groups = record["groups"]
    rows = max((len(own) for own in groups.values()), default=0)
    figure, (exam, *axes) = plt.subplots(
        1,
        1 + len(labels),
        figsize=(4.4 * (1 + len(labels)), max(3.4, 0.9 + 0.28 * rows)),
        layout="constrained",
    )
    colours = {arm: f"C{place}" for place, arm in enumerate(record["arms"])}  # the same in all panels
    lines = {arm: (own, "students", {"color": colours[arm]}) for arm, own in groups.items()}
    if groups:  # the base answers the same in all runs
        lines[BASE] = (next(iter(groups.values())), BASE, {"color": "gray", "linestyle": "--"})
    for label, (own, key, style) in lines.items():
        exam.plot([fmean(group[key]) for group in own.values()], list(own), marker=".", label=label, **style)
    exam.invert_yaxis()
    exam.set(xlabel="share solved in the exam")
    exam.spines[["top", "right"]].set_visible(False)
    figure.legend(*exam.get_legend_handles_labels(), loc="outside upper center", ncols=len(lines), frameon=False)
    for axis, (name, label) in zip(axes, labels.items(), strict=True):
        for arm, points in record["curves"][name].items():
            if not points:  # fewer rounds than a block
                continue
            rounds, means, lows, highs = zip(*points, strict=True)
            axis.plot(rounds, means, label=arm, color=colours[arm])
            seeds = sum(job["state"] == "done" for own, job in record["jobs"].items() if own.split("/")[0] == arm)
            if seeds > 2:
                ends = [  # equal seeds have no interval
                    [mean if end is None else end for mean, end in zip(means, side, strict=True)]
                    for side in (lows, highs)
                ]
                axis.fill_between(rounds, *ends, color=colours[arm], alpha=0.15, linewidth=0)
        axis.set(xlabel="round", ylabel=label)
        if name == "solve_rate":  # of few attempts, the intervals reach far beyond what a share can be
            axis.set_ylim(0, 1)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Results of experiments for their pages in docs/results.")
    parser.add_argument("folders", nargs="*", type=Path, help="folders of experiments, with results.json")
    parser.add_argument("--tables", action="store_true", help="write the tables of all JSON that are there")
    options = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    for folder in options.folders:
        record = record_of(folder)
        (RESULTS / f"{record['name']}.json").write_text(json.dumps(record, indent=1) + "\n")
        keep_runs(folder, RESULTS / f"{record['name']}.tar.xz")
        draw(record, Path(f"docs/images/{record['name']}.png"))
    for path in sorted(RESULTS.glob("*.json")):
        page = page_of(path.stem)
        page.write_text(filled(page.read_text(), json.loads(path.read_text())))


if __name__ == "__main__":
    main()
