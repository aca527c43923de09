"""Completions made of a benchmark's own solutions, graded by our grader, as a table like those of `populora evaluate`.

```
python benchmarks/lm_eval/known_answers.py --data DATA --output KNOWN gsm8k math_500
```

Its players: `gold` gives the right answer, `solution` the whole solution that comes with it, `next` the answer to the
next question, and `reworded` the right answer in `FORMS` that the prompt did not ask for, in turn. `replay.py` hands
them to lm-evaluation-harness, and `compare.py` compares the two graders.
"""

import argparse
from pathlib import Path

from trl_populora.evaluation.answering import Sample, grade
from trl_populora.evaluation.benchmarks import benchmark
from trl_populora.evaluation.results import COLUMNS, ExamResult
from trl_populora.run_files.files import write_table


FORMS = {
    "gsm8k": ("#### $<answer>", "#### <answer>.00", "#### <answer> in all", "The answer is <answer>."),
    "math_500": (
        "The answer is $<answer>$.",
        "Is it $\\boxed{-1}$? No, it is $\\boxed{<answer>}$.",
        "First $n = -1$, then it is \\boxed{<answer>}, as was to be shown.",
    ),
}


def result(name: str, data: str | None) -> ExamResult:
    """The made-up players' graded answers to all questions of a benchmark."""
    source = benchmark(name)
    records, _ = source.records(data)
    gold, forms = [source.gold(record) for record in records], FORMS[name]
    texts = {
        "gold": gold,
        "solution": [record.get("solution", record["answer"]) for record in records],
        "next": [*gold[1:], gold[0]],
        "reworded": [
            forms[place % len(forms)].replace("<answer>", record["answer"].rpartition("####")[2].strip())
            for place, record in enumerate(records)
        ],
    }
    exam = source.exam(data)
    samples = [
        Sample(player, place, 0, text, tokens=0, prompt_tokens=0)
        for player, column in texts.items()
        for place, text in enumerate(column)
    ]
    return ExamResult(exam, grade(exam, samples, exam.grader(None)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("benchmarks", nargs="+", choices=list(FORMS))
    parser.add_argument("--data", help="folder with the data files; the Hub if unset")
    parser.add_argument("--output", required=True, type=Path, help="folder for the tables")
    options = parser.parse_args()
    for name in options.benchmarks:
        graded = result(name, options.data)
        write_table(options.output / f"{name}.parquet", graded.rows(), COLUMNS)
        print(name, {player: graded.accuracy(player) for player in graded.players})


if __name__ == "__main__":
    main()
