import json
import sys
from pathlib import Path

import pandas
import pytest

from benchmarks import answer_forms
from tests.archives import unpack


RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


@pytest.fixture
def experiment(tmp_path):
    """One run of two rounds, whose student repeats itself from the second on."""
    run = tmp_path / "mine" / "pair" / "seed_3"
    (run / "evaluation").mkdir(parents=True)
    (run / "rounds").mkdir()
    rows = [("1 + 20 - 3", "solved"), ("4 + 5 - 6", "wrong"), ("7 * 8", "wrong"), ("?", "refused")]
    asked = "```numbers\n2 3 9\n```\n```target\n{}\n```"
    told = [
        {"player": "student_0", "verdict": verdict, "completion": f"```expression\n{text}\n```", "question": str(i),
         "prompt": asked.format((14, 10, 8, 14)[i])}
        for i, (text, verdict) in enumerate(rows)
    ]  # fmt: skip
    pandas.DataFrame(told).to_parquet(run / "evaluation" / "puzzles.parquet")
    for number, texts in enumerate(("abcd", "aaaa")):
        puzzles = [json.dumps({"numbers": [1, 2, 3], "target": target}) for target in (6, 5, 6, 0)]
        rows = [("learned", "student", "student_0", i % 8, text, False, None, "") for text in texts for i in range(8)]
        rows += [("extra", "student", "student_0", 0, "z", False, None, "")]
        rows += [("learned", "teacher", "teacher_0", 0, "z", None, True, puzzle) for puzzle in puzzles]
        rows += [("learned", "teacher", "teacher_0", 0, "z", None, False, None)]
        columns = ["kind", "role", "member", "group", "completion", "solved", "valid", "payload"]
        table = pandas.DataFrame(rows, columns=columns)
        table.to_parquet(run / "rounds" / f"round_{number:06d}.parquet")
    return tmp_path / "mine"


def test_forms_and_distinct_completions_of_a_run(experiment, tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["answer_forms.py", str(experiment), "--exam", "puzzles", "--json", str(out)])
    answer_forms.main()
    (run,) = json.loads(out.read_text()).items()
    assert run[0] == "pair/seed_3" and run[1]["distinct"] == {"student_0": [0.5]}  # mean of 1 and 0
    assert run[1]["alarms"] == {"student_0": [2]} and run[1]["sums"] == [0.5]
    assert run[1]["constant"] == {"form": "a + b + c", "right": 0.5}
    assert run[1]["forms"]["student_0"] == [
        {"form": "N + N - N", "share": 0.667, "right": 0.5},
        {"form": "N * N", "share": 0.333, "right": 0.0},
    ]


@pytest.mark.parametrize(("name", "runs"), [("smollm2_learning", 10), ("smollm2_longer", 12)])
def test_the_committed_forms_are_those_of_the_archive(tmp_path, monkeypatch, name, runs):
    unpack(RESULTS / "experiments" / f"{name}.tar.xz", tmp_path)
    out, folder = tmp_path / "out.json", str(tmp_path / name)
    options = ["--exam", "puzzles", "--control", "before", "--json", str(out)]
    monkeypatch.setattr(sys, "argv", ["answer_forms.py", folder, *options])
    answer_forms.main()
    again, kept = (json.loads(path.read_text()) for path in (out, RESULTS / f"{name}_forms.json"))
    of_exams = [
        {run: {key: one.get(key) for key in ("forms", "constant", "difference")} for run, one in record.items()}
        for record in (again, kept)
    ]
    assert len(kept) == runs and of_exams[0] == of_exams[1]


def test_an_exam_that_nobody_took_is_told(experiment, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["answer_forms.py", str(experiment), "--exam", "gsm8k"])
    with pytest.raises(SystemExit):
        answer_forms.main()
    assert "took the exam 'gsm8k'" in capsys.readouterr().err
