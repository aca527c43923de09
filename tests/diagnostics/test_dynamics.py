import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.code_tasks import code_buffer, code_seeds, code_task, code_types
from trl_populora.diagnostics import (
    Observer,
    RoundSummary,
    round_metrics,
    solve_rate_matrix,
    summarize_round,
    task_metrics,
)
from trl_populora.diagnostics.dynamics import (
    RESIDUAL_GAMES,
    MemberSummary,
    collapse_alarms,
    connected_groups,
    dispersion,
    distinct,
    rating_residual,
    repetition_alarms,
    sandbox_alarms,
)
from trl_populora.diagnostics.matched import MatchedGames
from trl_populora.reporting.comparison import run_cost
from trl_populora.self_play.ratings import Match, Outcome, Ratings
from trl_populora.self_play.records import Attempt, Proposal, RoundRecord
from trl_populora.tasks import INFRASTRUCTURE, Refusal


TASK = code_task("code_o", "def f(x):\n    return x + 1", inputs=("1",), outputs=("2",), author="teacher_0", step=3)


TYPES = code_types("compact")
SPARED = ("the executor failed on 1 of 6 rows",)  # of `record`


def member(name, *, role=None, version=0):
    return SimpleNamespace(id=name, role=role or name.split("_")[0], version=version)


def a_population():
    return SimpleNamespace(values=lambda: [member("teacher_0"), member("student_0")], adapter_of=str)


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
    assert (teacher.reward, teacher.validity, teacher.solve_rate) == (-0.25, 0.5, 0.5)
    assert (teacher.fill_rate, teacher.solve_rate_filled) == (None, None)
    assert (teacher.rows, teacher.tokens, teacher.length, teacher.version) == (2, 30, 15.0, 2)
    assert teacher.refusals == {"no_program": 1}
    assert (teacher.distinct, student.distinct) == (0.0, 0.5)  # "text" twice; "2" and "3", and "" twice
    assert student.reward == pytest.approx(-0.5 / 3)  # the row that nobody is to blame for has no part in it
    assert (student.validity, student.solve_rate) == (None, 0.5)  # of its two games
    assert (student.fill_rate, student.solve_rate_filled) == (0.5, 0.0)  # of two fill-ins, one judged
    assert (summary.solve_rate, summary.solve_rates) == (0.5, {"code_o": 0.5})
    assert (summary.fill_rate, summary.solve_rate_filled) == (0.5, 0.0)
    assert student.refusals == {"no_output": 1, "infra_error": 1}
    assert (summary.games, summary.wins, summary.matches) == (((2,),), ((1,),), 1)
    assert (summary.attempts, summary.solved) == (((2,),), ((1,),))
    assert solve_rate_matrix(summary) == [[0.5]]
    assert summary.alarms == SPARED


def test_a_source_that_does_not_tell_roles_apart_has_those_of_its_members():
    summary = summarize_round(record(), **members_of_record())
    assert round_metrics(replace(summary, lengths={}, refusals={})) == round_metrics(summary)


def test_a_shared_member_has_both_sides():
    summary = summarize_round(
        record(), ratings=ratings(), members=[member("agent_0", role="shared")], adapter_of=lambda player: "agent_0"
    )
    (agent,) = summary.members
    assert (agent.validity, agent.solve_rate) == (0.5, 0.5)
    assert (agent.rows, agent.tokens) == (5, 42)  # nothing is learned from the row that the executor failed on
    assert (agent.unlearned_rows, agent.unlearned_tokens) == (1, 4)
    assert agent.mu == ratings()["student_0"].mu
    metrics = round_metrics(summary)
    assert metrics["teachers/validity"] == 0.5 and metrics["solve_rate"] == 0.5
    assert (metrics["teachers/length"], metrics["students/length"], metrics["length/agent_0"]) == (15, 4, 46 / 6)
    refused = {name: count for name, count in metrics.items() if "refused" in name}
    assert refused == {
        "teachers/refused/no_program": 1,
        "students/refused/no_output": 1,
        "students/refused/infra_error": 1,
    }
    assert "teachers/rating/dispersion" not in metrics
    assert metrics["students/distinct"] == metrics["distinct/agent_0"] == 0.5 and "teachers/distinct" not in metrics


def test_teachers_whose_rewards_wait_are_summed_up_by_what_they_learn_from_now():
    own = record()
    waiting = tuple(replace(one, learned=False) for one in own.proposals)
    first = summarize_round(replace(own, proposals=waiting), **members_of_record()).members[0]
    assert (first.reward, first.rows, first.tokens, first.prompt_tokens) == (None, 0, 0, 0)
    assert (first.unlearned_rows, first.unlearned_tokens) == (0, 0)  # they wait
    assert (first.validity, first.length, first.refusals) == (0.5, 15.0, {"no_program": 1})  # of what it wrote
    due = (
        Proposal("teacher_0", "code_o", "a", group=0, task=TASK, reward=1.0, tokens=7, prompt_tokens=3),
        Proposal("teacher_0", "code_o", "b", group=0, refusal=Refusal("no_program"), reward=-0.5, tokens=5),
        Proposal("teacher_0", "code_o", "c", group=0, task=TASK, tokens=9, learned=False),  # of its predecessor
    )
    later = summarize_round(replace(own, proposals=waiting, late_proposals=due), **members_of_record()).members[0]
    assert (later.reward, later.rows, later.tokens, later.prompt_tokens) == (0.25, 2, 12, 3)
    assert (later.unlearned_rows, later.unlearned_tokens) == (1, 9)
    assert (later.validity, later.length) == (0.5, 15.0)


def members_of_record():
    return {"ratings": ratings(), "members": [member("teacher_0"), member("student_0")]}


def test_a_proposal_that_the_executor_failed_on_is_neither_valid_nor_invalid():
    spared = Proposal("teacher_0", "code_o", "text", group=0, refusal=INFRASTRUCTURE, tokens=6)
    own = record()
    summary = summarize_round(replace(own, proposals=(*own.proposals, spared)), **members_of_record())
    teacher = summary.members[0]
    assert (teacher.validity, teacher.rows, teacher.unlearned_rows) == (0.5, 2, 1)
    summary = summarize_round(replace(own, proposals=(spared, spared)), **members_of_record())
    assert summary.members[0].validity is None and summary.alarms == ("the executor failed on 3 of 6 rows",)
    assert "teachers/validity" not in round_metrics(summary)


def test_a_member_without_rows_is_listed():
    empty = RoundRecord(round=0, step=0)
    summary = summarize_round(empty, ratings=ratings(), members=[member("teacher_0"), member("student_0")])
    assert [(m.reward, m.validity, m.solve_rate, m.rows, m.length) for m in summary.members] == [
        (None, None, None, 0, 0)
    ] * 2
    assert "reward/teacher_0" not in round_metrics(summary)


def test_summary_survives_json_and_later_keys():
    summary = summarize_round(
        record(),
        ratings=ratings(),
        members=[member("teacher_0"), member("student_0")],
        statuses={"ok": 3},
        complexity={"lines": 2.0},
        events=({"slot": "student_0", "version": 1, "operator": "clone", "parents": [["student_0", 0]]},),
    )
    data = json.loads(json.dumps(summary.to_json()))
    assert RoundSummary.from_json(data) == summary
    data["members"][0]["later"] = data["later"] = 1
    assert RoundSummary.from_json(data) == summary


@pytest.mark.parametrize(
    "name, value", [("round", None), ("seconds", {"learn": "1"}), ("games", [3]), ("alarms", "a")]
)
def test_a_summary_of_other_types_is_refused(name, value):
    members = [member("teacher_0"), member("student_0")]
    data = json.loads(json.dumps(summarize_round(record(), ratings=ratings(), members=members).to_json()))
    with pytest.raises(ValueError, match=f"^{name} is "):
        RoundSummary.from_json(data | {name: value})
    data["members"][0]["tokens"] = 0.5
    with pytest.raises(ValueError, match=r"^tokens is 0.5"):
        RoundSummary.from_json(data)


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
    assert metrics["grad_norm/teacher_0"] == metrics["teachers/grad_norm"] == 0.5
    assert metrics["teachers/refused/no_program"] == 1
    assert "validity/student_0" not in metrics and "students/grad_norm" not in metrics
    assert metrics["solve_rate"] == metrics["types/solve_rate/code_o"] == metrics["solve_rate/student_0"] == 0.5
    assert metrics["types/solve_rate/code_o/student_0"] == 0.5
    assert metrics["fill_rate"] == metrics["fill_rate/student_0"] == 0.5
    assert metrics["solve_rate_filled"] == metrics["solve_rate_filled/student_0"] == 0
    assert metrics["pairs/solve_rate/teacher_0/student_0"] == 0.5
    assert metrics["pairs/solve_rate_window/teacher_0/student_0"] == 0.5


def test_a_history_without_attempts_has_no_rates_of_pairs():
    """An older one: `attempts` came later."""
    data = summarize_round(record(), **members_of_record()).to_json()
    del data["attempts"]
    assert not [name for name in round_metrics(RoundSummary.from_json(data)) if name.startswith("pairs/")]


def test_headline_numbers_of_a_role_take_the_place_of_means_over_members():
    summary = summarize_round(record(), ratings=ratings(), members=[member("teacher_0"), member("student_0")])
    assert round_metrics(summary)["teachers/reward"] == -0.25
    metrics = round_metrics(replace(summary, rewards={"teachers/reward": 0.75, "teachers/zero_std_groups": 1.0}))
    assert metrics["teachers/reward"] == 0.75 and metrics["teachers/zero_std_groups"] == 1
    assert metrics["students/reward"] == pytest.approx(-0.5 / 3)


def test_dispersion_is_within_a_role_and_of_those_who_have_the_number():
    assert dispersion([1.0, 3.0, None]) == 1.0
    assert dispersion([1.0, None]) is None
    both = Ratings(["teacher_0", "teacher_1"], ["student_0"])
    both.update([Outcome("teacher_0", "student_0", 8, 0), Outcome("teacher_1", "student_0", 8, 8)])
    members = [member(name) for name in (*both.teachers, *both.students)]
    metrics = round_metrics(summarize_round(record(), ratings=both, members=members))
    apart = both["teacher_0"].mu - both["teacher_1"].mu
    assert metrics["teachers/rating/dispersion"] == pytest.approx(abs(apart) / 2)
    assert "students/rating/dispersion" not in metrics
    assert "teachers/solve_rate_dispersion" not in metrics  # only one teacher's tasks were played


def test_residual_is_what_ratings_miss_over_pairs_with_enough_games():
    """Each teacher beats one student always and loses to the other: one number per member says nothing of it."""
    circle = Ratings(["teacher_0", "teacher_1"], ["student_0", "student_1"])
    one_sided = [
        Outcome(f"teacher_{i}", f"student_{j}", RESIDUAL_GAMES, RESIDUAL_GAMES * (i == j))
        for i, j in ((0, 0), (1, 1), (0, 1), (1, 0))
    ]
    circle.update(one_sided[:1])
    assert rating_residual(circle, min_games=RESIDUAL_GAMES + 1) is None
    circle.update(one_sided[1:])
    assert rating_residual(circle) == pytest.approx(0.5, abs=0.1)
    assert rating_residual(circle) == pytest.approx(float((circle.residual**2).mean()) ** 0.5)


def summary_of(name, validity):
    return MemberSummary(name, "teacher", 0, 0.0, validity, None, 25.0, 8.0, 1.0, 4, 4)


@pytest.mark.parametrize(
    "facts, words",
    [
        ({"members": [summary_of("teacher_3", 0.0)]}, "no valid proposal from teacher_3"),
        ({"coverage": [1, 2, 5, 5, 5], "patience": 2}, "not grown for 2 rounds"),
        ({"games": [[4, 0], [0, 4]]}, "2 groups"),
    ],
)
def test_alarms_ring_when_they_should_and_not_otherwise(facts, words):
    well = {
        "members": [summary_of("teacher_0", 0.5)],
        "games": [[4, 4], [0, 4]],
        "coverage": [1, 2, 3, 4, 5],
        "patience": 2,
    }
    assert alarms(well) == ()
    (alarm,) = alarms(well | facts)
    assert words in alarm


def alarms(facts):
    facts = dict(facts)
    return collapse_alarms(facts.pop("members"), facts.pop("games"), **facts)


def test_distinct_is_zero_if_all_texts_of_each_prompt_are_equal_and_one_if_all_differ():
    assert distinct([]) is None and distinct([(0, "a"), (1, "a")]) is None
    assert distinct([(0, "a"), (1, "b"), (0, "a"), (1, "b"), (2, "c")]) == 0
    assert distinct([(0, "a"), (0, "b"), (0, "c"), (1, "a"), (1, "b")]) == 1
    assert distinct([(0, "a"), (0, "a"), (0, "b"), (1, "a"), (1, "b")]) == 0.75


@pytest.mark.parametrize("shared", [False, True])
def test_students_that_repeat_a_wrong_answer_raise_an_alarm(shared):
    def alarm(texts, solved, groups=4):
        own = [Attempt("student_0", TASK, text, group, solved=solved) for group in range(groups) for text in texts]
        if shared:
            return repetition_alarms({"agent_0": own})
        return repetition_alarms({"student_0": own, "student_1": own, "student_2": own[:8]})

    names = "agent_0" if shared else "student_0, student_1"
    assert alarm("aaaaaaaa", False) == (
        f"{names} repeated one answer in nearly all attempts at a task, often a wrong one",
    )
    assert alarm("aaaaaaaa", True) == ()  # mastered
    assert alarm("aaaaaaab", False) == () and alarm("aaaaaaaa", False, groups=3) == ()
    assert repetition_alarms({"student_0": []}) == ()


def test_groups_are_those_of_the_graph_of_games():
    assert connected_groups([[0, 0], [0, 0]]) == 4
    assert connected_groups([[1, 0], [0, 0]]) == 3
    assert connected_groups([[1, 1], [1, 0]]) == 1
    assert connected_groups([]) == 0


def test_features_that_cannot_be_used_end_no_run(monkeypatch, caplog):
    population, observer = a_population(), Observer(TYPES)
    monkeypatch.setattr(type(TYPES["code_o"]), "features", lambda self, task: ({}, "own", (0, 0, 0, 1.5)))
    for _ in range(2):
        summary = observer.observe(record(3), ratings=ratings(), population=population)
    assert summary.complexity == {} and summary.coverage["filled"] == 0
    (told,) = [one.getMessage() for one in caplog.records]
    assert "point must be 4 numbers in [0, 1], got (0, 0, 0, 1.5). They count in no measure" in told


def test_observer_counts_what_is_new_and_goes_into_a_checkpoint():
    population, observer = a_population(), Observer(TYPES)
    first = observer.observe(record(3), ratings=ratings(), population=population, counts={"ok": 5, "cpu_timeout": 0})
    second = observer.observe(record(4), ratings=ratings(), population=population, counts={"ok": 7, "cpu_timeout": 0})
    assert (first.statuses, second.statuses) == ({"ok": 5}, {"ok": 2})
    assert first.coverage == {"filled": 1, "new": 1, "filled/teacher_0": 1}
    assert second.coverage == {"filled": 1, "new": 0, "filled/teacher_0": 1}
    assert first.complexity["lines"] == 2
    resumed = Observer(TYPES)
    resumed.load_state_dict(json.loads(json.dumps(observer.state_dict())))
    assert resumed.state_dict() == observer.state_dict()
    third = resumed.observe(record(5), ratings=ratings(), population=population, counts={"ok": 1})
    assert third.coverage == second.coverage and third.statuses == {"ok": 1}
    # in the same process, after an interrupt: its executor has run programs of the round that is repeated
    observer.load_state_dict(resumed.state_dict(), counts={"ok": 9})
    fourth = observer.observe(record(6), ratings=ratings(), population=population, counts={"ok": 12})
    assert fourth.statuses == {"ok": 3}


def test_programs_of_others_count_for_nobody():
    """A code_f proposal is built on a reference's program: it shows nothing of what its teacher can write."""
    population = a_population()
    long = "def f(x):\n    y = x + 1\n    z = y * 2\n    return z"
    borrowed = code_task("code_f", long, inputs=("1", "2"), outputs=("4", "6"), author="teacher_0", message="m")
    both = record()
    both = replace(both, proposals=(*both.proposals, Proposal("teacher_0", "code_f", "text", group=1, task=borrowed)))
    summary = Observer(TYPES).observe(both, ratings=ratings(), population=population)
    assert summary.complexity["lines"] == 2 and summary.coverage == {"filled": 1, "new": 1, "filled/teacher_0": 1}
    only = Observer({"code_f": TYPES["code_f"]})
    for number in range(25):
        summary = only.observe(
            replace(both, round=number, proposals=both.proposals[2:]), ratings=ratings(), population=population
        )
    assert summary.complexity == summary.coverage == {}
    assert not any("coverage" in alarm for alarm in summary.alarms)
    assert not any(name.startswith(("coverage", "complexity")) for name in round_metrics(summary))


def test_members_may_take_some_rounds_to_meet():
    apart = Ratings(["teacher_0", "teacher_1"], ["student_0", "student_1"])
    apart.update([Outcome("teacher_0", "student_0", 2, 1), Outcome("teacher_1", "student_1", 2, 1)])
    members = [member(name) for name in (*apart.teachers, *apart.students)]
    early, late = (summarize_round(record(number), ratings=apart, members=members) for number in (3, 4))
    assert early.alarms == SPARED
    assert "2 groups" in late.alarms[1]


def test_members_may_take_some_rounds_to_meet_a_child():
    """A replaced member's tally is empty, so right after a replacement the graph of games falls apart."""
    both = Ratings(["teacher_0", "teacher_1"], ["student_0", "student_1"])
    games = [Outcome(teacher, student, 4, 2) for teacher in both.teachers for student in both.students]
    matched, versions = MatchedGames(), dict.fromkeys((*both.teachers, *both.students), 0)

    def alarms(number):
        members = [member(name, version=version) for name, version in versions.items()]
        return summarize_round(record(number), ratings=both, members=members, matched=matched).alarms

    both.update(games)
    assert [alarms(number) for number in range(10)] == [SPARED] * 10
    both.inherit("student_1", ["student_0"])
    versions["student_1"] = 1
    both.update([Outcome("teacher_1", "student_0", 4, 2)])
    assert [alarms(number) != SPARED for number in range(10, 16)] == [False] * 4 + [True] * 2
    both.update(games)
    assert alarms(16) == SPARED


def test_rows_of_champions_are_counted_apart_from_those_of_members():
    guest = tuple(Attempt("student_0@2", TASK, "3", group=0, tokens=5, learned=False) for _ in range(3))
    plain, more = (
        summarize_round(one, ratings=ratings(), members=[member("teacher_0"), member("student_0")])
        for one in (record(), replace(record(), guest_attempts=guest))
    )
    assert more == replace(plain, guest_rows=3, guest_tokens=15)
    assert round_metrics(more)["compute/guest_rows"] == 3 and "compute/guest_rows" not in round_metrics(plain)
    assert run_cost([more, plain]) == run_cost([plain, plain])._replace(
        unlearned_rows=run_cost([plain, plain]).unlearned_rows + 3,
        unlearned_tokens=run_cost([plain, plain]).unlearned_tokens + 15,
    )


def test_extra_attempts_are_rows_that_nobody_learns_from():
    extra = tuple(Attempt("student_0", TASK, "3", group=0, tokens=5, learned=False) for _ in range(3))
    plain, more = (
        summarize_round(one, ratings=ratings(), members=[member("teacher_0"), member("student_0")])
        for one in (record(), replace(record(), extra_attempts=extra))
    )
    before, after = plain.members[1], more.members[1]
    assert (after.unlearned_rows, after.unlearned_tokens) == (before.unlearned_rows + 3, before.unlearned_tokens + 15)
    assert replace(after, unlearned_rows=0, unlearned_tokens=0) == replace(
        before, unlearned_rows=0, unlearned_tokens=0
    )


def test_fill_ins_that_the_executor_failed_on_are_not_unsolved():
    attempts = (
        Attempt("student_0", TASK, "2", group=0, solved=True, reward=1.0),
        Attempt("student_0", TASK, "2", group=0, refusal=INFRASTRUCTURE),
    )
    summary = summarize_round(replace(record(), attempts=attempts), **members_of_record())
    assert summary.solve_rate_filled == summary.members[1].solve_rate_filled == 1.0 and summary.fill_rate == 1.0


def test_a_single_agent_counts_in_both_roles():
    summary = summarize_round(
        record(), ratings=ratings(), members=[member("agent_0", role="shared")], adapter_of=lambda player: "agent_0"
    )
    metrics = round_metrics(summary)
    for name in ("reward", "rating/mu"):
        assert metrics[f"students/{name}"] == metrics[f"teachers/{name}"] == metrics[f"{name}/agent_0"]
    assert "students/validity" not in metrics


def test_pairs_have_the_rate_of_the_round_and_that_of_the_window():
    summary = summarize_round(record(), **members_of_record())
    summary = replace(summary, window_attempts=((8,),), window_solved=((7,),))
    metrics = round_metrics(summary)
    assert metrics["pairs/solve_rate/teacher_0/student_0"] == 0.5
    assert metrics["pairs/solve_rate_window/teacher_0/student_0"] == 7 / 8


def test_coverage_stalls_after_as_many_rounds_as_told_and_not_before():
    def stalled(coverage):
        return any("coverage" in alarm for alarm in collapse_alarms([], [], coverage=coverage, patience=20))

    assert stalled([5] * 21) and stalled([1, *[5] * 21])
    assert not stalled([5] * 20) and not stalled([1, *[5] * 20])


def test_members_that_met_in_forfeits_only_have_met():
    both = Ratings(["teacher_0"], ["student_0", "student_1"])
    both.update([Outcome("teacher_0", "student_0", 2, 1), Outcome("teacher_0", "student_1", 2, 0, forfeit=True)])
    games = MatchedGames()
    members = [member(name) for name in ("teacher_0", "student_0", "student_1")]
    for number in range(6):
        summary = summarize_round(record(number), ratings=both, members=members, matched=games)
    assert not any("never met" in alarm for alarm in summary.alarms)


def test_tasks_that_nobody_tried_are_not_among_the_unsolved():
    buffer = code_buffer(1000, code_seeds(4, type="code_o"))
    other = code_task(
        "code_o", "def f(x):\n    return x + 2", inputs=("1",), outputs=("3",), author="teacher_0", step=3
    )
    buffer.add(TASK)
    buffer.add(other)
    buffer.count(TASK, solved=False)
    assert task_metrics(record(), buffer, TYPES)["never_solved"] == 1.0
    buffer.count(other, solved=True)
    assert task_metrics(record(), buffer, TYPES)["never_solved"] == 0.5


def test_negative_rewards_are_not_earned():
    """As `learnability` pays -0.5 for a task that is never solved."""
    proposals = tuple(
        Proposal("teacher_0", "code_o", "", group=0, task=TASK, reward=reward, solve_rate=rate)
        for reward, rate in ((-0.5, 0.0), (0.5, 0.5), (0.5, 0.0))
    )
    told = task_metrics(RoundRecord(3, 3, proposals=proposals), code_buffer(1000, code_seeds(4, type="code_o")), TYPES)
    assert told["unsolved_reward"] == 0.5 and told["unsolved"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("prompts, rotation", [(1, 3), (2, 2), (3, 1), (4, 1)])
def test_the_rotation_is_the_rounds_in_which_all_types_have_their_turn(prompts, rotation):
    assert Observer(TYPES, prompts_per_teacher=prompts).matched.rotation == rotation == -(-len(TYPES) // prompts)


def test_new_cells_are_those_of_the_round():
    population, observer, new = a_population(), Observer(TYPES), []
    for number, body in enumerate(("x + 1", "[x] * 3", "sorted([x, 2, 3])[::-1] + [str(x)]")):
        task = code_task(
            "code_o", f"def f(x):\n    return {body}", inputs=("1",), outputs=("2",), author="teacher_0", step=3
        )
        proposal = Proposal("teacher_0", "code_o", "", group=0, task=task)
        own = replace(record(number), proposals=(proposal,))
        new.append(observer.observe(own, ratings=ratings(), population=population).coverage["new"])
    assert new == [1, 1, 1]


@pytest.mark.parametrize(
    "refusals, told",
    [
        ([None] * 9 + ["infra_error"], "the executor failed on 1 of 10 rows"),
        ([None] * 10 + ["infra_error"], None),
        (["no_program"] * 20 + ["infra_error"], "the executor failed on 1 of 21 rows"),
        (["no_program"] * 20, None),
        ([None] * 20, None),
        ([], None),
    ],
)
def test_a_sandbox_that_fails_is_an_alarm(refusals, told):
    rows = [SimpleNamespace(refusal=None if reason is None else Refusal(reason)) for reason in refusals]
    assert sandbox_alarms(rows) == (() if told is None else (told,))
