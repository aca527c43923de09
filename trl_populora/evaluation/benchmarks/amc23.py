"""AMC 2023: problems of the American Mathematics Competitions 12A and 12B of 2023 whose answers are numbers."""

from ..graders.mathematics import MathAccuracy
from .benchmark import Benchmark
from .boxed import boxed, competition_question, whole


AMC23 = Benchmark(
    id="amc23",
    title="AMC 2023",
    file="amc23.jsonl",
    hub="math-ai/amc23",
    columns=("question", "answer"),
    question=competition_question,
    grader=MathAccuracy,
    gold=lambda record: boxed(whole(record["answer"])),
    max_completion_length=2048,
    samples=32,
    temperature=0.6,
)
