import json
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.code_tasks import code_task, code_types
from trl_populora.run_files.round_table import COLUMNS
from trl_populora.self_play import Completion, RewardSettings
from trl_populora.self_play.evidence import Outcome
from trl_populora.self_play.late import LateRewards, Row
from trl_populora.self_play.ratings import Match, tally
from trl_populora.self_play.records import Attempt, Proposal, RoundRecord
from trl_populora.tasks.task import Refusal


DOUBLE = code_task("code_o", "def f(x):\n    return 2 * x", inputs=("3",), outputs=("6",), author="teacher_0", step=4)
ASKED = [{"role": "user", "content": "Write one."}]
SEED = code_task("code_i", "def f(x):\n    return x", inputs=("'a'",), outputs=("'a'",))


def sample() -> RoundRecord:
    return RoundRecord(
        round=2,
        step=4,
        proposals=(
            Proposal("teacher_0", "code_o", "text with \u2603", 0, task=DOUBLE, reward=0.5, tokens=7, prompt=ASKED),
            Proposal("teacher_0", "code_o", "", 0, refusal=Refusal("no_program", "no fence"), reward=-1.0),
        ),
        attempts=(
            Attempt("student_1", DOUBLE, "6", 0, solved=True, opponent="teacher_0", reward=1.0),
            Attempt("student_1", DOUBLE, "7", 0, opponent="teacher_0", reward=-0.5, tokens=1),
            Attempt("student_1", SEED, "?", 1, refusal=Refusal("no_input")),
        ),
        matches=(Match("teacher_0", "student_1", 2, 1),),
    )


def paid_by_others(solve_rate, solved_elsewhere):
    return 1 - solve_rate if solve_rate or solved_elsewhere else -0.5


@pytest.mark.parametrize("teacher, unpaid", [("solvable", 0.0), (f"{__name__}:paid_by_others", -0.5)])
def test_a_task_that_others_solve_later_is_paid_then(teacher, unpaid):
    late = LateRewards(1, RewardSettings(teacher=teacher))
    proposals = [
        Proposal("teacher_0", "code_o", "a", 0, task=DOUBLE, reward=unpaid, solve_rate=0.0),
        Proposal("teacher_0", "code_o", "b", 0, task=SEED, reward=0.5, solve_rate=0.5),
    ]
    rows = [Row("teacher_0", "teacher", "code_o", [], Completion("text", [1], [2]), one.reward) for one in proposals]
    late.exchange(0, rows, proposals, {"teacher_0": 0})
    assert [task.id for task in late.unsolved] == [DOUBLE.id]
    late.note({DOUBLE.id, SEED.id})
    assert late.unsolved == []
    learned, settled = late.exchange(1, rows, proposals, {"teacher_0": 0})
    assert [row.reward for row in learned] == [1.0, 0.5] == [one.reward for one in settled]


def test_rows_of_groups_of_another_size_are_not_learned_from():
    """After a resume with half as many prompts and groups of twice the size, the players of all rows are the same."""
    late = LateRewards(1, RewardSettings(teacher="solvable"))
    completion = Completion("text", [1], [2])
    for round, groups in enumerate([(0, 0, 1, 1), (0, 0, 0, 0)]):
        proposals = [Proposal("teacher_0", "code_o", "a", group, task=SEED, reward=0.5) for group in groups]
        rows = [Row("teacher_0", "teacher", "code_o", [], completion, 0.5) for _ in groups]
        learned, settled = late.exchange(round, rows, proposals, {"teacher_0": 0})
        assert [row.reward for row in learned] == [None] * 4 and settled == ()


def test_waiting_proposals_survive_json():
    record, rewards = sample(), RewardSettings(teacher="solvable")
    late = LateRewards(2, rewards)
    rows = [
        Row("teacher_0", "teacher", "code_o", [], Completion("text", [1], [2]), one.reward) for one in record.proposals
    ]
    late.exchange(0, rows, record.proposals, {"teacher_0": 3})
    copy = LateRewards(2, rewards)
    copy.load_state_dict(json.loads(json.dumps(late.state_dict())), code_types())
    assert copy.state_dict() == late.state_dict()
    others = [replace(one, completion="new") for one in record.proposals]
    late.exchange(1, rows, others, {}), copy.exchange(1, rows, others, {})
    given = [one.exchange(2, rows, others, {"teacher_0": 3}) for one in (late, copy)]
    assert given[0] == given[1] and given[0][1] == record.proposals


def test_rows():
    rows = list(sample().rows({"teacher_0": 3}))
    assert [row["role"] for row in rows] == ["teacher"] * 2 + ["student"] * 3
    assert all(list(row) == list(COLUMNS) for row in rows)
    assert all(isinstance(row[name], (kind, type(None))) for row in rows for name, kind in COLUMNS.items())
    assert rows[0] == {
        "round": 2,
        "step": 4,
        "member": "teacher_0",
        "role": "teacher",
        "version": 3,
        "type": "code_o",
        "group": 0,
        "task": DOUBLE.id,
        "author": "teacher_0",
        "task_step": 4,
        "payload": json.dumps(DOUBLE.payload.to_json()),
        "opponent": None,
        "fill_in": None,
        "valid": True,
        "reason": None,
        "detail": None,
        "solved": None,
        "reward": 0.5,
        "rewards": None,
        "advantage": None,
        "learned": True,
        "prompt": '[{"role": "user", "content": "Write one."}]',
        "prompt_tokens": 0,
        "tokens": 7,
        "completion": "text with \u2603",
        "kind": "learned",
    }
    assert (rows[1]["valid"], rows[1]["reason"], rows[1]["task"]) == (False, "no_program", None)
    assert (rows[3]["valid"], rows[3]["solved"], rows[3]["opponent"]) == (True, False, "teacher_0")
    assert (rows[4]["valid"], rows[4]["reason"], rows[4]["type"]) == (False, "no_input", "code_i")
    assert (rows[4]["author"], rows[4]["opponent"], rows[4]["detail"]) == ("seed", None, "")
    assert [row["fill_in"] for row in rows] == [None, None, False, False, True]
    assert [row["version"] for row in rows] == [3, 3, None, None, None]


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
