"""A made-up benchmark, as a user writes one: count the letters of a word. Its grader needs no sandbox."""

import json
import time

from trl_populora.evaluation import Exam, Question
from trl_populora.evaluation.benchmarks import Benchmark, chat
from trl_populora.evaluation.grading import Grade, Grader


class Count(Grader):
    def judge(self, completions, references, run):
        return [self._grade(*one) for one in zip(completions, references, strict=True)]

    def _grade(self, completion, reference):
        digits = "".join(letter for letter in completion if letter.isdigit())
        if not digits:
            return Grade("refused", detail="no number")
        return Grade("solved" if int(digits) == json.loads(reference) else "wrong", digits)


class Breaks(Count):
    """Raises for answers with an x and hangs for those with a y."""

    def _grade(self, completion, reference):
        if "x" in completion:
            raise KeyError("x")
        while "y" in completion:
            time.sleep(0.01)
        return super()._grade(completion, reference)


class BreaksAlways(Count):
    def _grade(self, completion, reference):
        raise NotImplementedError


def _question(record, place):
    return Question(
        str(place), chat(f"How long is {record['word']}?"), json.dumps(len(record["word"])), record["kind"]
    )


def _benchmark(name, grader, **changes):
    settings = {"columns": ("word", "kind"), "question": _question, "grader": grader, "max_completion_length": 6}
    gold = {"gold": lambda record: str(len(record["word"]))}
    return Benchmark(id=name, title=name, file="letters.jsonl", hub="me/letters", **settings | gold | changes)


def twin():
    """An exam of a user's, named as a part of another."""
    return Exam("letters_2", (Question("0", chat("How long is sun?"), "3"),), Count)


def held_out():
    return Exam("held_out", twin().questions, Count)


def gsm8k():
    return Exam("gsm8k", twin().questions, Count)


def no_grader():
    return Exam("ungraded", twin().questions, Count())


def raises():
    raise KeyError("data")


LETTERS = _benchmark("letters", Count)
SAMPLED = _benchmark("sampled", Count, samples=4, temperature=0.7)
ENDLESS = _benchmark("endless", Count, max_completion_length=None)
BROKEN = _benchmark("broken", BreaksAlways)

WORDS = ["sun", "moon", "comet", "star", "planet", "sky", "orbit", "void"]


def write_data(folder, words=WORDS):
    lines = [json.dumps({"word": word, "kind": "long" if len(word) > 4 else "short"}) for word in words]
    (folder / "letters.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder)
