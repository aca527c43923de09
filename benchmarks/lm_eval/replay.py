"""A server that answers prompts with completions that are there already, so that lm-evaluation-harness grades them.

```
python benchmarks/lm_eval/replay.py --port 8012 \\
    --questions QUESTIONS/gsm8k.jsonl --answers EVALUATION/gsm8k_100.parquet
```

It speaks the part of OpenAI's chat completions that `local-chat-completions` asks for. `model` names the player.
Several exams need as many files of answers as of questions, in the same order.
"""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow.parquet


def answers_by_prompt(questions: Path, answers: Path) -> dict[tuple[str, str], str]:
    """`(player, prompt)` -> completion, from what `questions.py` and `populora evaluate` wrote."""
    lines = questions.read_text(encoding="utf-8").split("\n")
    prompts = {row["id"]: row["prompt"] for row in map(json.loads, filter(None, lines))}
    rows = pyarrow.parquet.read_table(answers).to_pylist()
    return {(row["player"], prompts[row["question"]]): row["completion"] for row in rows}


def make_server(completions: dict[tuple[str, str], str], port: int = 0) -> ThreadingHTTPServer:
    """A server of these completions on this machine only; any free port if 0."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):  # noqa: N802 (the name that http.server calls)
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = completions.get((request["model"], request["messages"][-1]["content"]))
            message = {"role": "assistant", "content": text}
            body = {"choices": [{"index": 0, "message": message}]} if text is not None else {"error": "no such answer"}
            content = json.dumps(body).encode()
            self.send_response(200 if text is not None else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--questions", type=Path, nargs="+", required=True, help="what questions.py wrote")
    parser.add_argument(
        "--answers", type=Path, nargs="+", required=True, help="tables of answers of populora evaluate"
    )
    parser.add_argument("--port", type=int, default=8012)
    options = parser.parse_args()
    completions = {}
    for files in zip(options.questions, options.answers, strict=True):
        completions |= answers_by_prompt(*files)
    make_server(completions, options.port).serve_forever()


if __name__ == "__main__":
    main()
