"""`benchmarks/certainty.py`: students minus the base, run by run and question by question."""

import runpy
from pathlib import Path

import numpy as np

from trl_populora.reporting.over_seeds import over_questions


by_arm = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "certainty.py"))["by_arm"]


def test_runs_of_an_arm_are_compared_with_the_base():
    given = {
        "base": "001",
        "x/many/seed_0/student_0": "011",
        "x/many/seed_0/student_1": "001",
        "x/many/seed_1/student_0": "111",
        "x/one/seed_0/agent_0": "000",
    }
    answers = [
        {"player": player, "question": question, "verdict": "solved" if bit == "1" else "wrong"}
        for player, bits in given.items()
        for question, bit in zip("abc", bits, strict=True)
    ]
    found = by_arm(answers)
    assert found["many"]["runs"] == 2 and found["many"]["mean"] == 0.75 and found["many"]["minus_base"] == 0.4167
    reach = over_questions(np.array([[0, 0.5, 0], [1, 1, 0]]))
    assert found["many"]["interval"] == [round(reach.low, 4), round(reach.high, 4)]
    assert found["one"] == {"runs": 1, "mean": 0.0, "minus_base": -0.3333, "interval": None}
    assert found["all"]["runs"] == 3
