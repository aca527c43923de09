"""Writes the questions of benchmarks for lm-evaluation-harness: the records, with our prompt and the question's id.

```
python benchmarks/lm_eval/questions.py --data DATA --output QUESTIONS gsm8k math_500
```
"""

import argparse
import json
from pathlib import Path

from trl_populora.evaluation.benchmarks import benchmark


def rows(name: str, data: str | None) -> list[dict]:
    """One row a question: its record, `id` and `prompt` (a single message of the user)."""
    records, _ = benchmark(name).records(data)
    questions = benchmark(name).exam(data).questions
    out = []
    for record, question in zip(records, questions, strict=True):
        (message,) = question.prompt
        out.append({**record, "id": question.id, "prompt": message["content"]})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("benchmarks", nargs="+", metavar="NAME", help="gsm8k or math_500")
    parser.add_argument("--data", help="folder with the data files; the Hub if unset")
    parser.add_argument("--output", required=True, type=Path, help="folder for the questions")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for name in args.benchmarks:
        lines = [json.dumps(row) + "\n" for row in rows(name, args.data)]
        (args.output / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
