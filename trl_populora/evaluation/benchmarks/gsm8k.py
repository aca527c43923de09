"""GSM8K: word problems of primary school (Cobbe et al. 2021, arXiv:2110.14168)."""

from ..exam import Question
from ..graders.mathematics import MathAccuracy, math_reference
from .benchmark import Benchmark, Record, chat


PROMPT = """{question}

Reason step by step. Then write the final answer, a number, on a last line of this form:
#### <number>"""


def _question(record: Record, place: int) -> Question:
    question, answer = record["question"], record["answer"].rpartition("####")[2].strip()
    if not isinstance(question, str):
        raise TypeError(f"its question is {question!r:.60}")
    return Question(str(place), chat(PROMPT.format(question=question)), math_reference([answer], form="number"))


GSM8K = Benchmark(
    id="gsm8k",
    title="GSM8K",
    file="gsm8k.jsonl",
    hub="openai/gsm8k",
    config="main",
    columns=("question", "answer"),
    question=_question,
    grader=MathAccuracy,
    gold=lambda record: record["answer"],
)
