"""Question by question: what `populora evaluate` and lm-evaluation-harness say of one player's answers to one exam.

```
python benchmarks/lm_eval/compare.py --ours EVALUATION/gsm8k_100.parquet --player base \\
    --theirs LOGS/base/samples_populora_gsm8k_*.jsonl --data DATA
```

Prints one table for each metric and filter of the task, every disagreement, and all of it as JSON in the last line.
With `--data` their completions are graded by our grader too, and so a disagreement has a cause: `grading`, if the two
graders differ about the same text, else `text`, if two texts were written.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet
from scipy.stats import binomtest


@dataclass(frozen=True)
class Answer:
    """A completion, whether it counts as right, and what was read as its answer."""

    text: str
    right: bool
    read: str


def read_ours(path: Path, player: str) -> tuple[str, dict[str, Answer]]:
    """The exam's name, and the player's answers by question, from a table of `populora evaluate`.

    Raises:
        ValueError: If the player is not in it, or gave several answers to a question.
    """
    rows = pyarrow.parquet.read_table(path).to_pylist()
    own = [row for row in rows if row["player"] == player]
    if not own:
        raise ValueError(f"{path} has no answers of {player!r}; it has {sorted({row['player'] for row in rows})}.")
    if any(row["sample"] for row in own):
        raise ValueError(f"{path} has several answers of {player!r} to a question; evaluate with --samples 1.")
    answers = {
        row["question"]: Answer(row["completion"], row["verdict"] == "solved", f"{row['verdict']}: {row['answer']}")
        for row in own
    }
    return own[0]["exam"], answers


def read_theirs(path: Path, wanted: str | None = None) -> dict[str, dict[str, Answer]]:
    """Their answers by question, for each `metric` or `metric, filter`, from a file that `--log_samples` wrote.

    Raises:
        ValueError: If the wanted metric is not in it.
    """
    graders: dict[str, dict[str, Answer]] = {}
    known = set()
    with open(path, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            known |= set(row["metrics"])
            for metric in row["metrics"] if wanted is None else {wanted} & set(row["metrics"]):
                name = metric if row["filter"] == "none" else f"{metric}, {row['filter']}"
                answer = Answer(row["resps"][0][0], row[metric] == 1, row["filtered_resps"][0])
                graders.setdefault(name, {})[row["doc"]["id"]] = answer
    if not graders:
        raise ValueError(f"{path} has no metric {wanted!r}; it has {sorted(known)}.")
    return graders


def compare(
    ours: Mapping[str, Answer], theirs: Mapping[str, Answer], regraded: Mapping[str, bool] | None = None
) -> dict:
    """Counts and disagreements about the same questions.

    Args:
        ours, theirs (`Mapping[str, Answer]`): By question.
        regraded (`Mapping[str, bool]`, *optional*): What our grader says of their completions.

    Raises:
        ValueError: If the questions are not the same.
    """
    if ours.keys() != theirs.keys():
        one_sided = sorted(ours.keys() ^ theirs.keys())
        raise ValueError(
            f"ours are {len(ours)} questions, theirs {len(theirs)}; only one side has {one_sided[:5]}. Give both the "
            "same --limit."
        )
    pairs = {name: (ours[name].right, theirs[name].right) for name in ours}
    counts = {
        "both": list(pairs.values()).count((True, True)),
        "neither": list(pairs.values()).count((False, False)),
        "ours_only": list(pairs.values()).count((True, False)),
        "theirs_only": list(pairs.values()).count((False, True)),
    }
    apart = counts["ours_only"] + counts["theirs_only"]
    found = {
        "ours": sum(a for a, _ in pairs.values()) / len(pairs),
        "theirs": sum(b for _, b in pairs.values()) / len(pairs),
        **counts,
        "p": binomtest(counts["ours_only"], apart).pvalue if apart else 1.0,
    }
    if regraded is not None:
        found["graders_differ"] = sorted(name for name in theirs if regraded[name] != theirs[name].right)
    found["disagreements"] = [
        {
            "question": name,
            "cause": _cause(ours[name], theirs[name], None if regraded is None else regraded[name]),
            "ours": ours[name].read,
            "theirs": theirs[name].read[-100:],
            "right": "ours" if a else "theirs",
        }
        for name, (a, b) in pairs.items()
        if a != b
    ]
    return found


def _cause(ours: Answer, theirs: Answer, regraded: bool | None) -> str:
    if ours.text == theirs.text or regraded not in (None, theirs.right):
        return "grading"
    return "text" if regraded is not None else "text or grading"


def same_text(ours: Mapping[str, Answer], theirs: Mapping[str, Answer]) -> dict[str, float]:
    """How many completions are equal, and where the others part: median share of our text before that."""
    parted = []
    for name in ours.keys() & theirs.keys():
        a, b = ours[name].text, theirs[name].text
        if a != b:
            common = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            parted.append(common / max(len(a), 1))
    parted.sort()
    return {"equal": len(ours) - len(parted), "parted_at": parted[len(parted) // 2] if parted else None}


def regrade(exam: str, data: str, answers: Mapping[str, Answer]) -> dict[str, bool]:
    """What our grader says of these completions, by question."""
    from trl_populora.evaluation.benchmarks import benchmark

    questions = benchmark(exam.partition("[")[0]).exam(data)
    references = {question.id: question.reference for question in questions.questions}
    grades = questions.grader(None).grade([one.text for one in answers.values()], [references[n] for n in answers])
    return {name: grade.verdict == "solved" for name, grade in zip(answers, grades, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ours", type=Path, required=True, help="table of answers of populora evaluate")
    parser.add_argument("--theirs", type=Path, required=True, help="samples_*.jsonl of lm-eval --log_samples")
    parser.add_argument("--player", default="base")
    parser.add_argument("--metric", help="of the task; all if unset")
    parser.add_argument("--data", help="folder with the data files, to grade their completions by our grader too")
    options = parser.parse_args()
    exam, ours = read_ours(options.ours, options.player)
    graders = read_theirs(options.theirs, options.metric)
    texts = next(iter(graders.values()))
    regraded = regrade(exam, options.data, texts) if options.data else None
    found = {
        "exam": exam,
        "player": options.player,
        "questions": len(ours),
        "texts": same_text(ours, texts),
        "graders": {name: compare(ours, theirs, regraded) for name, theirs in graders.items()},
    }
    print(f"{exam}, {options.player}: {len(ours)} questions, {found['texts']['equal']} equal completions")
    for name, one in found["graders"].items():
        print(f"\n{name}: ours {one['ours']:.1%}, theirs {one['theirs']:.1%} (p = {one['p']:.2g})")
        print("  both {both}, neither {neither}, ours only {ours_only}, theirs only {theirs_only}".format_map(one))
        for row in one["disagreements"]:
            print(f"  {row['question']}: {row['right']} right; {row['cause']}; ours {row['ours']!r}, "
                  f"theirs {row['theirs']!r}")  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
