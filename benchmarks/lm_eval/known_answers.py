"""Completions made of a benchmark's own solutions, graded by our grader, as a table like those of `populora evaluate`.

```
python benchmarks/lm_eval/known_answers.py --data DATA --output KNOWN gsm8k math_500
```

Its players: `gold` gives the right answer, `solution` the whole solution that comes with it, `next` the answer to the
next question. `replay.py` hands them to lm-evaluation-harness, and `compare.py` compares the two graders.
"""

import argparse
from pathlib import Path

from trl_populora.evaluation.asking import Sample, grade
from trl_populora.evaluation.benchmarks import benchmark
from trl_populora.evaluation.results import COLUMNS, ExamResult
from trl_populora.run_files.files import write_table


def result(name: str, data: str | None) -> ExamResult:
    """The made-up players' graded answers to all questions of a benchmark."""
    source = benchmark(name)
    records, _ = source.records(data)
    gold = [source.gold(record) for record in records]
    texts = {
        "gold": gold,
        "solution": [record.get("solution", record["answer"]) for record in records],
        "next": [*gold[1:], gold[0]],
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
    parser.add_argument("benchmarks", nargs="+", metavar="NAME", help="gsm8k or math_500")
    parser.add_argument("--data", help="folder with the data files; the Hub if unset")
    parser.add_argument("--output", required=True, type=Path, help="folder for the tables")
    options = parser.parse_args()
    for name in options.benchmarks:
        graded = result(name, options.data)
        write_table(options.output / f"{name}.parquet", graded.rows(), COLUMNS)
        print(name, {player: graded.accuracy(player) for player in graded.players})


if __name__ == "__main__":
    main()
