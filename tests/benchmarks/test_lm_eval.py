"""The cross-check with lm-evaluation-harness on made-up files: what compare.py counts, what replay.py answers."""

import json
import sys
import threading
import urllib.error
import urllib.request

import pytest

from benchmarks.lm_eval import compare, questions, replay
from trl_populora.evaluation.results import COLUMNS
from trl_populora.run_files.files import write_table


TEXTS = ["2 + 2 = 4\n#### 4", "#### 5", "#### 6.", "no idea"]
VERDICTS = ["solved", "solved", "wrong", "refused"]


@pytest.fixture
def ours(tmp_path):
    rows = [
        dict.fromkeys(COLUMNS, "")
        | {name: 0 for name, kind in COLUMNS.items() if kind is not str}
        | {"exam": "gsm8k[:4]", "player": player, "question": str(i), "completion": text, "verdict": verdict}
        for player in ("base", "student_0")
        for i, (text, verdict) in enumerate(zip(TEXTS, VERDICTS, strict=True))
    ]
    path = tmp_path / "gsm8k_4.parquet"
    write_table(path, rows, COLUMNS)
    return path


@pytest.fixture
def theirs(tmp_path):
    """Two filters. The strict one calls question 1 wrong, whose text differs, and question 2 right, whose text does
    not."""
    texts = [TEXTS[0], "#### 7", *TEXTS[2:]]
    rows = [
        {"doc": {"id": str(i)}, "resps": [[text]], "filtered_resps": [text[-1]], "filter": name,
         "metrics": ["exact_match"], "exact_match": float(right)}
        for name, marks in (("strict-match", [1, 0, 1, 0]), ("flexible-extract", [1, 1, 0, 0]))
        for i, (text, right) in enumerate(zip(texts, marks, strict=True))
    ]  # fmt: skip
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_four_counts_and_the_causes(ours, theirs, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["compare.py", "--ours", str(ours), "--theirs", str(theirs)])
    compare.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["exam"], found["player"], found["questions"]) == ("gsm8k[:4]", "base", 4)
    assert found["texts"]["equal"] == 3 and found["texts"]["parted_at"] == pytest.approx(5 / 6)
    flexible = found["graders"]["exact_match, flexible-extract"]
    assert flexible == {"ours": 0.5, "theirs": 0.5, "both": 2, "neither": 2, "ours_only": 0, "theirs_only": 0,
                        "p": 1.0, "disagreements": []}  # fmt: skip
    strict = found["graders"]["exact_match, strict-match"]
    assert [strict[name] for name in ("both", "neither", "ours_only", "theirs_only")] == [1, 1, 1, 1]
    first, second = strict["disagreements"]
    assert (first["question"], first["right"], first["cause"]) == ("1", "ours", "text or grading")
    assert (second["question"], second["right"], second["cause"]) == ("2", "theirs", "grading")


def test_our_grader_on_their_texts_tells_texts_from_grading(ours, theirs):
    _, mine = compare.read_ours(ours, "student_0")
    strict = compare.read_theirs(theirs)["exact_match, strict-match"]
    same = compare.compare(mine, strict, {"0": True, "1": False, "2": False, "3": False})
    assert same["graders_differ"] == ["2"]
    assert [row["cause"] for row in same["disagreements"]] == ["text", "grading"]
    other = compare.compare(mine, strict, {"0": True, "1": True, "2": True, "3": False})
    assert [row["cause"] for row in other["disagreements"]] == ["grading", "grading"]


def test_other_questions_and_players_are_refused(ours, theirs):
    with pytest.raises(ValueError, match=r"'base', 'student_0'"):
        compare.read_ours(ours, "teacher_0")
    with pytest.raises(ValueError, match=r"no metric 'math_verify'; it has \['exact_match'\]"):
        compare.read_theirs(theirs, "math_verify")
    _, mine = compare.read_ours(ours, "base")
    graders = compare.read_theirs(theirs)["exact_match, strict-match"]
    with pytest.raises(ValueError, match=r"ours are 3 questions, theirs 4; only one side has \['3'\]"):
        compare.compare({name: mine[name] for name in "012"}, graders)


def test_their_questions_are_ours(tmp_path):
    record = {"question": "One and one?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"}
    (tmp_path / "gsm8k.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    (row,) = questions.rows("gsm8k", str(tmp_path))
    assert row["id"] == "0" and row["answer"] == record["answer"]
    assert row["prompt"].startswith("One and one?") and "####" in row["prompt"]


def test_answers_are_replayed_by_player_and_prompt(ours, tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps({"id": str(i), "prompt": f"Q{i}\u2028"}) + "\n" for i in range(4)))
    server = replay.make_server(replay.answers_by_prompt(path, ours))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert ask(server, "student_0", "Q1\u2028") == "#### 5"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask(server, "student_0", "Q9")
    finally:
        server.shutdown()
        server.server_close()


def ask(server, model, prompt):
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}]}).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{server.server_port}/v1/chat/completions", body) as response:
        return json.load(response)["choices"][0]["message"]["content"]
