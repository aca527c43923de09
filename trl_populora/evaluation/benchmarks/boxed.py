"""What benchmarks share whose answers stand in a box."""

from ..exam import Question
from ..graders.mathematics import math_reference
from .benchmark import Record, chat


BOXED = "\n\nPlease reason step by step, and put your final answer within \\boxed{}."
"""What evaluations of chat models add to a problem (Qwen2.5-Math, DeepSeek-R1)."""


def competition_question(record: Record, place: int) -> Question:
    """A problem whose answer is a whole number, from the columns `problem`, or `question`, and `answer`."""
    problem = record["problem"] if "problem" in record else record["question"]
    return Question(str(place), chat(problem + BOXED), math_reference([whole(record["answer"])]))


def whole(answer: str | float) -> str:
    """`"025"` and `25.0` as `"25"`; other numbers as they are."""
    try:
        value = float(answer)
    except ValueError:
        raise ValueError(
            f"the right answer {answer!r} is not a number; this examination has no other answers."
        ) from None
    return str(int(value)) if value.is_integer() else str(answer)


def boxed(answer: str) -> str:
    """A completion with nothing but the answer."""
    return f"The final answer is $\\boxed{{{answer}}}$."
