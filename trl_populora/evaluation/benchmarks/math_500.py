"""MATH-500: 500 problems of the MATH test set (Hendrycks et al. 2021, arXiv:2103.03874), those that Lightman et al.
(2023, arXiv:2305.20050) held out."""

from ..exam import Question
from ..graders.mathematics import MathAccuracy, math_reference
from .benchmark import Benchmark, Record, chat
from .boxed import BOXED, boxed


def _question(record: Record, place: int) -> Question:
    return Question(
        record["unique_id"],
        chat(record["problem"] + BOXED),
        math_reference([record["answer"]]),
        f"level {record['level']}",
    )


MATH_500 = Benchmark(
    id="math_500",
    title="MATH-500",
    file="math500.jsonl",
    hub="HuggingFaceH4/MATH-500",
    columns=("problem", "answer", "level", "unique_id"),
    question=_question,
    grader=MathAccuracy,
    gold=lambda record: boxed(record["answer"]),
    max_completion_length=1024,
)
