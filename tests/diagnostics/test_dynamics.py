import json
from types import SimpleNamespace

import pytest

from trl_populora.diagnostics import Observer, RoundSummary, round_metrics, solve_rate_matrix, summarize_round
from trl_populora.diagnostics.dynamics import MemberSummary, collapse_alarms, connected_groups
from trl_populora.self_play.ratings import Match, Outcome, Ratings
from trl_populora.self_play.records import Attempt, Proposal, RoundRecord
from trl_populora.tasks.task import Refusal, Task


TASK = Task.create("code_o", "def f(x):\n    return x + 1", inputs=("1",), outputs=("2",), author="teacher_0", step=3)


def member(name, *, role=None, version=0):
    return SimpleNamespace(id=name, role=role or name.split("_")[0], version=version)


def record(number=3):
    refusal = Refusal("no_program")
    return RoundRecord(
        round=number,
        step=number,
        proposals=(
            Proposal("teacher_0", "code_o", "text", group=0, task=TASK, reward=0.5, tokens=10),
            Proposal("teacher_0", "code_o", "text", group=0, refusal=refusal, reward=-1.0, tokens=20),
        ),
        attempts=(
            Attempt("student_0", TASK, "2", group=0, solved=True, opponent="teacher_0", reward=1.0, tokens=4),
            Attempt("student_0", TASK, "3", group=0, opponent="teacher_0", reward=-0.5, tokens=4),
            Attempt("student_0", TASK, "", group=1, refusal=Refusal("no_output"), reward=-1.0, tokens=4),
            Attempt("student_0", TASK, "", group=1, refusal=Refusal("infra_error"), reward=None, tokens=4),
        ),
        matches=(Match("teacher_0", "student_0", 2, 1),),
    )


def ratings():
    both = Ratings(["teacher_0"], ["student_0"])
    both.update([Outcome("teacher_0", "student_0", 2, 1)])
    return both


def test_members_are_summed_up_from_their_own_rows():
    summary = summarize_round(
        record(),
        ratings=ratings(),
        members=[member("teacher_0", version=2), member("student_0")],
        seconds={"solve": 2},
    )
    teacher, student = summary.members
    assert (teacher.reward, teacher.validity, teacher.solve_rate) == (-0.25, 0.5, None)
    assert (teacher.rows, teacher.tokens, teacher.length, teacher.version) == (2, 30, 15.0, 2)
    assert teacher.refusals == {"no_program": 1}
    assert student.reward == pytest.approx(-0.5 / 3)  # the row that nobody is to blame for has no part in it
    assert (student.validity, student.solve_rate) == (None, 0.25)
    assert student.refusals == {"no_output": 1, "infra_error": 1}
    assert (summary.games, summary.wins, summary.matches) == (((2,),), ((1,),), 1)
    assert solve_rate_matrix(summary) == [[0.5]]
    assert summary.alarms == ()


def test_a_shared_member_has_both_sides():
    summary = summarize_round(
        record(), ratings=ratings(), members=[member("agent_0", role="shared")], adapter_of=lambda player: "agent_0"
    )
    (agent,) = summary.members
    assert (agent.validity, agent.solve_rate, agent.rows, agent.tokens) == (0.5, 0.25, 6, 46)
    assert agent.mu == ratings()["student_0"].mu
    metrics = round_metrics(summary)
    assert metrics["teachers/validity"] == 0.5 and metrics["students/solve_rate"] == 0.25


def test_a_member_without_rows_is_listed():
    empty = RoundRecord(round=0, step=0)
    summary = summarize_round(empty, ratings=ratings(), members=[member("teacher_0"), member("student_0")])
    assert [(m.reward, m.validity, m.solve_rate, m.rows, m.length) for m in summary.members] == [
        (None, None, None, 0, 0)
    ] * 2
    assert "population/teacher_0/reward" not in round_metrics(summary)


def test_summary_survives_json_and_later_keys():
    summary = summarize_round(
        record(),
        ratings=ratings(),
        members=[member("teacher_0"), member("student_0")],
        statuses={"ok": 3},
        complexity={"lines": 2.0},
        events=[{"slot": "student_0", "version": 1, "operator": "clone", "parents": [["student_0", 0]]}],
    )
    data = json.loads(json.dumps(summary.to_json()))
    assert RoundSummary.from_json(data) == summary
    data["members"][0]["later"] = data["later"] = 1
    assert RoundSummary.from_json(data) == summary


def test_metrics_are_flat_numbers():
    summary = summarize_round(
        record(),
        ratings=ratings(),
        members=[member("teacher_0"), member("student_0")],
        statuses={"ok": 3},
        grad_norms={"teacher_0": 0.5},
    )
    metrics = round_metrics(summary)
    assert all(isinstance(value, float) for value in metrics.values())
    assert metrics["executor/ok"] == 3
    assert metrics["population/teacher_0/grad_norm"] == metrics["teachers/grad_norm"] == 0.5
    assert metrics["teachers/refused/no_program"] == 1
    assert "population/teacher_0/solve_rate" not in metrics and "students/grad_norm" not in metrics


def summary_of(name, validity):
    return MemberSummary(name, "teacher", 0, 0.0, validity, None, 25.0, 8.0, 1.0, 4, 4)


@pytest.mark.parametrize(
    "facts, words",
    [
        ({"solve_rates": [1.0, 1.0]}, "every task was solved"),
        ({"solve_rates": [0.0, 0.0]}, "no task was solved"),
        ({"members": [summary_of("teacher_3", 0.0)]}, "no valid proposal from teacher_3"),
        ({"coverage": [1, 2, 5, 5, 5], "patience": 2}, "not grown for 2 rounds"),
        ({"games": [[4, 0], [0, 4]]}, "2 groups"),
    ],
)
def test_alarms_ring_when_they_should_and_not_otherwise(facts, words):
    well = {
        "members": [summary_of("teacher_0", 0.5)],
        "games": [[4, 4], [0, 4]],
        "solve_rates": [0.0, 1.0],
        "coverage": [1, 2, 3, 4, 5],
        "patience": 2,
    }
    assert alarms(well) == ()
    (alarm,) = alarms(well | facts)
    assert words in alarm


def alarms(facts):
    facts = dict(facts)
    return collapse_alarms(facts.pop("members"), facts.pop("games"), **facts)


def test_groups_are_those_of_the_graph_of_games():
    assert connected_groups([[0, 0], [0, 0]]) == 4
    assert connected_groups([[1, 0], [0, 0]]) == 3
    assert connected_groups([[1, 1], [1, 0]]) == 1
    assert connected_groups([]) == 0


def test_observer_counts_what_is_new_and_goes_into_a_checkpoint():
    class Members(dict):
        def adapter_of(self, player):
            return player

    population = Members(teacher_0=member("teacher_0"), student_0=member("student_0"))
    observer = Observer()
    first = observer.observe(record(3), ratings=ratings(), population=population, counts={"ok": 5, "cpu_timeout": 0})
    second = observer.observe(record(4), ratings=ratings(), population=population, counts={"ok": 7, "cpu_timeout": 0})
    assert (first.statuses, second.statuses) == ({"ok": 5}, {"ok": 2})
    assert first.coverage == {"filled": 1, "new": 1, "filled/teacher_0": 1}
    assert second.coverage == {"filled": 1, "new": 0, "filled/teacher_0": 1}
    assert first.complexity["lines"] == 2
    resumed = Observer()
    resumed.load_state_dict(json.loads(json.dumps(observer.state_dict())))
    assert resumed.state_dict() == observer.state_dict()
    third = resumed.observe(record(5), ratings=ratings(), population=population, counts={"ok": 1})
    assert third.coverage == second.coverage and third.statuses == {"ok": 1}


def test_members_may_take_some_rounds_to_meet():
    apart = Ratings(["teacher_0", "teacher_1"], ["student_0", "student_1"])
    apart.update([Outcome("teacher_0", "student_0", 2, 1), Outcome("teacher_1", "student_1", 2, 1)])
    members = [member(name) for name in (*apart.teachers, *apart.students)]
    early, late = (summarize_round(record(number), ratings=apart, members=members) for number in (3, 4))
    assert early.alarms == ()
    assert "2 groups" in late.alarms[0]
