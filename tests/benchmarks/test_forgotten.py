"""`benchmarks/forgotten.py`: what runs lose and win against the base."""

import pandas as pd

from benchmarks.forgotten import changes


def test_losses_and_wins_are_counted_question_by_question():
    verdicts = {
        "base": ["solved", "solved", "wrong", "wrong", "solved"],
        "average": ["solved", "refused", "solved", "wrong", "spared"],
        "student_0": ["wrong"] * 5,
        "teacher_0": ["solved"] * 5,
    }
    rows = [
        {"player": player, "question": str(number), "verdict": verdict}
        for player, own in verdicts.items()
        for number, verdict in enumerate(own)
    ]
    assert changes(pd.DataFrame(rows)) == {"base": 2, "lost": 1, "won": 1}  # what was spared is left out
    alone = [row for row in rows if row["player"] in ("base", "student_0")]
    assert changes(pd.DataFrame(alone)) == {"base": 3, "lost": 3, "won": 0}
