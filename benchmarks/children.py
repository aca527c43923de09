"""What children can do at birth: every operator on trained adapters, examined beside their parents.

    python benchmarks/children.py ADAPTER ADAPTER ... [--operators average svd_subspace] [--json FILE]

Each ADAPTER is a PEFT folder, such as `RUN/student_0`, of one base. Parents take turns: parent i is the first parent
of a child of every operator (with the operator's defaults), and parent i + 1 is the second, where an operator needs
two. A child is compared with its first parent. Of three parents and more, the average of all of them is examined, too:
the mean of their updates, cut to the rank of one. It is compared with the mean parent. `--scales 0.7` adds controls:
each parent with its update multiplied, because averages are shorter than their parents. All answer the same questions
with the same noise.

`kept` is the part of the parents' gain over the base that children still have. For the operators, the unit of chance
is the first parent, and intervals are Student's at 95 %; for the average of all it is the question (bootstrap).
"""

import argparse
import json
import time

import numpy as np
from scipy import stats
from transformers import AutoModelForCausalLM, AutoTokenizer

from trl_populora.evaluation.answering import collect_answers, grade
from trl_populora.evaluation.exams import make_exam
from trl_populora.evaluation.results import ExamResult, per_question
from trl_populora.evaluation.statistics import difference
from trl_populora.evolution import OPERATORS, breed, cosine, delta_norm, read_adapter
from trl_populora.generation import TransformersSampler
from trl_populora.population import Factor, Population
from trl_populora.run_files.run import BASE


def measure(args: argparse.Namespace) -> dict:
    configs, parents = zip(*[read_adapter(folder) for folder in args.adapters], strict=True)
    population = Population(
        AutoModelForCausalLM.from_pretrained(args.base), configs[0], num_teachers=1, num_students=args.at_once
    )
    exam = make_exam(args.exam, {})
    sampler = TransformersSampler(
        population,
        AutoTokenizer.from_pretrained(args.base),
        max_completion_length=exam.max_completion_length,
        temperature=1.0,
        batch_size=args.rows,
    )

    def answer(names: list[str], *, base: bool = False) -> dict[str, np.ndarray]:
        written = collect_answers(
            exam, names, sampler, base=base, samples=args.samples, seed=args.seed, rows_per_call=args.rows
        )
        result = ExamResult(exam, grade(exam, written, exam.grader(None)))
        return {player: per_question(result.scores(player)) for player in result.players}

    count = len(parents)
    adapters = {("parent", i): parent for i, parent in enumerate(parents)}
    if count > 2:
        adapters["all", 0] = breed("average", parents, seed=0)
    for name in args.operators:
        for i in range(count):
            turn = [parents[(i + k) % count] for k in range(OPERATORS[name].num_parents)]
            adapters[name, i] = breed(name, turn, seed=i)
    for scale in args.scales:
        for i, parent in enumerate(parents):
            shorter = {path: Factor(one.A, one.B * scale, one.scaling) for path, one in parent.items()}
            adapters[f"scaled by {scale}", i] = shorter
    before, scores, waiting = answer([], base=True)[BASE], {}, list(adapters)
    while waiting:
        now, waiting = waiting[: args.at_once], waiting[args.at_once :]
        slots = dict(zip(now, population.students, strict=False))
        for one, slot in slots.items():
            population.write(slot, adapters[one])
        found = answer(list(slots.values()))
        scores |= {one: found[slot] for one, slot in slots.items()}
        print({f"{name} {i}": round(float(scores[name, i].mean()), 3) for name, i in now}, flush=True)

    def of(name: str) -> np.ndarray:
        """Scores `(parents, questions)`."""
        return np.stack([scores[name, i] for i in range(count)])

    def norm(name: str) -> float:
        return float(np.mean([delta_norm(adapters[name, i]) / delta_norm(parents[i]) for i in range(count)]))

    own, names = of("parent"), [*args.operators, *(f"scaled by {scale}" for scale in args.scales)]
    return {
        "parents": args.adapters,
        "exam": {"name": args.exam, "version": exam.version, "samples": args.samples, "questions": len(before)},
        "base": float(before.mean()),
        "parent_scores": own.mean(axis=1).tolist(),
        "cosines": [cosine(parents[i], parents[k]) for i in range(count) for k in range(i)],
        "average_of_all": average(scores["all", 0], own, before) if count > 2 else None,
        "operators": {name: compare(of(name), own, before) | {"norm": norm(name)} for name in names},
    }


def compare(child: np.ndarray, parent: np.ndarray, base: np.ndarray) -> dict:
    """Of scores `(parents, questions)`: child minus parent with its interval, and what is kept of the gain."""
    differences = (child - parent).mean(axis=1)
    n, mean = len(differences), float(differences.mean())
    half = float(stats.t.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n))
    return {
        "score": float(child.mean()),
        "difference": mean,
        "low": mean - half,
        "high": mean + half,
        "by_parent": differences.tolist(),
        "kept": kept(child, parent, base),
    }


def average(child: np.ndarray, parents: np.ndarray, base: np.ndarray) -> dict:
    """The average of all parents `(questions,)` against the mean parent."""
    found = difference(child, parents.mean(axis=0))
    return {
        "score": float(child.mean()),
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
        "kept": kept(child, parents, base),
    }


def kept(child: np.ndarray, parents: np.ndarray, base: np.ndarray) -> float | None:
    gain = float(parents.mean() - base.mean())
    return float(child.mean() - base.mean()) / gain if gain else None


def table(result: dict) -> str:
    lines = [
        "| operator | exam | minus first parent | 95% interval | kept of the gain | norm |",
        "|---|---|---|---|---|---|",
    ]
    rows = [(f"`{name}`", one) for name, one in result["operators"].items()]
    if result["average_of_all"]:
        rows.append(("average of all, minus mean parent", result["average_of_all"]))
    for name, one in rows:
        norm = f"{one['norm']:.2f}" if "norm" in one else ""
        part = "-" if one["kept"] is None else f"{one['kept']:.0%}"
        lines.append(
            f"| {name} | {one['score']:.3f} | {one['difference']:+.3f} | {one['low']:+.3f} to {one['high']:+.3f} "
            f"| {part} | {norm} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapters", nargs="+", help="PEFT folders, at least two")
    parser.add_argument(
        "--operators", nargs="*", choices=OPERATORS, default=[name for name in OPERATORS if name != "clone"]
    )
    parser.add_argument("--scales", nargs="*", type=float, default=[], help="controls: parents with shorter updates")
    parser.add_argument("--base", default="recipes/chains/base")
    parser.add_argument("--exam", default="recipes.chains.exams:chains[:216]")
    parser.add_argument("--samples", type=int, default=2, help="answers to each question, at temperature 1")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--rows", type=int, default=256, help="rows of a sampling batch")
    parser.add_argument("--at-once", type=int, default=8, help="adapters that answer together")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    if len(args.adapters) < 2:
        parser.error("At least two adapters are needed: crossovers have two parents.")
    result = measure(args) | {"date": time.strftime("%Y-%m-%d"), "processor_seconds": time.process_time()}
    print(f"base {result['base']:.3f}, parents {np.mean(result['parent_scores']):.3f}\n{table(result)}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
