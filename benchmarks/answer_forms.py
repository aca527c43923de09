"""Whether students give one form of answer to all questions, in the finished runs of an experiment on countdown.

    python benchmarks/answer_forms.py runs/experiments/smollm2_learning --exam puzzles --control before \
        --json benchmarks/results/smollm2_learning_forms.json

from the root of a clone, after the experiment. For each run and student: the commonest forms of its answers to the
exam, with their shares and how many of each are right (a *form* is an answer with N for its numbers, such as
`N - N - N`), and by blocks of ten rounds, from their tables, `distinct` (`diagnostics.dynamics.distinct`) and *sums*:
the share of valid proposals that the sum of their numbers solves. And the rounds, from 1, with the alarm "repeated one
answer", also where a run is older than the alarm. And, as a control, the one expression of the numbers in
their order that solves most of the exam, such as `a + b + c`: what a student reaches that does not look at the target.
With `--control ARM`, the difference in the exam from that arm's run of the same seed, paired by question: mean and
95 % interval for other questions.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from trl_populora.diagnostics.dynamics import distinct, repeats_itself
from trl_populora.evaluation.statistics import difference
from trl_populora.experiments.questions import right_by_question
from trl_populora.reporting.played_run import read_run
from trl_populora.run_files.layout import EVALUATION_FOLDER, ROUNDS_FOLDER, answers_file


BLOCK = 10
SHOWN = 3
TASK = re.compile(r"```numbers\n([0-9 ]+)\n```\n```target\n(-?[0-9]+)")  # in a prompt of the exam


def main() -> None:
    parser = argparse.ArgumentParser(description="Forms of the answers of an experiment's students.")
    parser.add_argument("folder", type=Path, help="folder of an experiment")
    parser.add_argument("--exam", required=True, help="name of the exam, as in the results")
    parser.add_argument("--control", metavar="ARM", help="compare with the run of this arm and the same seed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to a file")
    options = parser.parse_args()
    found = {}
    for place in sorted(options.folder.glob("*/seed_*")):
        answers = Path(answers_file(str(place / EVALUATION_FOLDER), options.exam))
        if answers.is_file():
            told = pandas.read_parquet(answers)
            found[f"{place.parent.name}/{place.name}"] = {
                "forms": forms_by_player(told),
                "constant": constant(told.drop_duplicates("question").prompt),
                **repetitions(sorted((place / ROUNDS_FOLDER).glob("*.parquet"))),
            }
            control = options.folder / (options.control or "") / place.name
            if options.control not in (None, place.parent.name) and control.is_dir():
                found[f"{place.parent.name}/{place.name}"]["difference"] = gained(place, control, options.exam)
    if not found:
        parser.error(f"no run in {options.folder} took the exam {options.exam!r}.")
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


def gained(run: Path, control: Path, exam: str) -> list[float]:
    """Difference of the share solved, with its interval."""
    right, before = (right_by_question(read_run(str(one)), exam, of="mean") for one in (run, control))
    own, others = (np.array([one[key] for key in sorted(before)]) for one in (right, before))
    found = difference(own, others)
    return [round(value, 4) for value in (found.difference, found.low, found.high)]


def forms_by_player(answers: pandas.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Player -> its commonest forms, among all its readable answers."""
    found = {}
    for player, own in answers[answers.verdict != "refused"].groupby("player"):
        forms = [re.sub(r"\d+", "N", re.sub(r"```\w*", "", text).strip()) for text in own.completion]
        right = Counter(form for form, verdict in zip(forms, own.verdict, strict=True) if verdict == "solved")
        found[str(player)] = [
            {"form": form, "share": round(count / len(forms), 3), "right": round(right[form] / count, 3)}
            for form, count in Counter(forms).most_common(SHOWN)
        ]
    return found


def constant(prompts: Iterable[str]) -> dict[str, Any]:
    """The expression without brackets, of the numbers in ascending order, that solves most of the tasks."""
    tasks = [match.groups() for match in map(TASK.search, prompts) if match]
    puzzles = [(sorted(map(int, numbers.split())), int(target)) for numbers, target in tasks]
    names = "abcdefgh"[: max(len(numbers) for numbers, _ in puzzles)]
    solved: Counter[str] = Counter()
    for order, signs in product(permutations(names), product("+-*/", repeat=len(names) - 1)):
        form = " ".join(one for pair in zip(order, (*signs, ""), strict=True) for one in pair).strip()
        code = compile(form, "form", "eval")
        for numbers, target in puzzles:
            if len(numbers) == len(names):
                solved[form] += abs(eval(code, dict(zip(names, numbers, strict=True))) - target) < 1e-9
    form, count = max(solved.items(), key=lambda one: one[1])
    return {"form": form, "right": round(count / len(puzzles), 3)}


def repetitions(tables: list[Path]) -> dict[str, dict[str, list]]:
    """`distinct` of each student's attempts, mean over the rounds of each block; rounds with the alarm; and sums."""
    columns = ["kind", "role", "member", "group", "completion", "solved", "valid", "payload"]
    rounds = [pandas.read_parquet(path, columns=columns) for path in tables]
    found: dict[str, list[list[float]]] = {}
    alarms: dict[str, list[int]] = {}
    for number, table in enumerate(rounds):
        own = table[(table.kind == "learned") & (table.role == "student")]
        for member, rows in own.groupby("member"):
            blocks = found.setdefault(str(member), [[] for _ in range(-(-len(rounds) // BLOCK))])
            attempts = list(zip(rows.group, rows.completion, strict=True))
            value = distinct(attempts)
            blocks[number // BLOCK] += [] if value is None else [value]
            alarms.setdefault(str(member), []).extend(
                [number + 1] * repeats_itself(attempts, float(rows.solved.mean()))
            )
    means = {
        member: [round(sum(block) / len(block), 3) if block else None for block in blocks]
        for member, blocks in found.items()
    }
    sums = []
    for start in range(0, len(rounds), BLOCK):
        block = pandas.concat(rounds[start : start + BLOCK])
        puzzles = [json.loads(text) for text in block[(block.role == "teacher") & (block.valid == True)].payload]  # noqa: E712
        solved = [sum(puzzle["numbers"]) == puzzle["target"] for puzzle in puzzles]
        sums.append(round(sum(solved) / len(solved), 3) if solved else None)
    return {"distinct": means, "alarms": alarms, "sums": sums}


if __name__ == "__main__":
    main()
