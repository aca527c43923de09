"""`benchmarks/together.py`: votes of students, and of independent agents."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from benchmarks import together


def table(**answers: list[str | None]) -> pd.DataFrame:
    """Rows of an exam: the right answer to every question is "1"."""
    rows = [
        {
            "player": player,
            "question": str(number),
            "sample": 0,
            "answer": answer,
            "verdict": "refused" if answer is None else "solved" if answer == "1" else "wrong",
        }
        for player, own in answers.items()
        for number, answer in enumerate(own)
    ]
    return pd.DataFrame(rows)


def test_the_most_frequent_answer_counts_and_equal_ones_share():
    run = together.by_player(
        table(a=["1", "1", "2", None], b=["1", "2", "2", None], c=["2", "3", "1", None], base=["1", "1", "1", "1"])
    )
    own = together.scores(run[together.students(run)])
    np.testing.assert_allclose(
        own["vote"], [1, 1 / 3, 0, 0]
    )  # two of three; three different; two are wrong; no answer
    np.testing.assert_allclose(own["any"], [1, 1, 1, 0])
    np.testing.assert_allclose(own["mean"], [2 / 3, 1 / 3, 1 / 3, 0])


def test_right_answers_in_different_forms_are_one_answer():
    answers = table(a=["1"], b=["2"], c=["01"], d=["2"], e=["1.0"])
    answers.loc[answers.answer.isin(["01", "1.0"]), "verdict"] = "solved"
    run = together.by_player(answers)
    assert together.scores(run)["vote"] == [1]


def test_a_folder_of_an_experiment_is_read(tmp_path, monkeypatch, capsys):
    for seed in (1, 2, 3):
        for arm, players in (
            ("several", {"student_0": "111", "student_1": "122", "average": "112"}),
            ("one", {"agent": "121"}),
        ):
            place = tmp_path / "trial" / arm / f"seed_{seed}" / "evaluation"
            place.mkdir(parents=True)
            table(**{name: list(own) for name, own in players.items()}).to_parquet(place / "sums.parquet")
    file = tmp_path / "found.json"
    arguments = [str(tmp_path / "trial"), "--voters", "2", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["together.py", *arguments])
    together.main()
    found = json.loads(file.read_text())["trial/sums"]
    assert found["students"]["several"]["scores"]["vote"][0] == pytest.approx(2 / 3, abs=1e-4)
    assert found["students"]["several"]["differences"]["vote - average"][0] == 0
    assert found["independent"]["one"] == {
        "runs": 3, "voters": 2, "scores": {"mean": 0.6667, "vote": 0.6667, "any": 0.6667},
    }  # fmt: skip
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["together.py", str(tmp_path)])
    with pytest.raises(SystemExit):
        together.main()
    assert "name folders with ARM/seed_N" in capsys.readouterr().err
