import json
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.code_tasks import code_task
from trl_populora.self_play.evidence import Outcome
from trl_populora.self_play.ratings import Match, tally
from trl_populora.self_play.records import COLUMNS, Attempt, Proposal, RoundRecord
from trl_populora.tasks.task import Refusal


DOUBLE = code_task("code_o", "def f(x):\n    return 2 * x", inputs=("3",), outputs=("6",), author="teacher_0", step=4)
SEED = code_task("code_i", "def f(x):\n    return x", inputs=("'a'",), outputs=("'a'",))


def sample() -> RoundRecord:
    return RoundRecord(
        round=2,
        step=4,
        proposals=(
            Proposal("teacher_0", "code_o", "text with \u2603", 0, task=DOUBLE, reward=0.5, tokens=7),
            Proposal("teacher_0", "code_o", "", 0, refusal=Refusal("no_program", "no fence"), reward=-1.0),
        ),
        attempts=(
            Attempt("student_1", DOUBLE, "6", 0, solved=True, answer_text="6", opponent="teacher_0", reward=1.0),
            Attempt("student_1", DOUBLE, "7", 0, answer_text="7", opponent="teacher_0", reward=-0.5, tokens=1),
            Attempt("student_1", SEED, "?", 1, refusal=Refusal("no_input")),
        ),
        matches=(Match("teacher_0", "student_1", 2, 1),),
    )


def test_json_round_trip():
    record = sample()
    text = json.dumps(record.to_json())
    assert RoundRecord.from_json(json.loads(text)) == record
    assert text.count("return 2 * x") == 1  # each task once
    assert RoundRecord.from_json(RoundRecord(0, 0).to_json()) == RoundRecord(0, 0)


def test_equal_content_by_other_authors_stays_apart():
    other = replace(DOUBLE, author="teacher_1")
    record = RoundRecord(0, 0, attempts=(Attempt("student_0", DOUBLE, "", 0), Attempt("student_0", other, "", 1)))
    assert RoundRecord.from_json(record.to_json()) == record


def test_rows():
    rows = list(sample().rows())
    assert [row["role"] for row in rows] == ["teacher"] * 2 + ["student"] * 3
    assert all(list(row) == list(COLUMNS) for row in rows)
    assert all(isinstance(row[name], (kind, type(None))) for row in rows for name, kind in COLUMNS.items())
    assert rows[0] == {
        "round": 2,
        "step": 4,
        "member": "teacher_0",
        "role": "teacher",
        "type": "code_o",
        "group": 0,
        "task": DOUBLE.id,
        "author": "teacher_0",
        "opponent": None,
        "valid": True,
        "reason": None,
        "solved": None,
        "reward": 0.5,
        "learned": True,
        "prompt_tokens": 0,
        "tokens": 7,
        "completion": "text with \u2603",
        "kind": "learned",
    }
    assert (rows[1]["valid"], rows[1]["reason"], rows[1]["task"]) == (False, "no_program", None)
    assert (rows[3]["valid"], rows[3]["solved"], rows[3]["opponent"]) == (True, False, "teacher_0")
    assert (rows[4]["valid"], rows[4]["reason"], rows[4]["type"]) == (False, "no_input", "code_i")
    assert (rows[4]["author"], rows[4]["opponent"]) == ("seed", None)


def test_rows_make_a_table():
    table = pa.Table.from_pylist(list(sample().rows()))
    assert table.column_names == list(COLUMNS)
    assert table.num_rows == 5


def test_tally_keeps_games_and_forfeits_apart():
    outcomes = [
        Outcome("teacher_0", "student_1", 2, 1),
        Outcome("teacher_0", "student_1", 6, 0, forfeit=True),
        Outcome("teacher_1", "student_1", 6, 0, forfeit=True),
        Outcome("teacher_0", "student_1", 3, 3),
    ]
    assert tally(outcomes) == (
        Match("teacher_0", "student_1", 5, 4, forfeits=6),
        Match("teacher_1", "student_1", 0, 0, forfeits=6),
    )
    assert tally([]) == ()


def test_contradictions_are_refused():
    with pytest.raises(ValueError, match="one of the two"):
        Proposal("teacher_0", "code_o", "", 0)
    with pytest.raises(ValueError, match="one of the two"):
        Proposal("teacher_0", "code_o", "", 0, task=DOUBLE, refusal=Refusal("no_program"))
    with pytest.raises(ValueError, match="'no_output'"):
        Attempt("student_0", DOUBLE, "", 0, solved=True, refusal=Refusal("no_output"))
