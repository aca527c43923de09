"""AIME 2024 and 2025: the American Invitational Mathematics Examination, parts I and II. Answers are whole numbers
from 0 to 999."""

from dataclasses import replace

from ..graders.mathematics import MathAccuracy
from .benchmark import Benchmark
from .boxed import boxed, competition_question, whole


AIME24 = Benchmark(
    id="aime24",
    title="AIME 2024",
    file="aime24.jsonl",
    hub="HuggingFaceH4/aime_2024",
    split="train",
    columns=("problem", "answer"),
    question=competition_question,
    grader=MathAccuracy,
    gold=lambda record: boxed(whole(record["answer"])),
    max_completion_length=2048,
    samples=32,
    temperature=0.6,
)

AIME25 = replace(AIME24, id="aime25", title="AIME 2025", file="aime25.jsonl", hub="math-ai/aime25", split="test")
