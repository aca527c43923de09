"""Minerva Math: problems of science courses at MIT, OCWCourses (Lewkowycz et al. 2022, arXiv:2206.14858)."""

from ...tasks.math.answers import last_box
from ..exam import Question
from ..graders.mathematics import MathAccuracy, math_reference
from .benchmark import Benchmark, Record, chat
from .boxed import BOXED, boxed


RTOL = 1e-4
"""Relative error that a number may have, as in the evaluation of Qwen2.5-Math."""


def _answer(record: Record) -> str:
    return last_box(record["solution"]) or ""


def _question(record: Record, place: int) -> Question:
    return Question(
        str(place),
        chat(record["problem"] + BOXED),
        math_reference([_answer(record)], rtol=RTOL),
        record.get("type", ""),
    )


MINERVA = Benchmark(
    id="minerva",
    title="Minerva Math",
    file="minerva_math.jsonl",
    hub="svc-huggingface/minerva-math",
    columns=("problem", "solution"),
    question=_question,
    grader=MathAccuracy,
    gold=lambda record: boxed(_answer(record)),
    max_completion_length=1024,
)
