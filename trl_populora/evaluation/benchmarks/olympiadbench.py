"""OlympiadBench: open-ended problems of mathematical competitions, in English and without images (He et al. 2024,
arXiv:2402.14008).

Two right answers are damaged in the data, and are used as they are: of question 2045, `t(0,4]` for t in (0,4], and of
2498, `\\frac{1}{2},\\sqrt{x}` for half of the root."""

from ..exam import Question
from ..graders.mathematics import MathAccuracy, math_reference
from .benchmark import Benchmark, Record, chat
from .boxed import boxed


KINDS = {
    "Numerical": "a numerical value",
    "Expression": "an expression",
    "Equation": "an equation",
    "Interval": "an interval",
    "Tuple": "a tuple",
}
PROMPT = """{context}{question}

This is an open-ended problem of a mathematics competition. {wanted} Please reason step by step. Use LaTeX for the \
variables and formulas. End with "So the final answer is \\boxed{{{place}}}."{unit}"""


def _question(record: Record, place: int) -> Question:
    kind, several, unit = record["answer_type"], bool(record["is_multiple_answer"]), record["unit"] or ""
    wanted = KINDS.get(kind, "what is asked for")
    prompt = PROMPT.format(
        context=f"{record['context']}\n\n" if record["context"] else "",
        question=record["question"],
        wanted=f"It has several answers, each of them {wanted}." if several else f"Its answer is {wanted}.",
        place="all answers, separated by commas" if several else "answer",
        unit=f" The unit of the answer is {unit}; leave it out of \\boxed{{}}." if unit else "",
    )
    reference = math_reference(
        record["final_answer"],
        kind=kind,
        several=several,
        atol=[float(one) for one in (record["error"] or "").split(",") if one.strip()],
        unit=unit,
    )
    return Question(str(record["id"]), chat(prompt), reference, record["subfield"])


OLYMPIADBENCH = Benchmark(
    id="olympiadbench",
    title="OlympiadBench",
    file="olympiadbench.jsonl",
    hub="Hothan/OlympiadBench",
    config="OE_TO_maths_en_COMP",
    split="train",
    columns=(
        "id",
        "question",
        "context",
        "final_answer",
        "is_multiple_answer",
        "unit",
        "answer_type",
        "error",
        "subfield",
    ),
    question=_question,
    grader=MathAccuracy,
    gold=lambda record: boxed(", ".join(record["final_answer"]).replace("$", "")),
    max_completion_length=2048,
)
