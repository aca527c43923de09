"""Which answers go into a difference between arms, and its interval over seeds and questions."""

import pyarrow
import pyarrow.parquet
import pytest

from trl_populora.experiments.questions import right_by_question, with_questions
from trl_populora.reporting.over_seeds import over_questions
from trl_populora.reporting.played_run import PlayedRun


EXAM = "quiz[:3]"


@pytest.fixture
def run(tmp_path):
    """`run(seed, verdicts)`: a run whose players gave these answers: player -> question -> verdicts."""

    def make(seed, verdicts, name="run"):
        folder = tmp_path / f"{name}_{seed}"
        (folder / "evaluation").mkdir(parents=True)
        rows = [
            {"exam": EXAM, "player": player, "question": question, "verdict": verdict}
            for player, own in verdicts.items()
            for question, given in own.items()
            for verdict in given
        ]
        rows += [{"exam": "other", "player": "student_0", "question": "a", "verdict": "solved"}]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "evaluation" / "all.parquet")
        exams = [{"exam": EXAM, "scores": dict.fromkeys(verdicts, {})}]
        return PlayedRun(str(folder), {"settings": {"seed": seed}}, [], evaluation={"exams": exams})

    return make


ANSWERS = {
    "student_0": {"a": ["solved", "wrong"], "b": ["solved", "spared"], "c": ["spared", "spared"]},
    "student_1": {"a": ["refused", "wrong"], "b": ["wrong", "wrong"], "c": ["spared", "spared"]},
    "average": {"a": ["solved", "solved"], "b": ["solved", "wrong"], "c": ["wrong", "wrong"]},
    "teacher_0": {"a": ["solved", "solved"]},
    "base": {"a": ["solved", "solved"]},
}


def test_students_alone_count_without_spared_answers(run):
    """To `b`, one student has one answer that counts, and the other two: each student counts the same."""
    own = run(0, ANSWERS)
    assert right_by_question(own, EXAM, of="mean") == {"a": 0.25, "b": 0.5}
    assert right_by_question(own, EXAM, of="average") == {"a": 1.0, "b": 0.5, "c": 0.0}
    assert right_by_question(own, "no exam", of="mean") == {}


def test_one_student_is_its_average(run):
    own = run(0, {"agent_0": {"a": ["solved", "wrong"]}, "base": {"a": ["solved", "solved"]}})
    assert right_by_question(own, EXAM, of="average") == right_by_question(own, EXAM, of="mean") == {"a": 0.5}


def single(run, name, seed, a, b, c):
    return run(seed, {"student_0": {"a": a, "b": b, "c": c}, "base": {"a": ["wrong"]}}, name)


def test_common_seeds_and_questions_are_compared(run):
    yes, no = ["solved", "solved"], ["wrong", "wrong"]
    arm = [single(run, "arm", 0, yes, yes, no), single(run, "arm", 1, yes, ["solved", "wrong"], yes)]
    arm += [single(run, "arm", 7, no, no, no)]
    control = [single(run, "control", 1, no, no, ["spared", "spared"]), single(run, "control", 0, yes, no, no)]
    found = with_questions(arm, control, EXAM, of="mean")
    assert found == over_questions(pyarrow.array([0.0, 1.0, 1.0, 0.5]).to_numpy().reshape(2, 2))
    assert with_questions(arm, control, EXAM, of="best") is None
    assert with_questions(arm, [], EXAM, of="mean") is None and with_questions(arm, arm[:1], EXAM, of="mean") is None
    control += [single(run, "control", 9, no, no, no)]  # each arm has a seed of its own: the difference is not paired
    assert with_questions(arm, control, EXAM, of="mean") is None


def test_runs_that_were_asked_other_questions_have_no_interval(run):
    yes, no = ["solved", "solved"], ["wrong", "wrong"]
    arm = [run(seed, {"student_0": {"a": yes, "b": no, "c": no}}, "arm") for seed in (0, 1)]
    same = [run(seed, {"student_0": {"a": no, "b": yes, "c": [no, yes][seed]}}, "same") for seed in (0, 1)]
    others = [run(seed, {"student_0": {"a": no, "b": yes, "d": [no, yes][seed]}}, "others") for seed in (0, 1)]
    assert with_questions(arm, same, EXAM, of="mean") is not None
    assert with_questions(arm, others, EXAM, of="mean") is None
