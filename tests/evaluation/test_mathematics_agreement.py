"""Agreement with math-verify itself on public benchmarks, where their files are: on right answers and on wrong ones,
which are right answers to other questions."""

import json
import os
import subprocess
import sys

import pytest

from trl_populora.evaluation.benchmarks import benchmark


DATA = os.environ.get("POPULORA_BENCHMARKS")
ORACLE = """
import json, logging, sys
from math_verify import parse, verify
logging.disable()
for line in sys.stdin:
    gold, completion = json.loads(line)
    print(int(verify(parse(gold), parse(completion))), flush=True)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DATA is None, reason="POPULORA_BENCHMARKS names no folder with the files of public benchmarks"),
]


@pytest.mark.parametrize("name", ["math_500", "aime24", "aime25", "amc23", "minerva", "olympiadbench"])
def test_verdicts_are_those_of_math_verify(name, run):
    records, _ = benchmark(name).records(DATA)
    questions = benchmark(name).exam(DATA).questions
    golds = [benchmark(name).gold(record) for record in records]
    pairs = [(i, (i + step) % len(golds)) for step in (0, 1, 5) for i in range(len(golds))]
    completions = [golds[j] for _, j in pairs]
    grades = benchmark(name).grader(run).grade(completions, [questions[i].reference for i, _ in pairs])
    lines = "".join(json.dumps([golds[i], golds[j]]) + "\n" for i, j in pairs)
    oracle = subprocess.run(
        [sys.executable, "-c", ORACLE], input=lines, stdout=subprocess.PIPE, text=True, timeout=1800, check=True
    )
    said = [line == "1" for line in oracle.stdout.split()]
    assert len(said) == len(pairs)
    disagreements = [
        (questions[i].id, completions[place], grades[place].verdict)
        for place, (i, _) in enumerate(pairs)
        if (grades[place].verdict == "solved") != said[place]
    ]
    assert not disagreements


def test_every_right_answer_is_right_in_gsm8k():
    records, _ = benchmark("gsm8k").records(DATA)
    questions = benchmark("gsm8k").exam(DATA).questions
    golds = [benchmark("gsm8k").gold(record) for record in records]
    grader = benchmark("gsm8k").grader(lambda jobs: pytest.fail("a number went to the sandbox"))
    assert all(grade.verdict == "solved" for grade in grader.grade(golds, [one.reference for one in questions]))
