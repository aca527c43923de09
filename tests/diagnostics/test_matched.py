"""Matched games over rounds: what counts, what is forgotten, and when a pair is called disengaged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.code_tasks import code_task
from trl_populora.diagnostics.matched import AGE, MIN_TASKS, PATIENCE, WINDOW, MatchedGames, Tally
from trl_populora.self_play.records import Attempt, RoundRecord
from trl_populora.tasks import INFRASTRUCTURE, Refusal


TEACHERS, STUDENTS = ("teacher_0", "teacher_1"), ("student_0", "student_1")
VERSIONS = dict.fromkeys((*TEACHERS, *STUDENTS), 0)


def task(kind="code_o"):
    return code_task(kind, "def f(x):\n    return x", inputs=("1",), outputs=("1",), author="teacher_0", step=0)


def attempts(teacher, student, outcomes, *, kind="code_o", start=0):
    """One group of attempts per list of outcomes."""
    return [
        Attempt(student, task(kind), "", group=start + group, solved=solved, opponent=teacher)
        for group, own in enumerate(outcomes)
        for solved in own
    ]


def played(number, *lists):
    return RoundRecord(round=number, step=number, attempts=tuple(one for own in lists for one in own))


def observe(games, record, **versions):
    games.update(record, teachers=TEACHERS, versions=VERSIONS | versions)
    return games


def test_only_games_between_members_that_were_judged_count():
    games = observe(
        MatchedGames(),
        played(
            0,
            attempts("teacher_0", "student_0", [[True, False], [False]]),
            attempts(None, "student_0", [[True] * 4], start=2),  # filled in
            attempts("teacher_1@3", "student_0", [[True] * 4], start=3),  # by a champion
            [Attempt("student_0", task(), "", group=4, refusal=INFRASTRUCTURE, opponent="teacher_0")],
            [Attempt("student_0", task(), "", group=5, refusal=Refusal("no_output"), opponent="teacher_0")],
        ),
    )
    assert games.newest("teacher_0", "student_0") == games.newest() == Tally(tasks=3, attempts=4, solved=1)
    assert games.solve_rate() == games.solve_rate("teacher_0") == games.solve_rate(student="student_0") == 0.25
    assert games.solve_rate("teacher_1") is None and games.newest("teacher_1", "student_0") == Tally()


def test_types_that_take_turns_do_not_make_the_headline_oscillate():
    """Three types of different difficulty, one a round: the share of a round jumps, the headline stands still."""
    rates, games = {"code_o": 0.75, "code_i": 0.5, "code_f": 0.25}, MatchedGames(rotation=3)
    shares, headlines = [], []
    for number in range(9):
        kind = list(rates)[number % 3]
        outcomes = [[k < 4 * rates[kind] for k in range(4)]]
        observe(games, played(number, attempts("teacher_0", "student_0", outcomes, kind=kind)))
        assert list(games.by_type()) == [kind]
        shares.append(games.newest().solved / games.newest().attempts)
        headlines.append(games.solve_rate())
    assert set(shares) == {0.25, 0.5, 0.75}
    assert headlines[2:] == [0.5] * 7
    for number in (9, 10):  # no valid proposal: what is older than a rotation has no part
        observe(games, played(number))
    assert games.solve_rate() == 0.25
    assert observe(games, played(11)).solve_rate() is None
    with pytest.raises(ValueError, match="rotation=0"):
        MatchedGames(rotation=0)


def test_the_newest_rate_of_a_type_counts_once():
    games = MatchedGames(rotation=2)
    observe(games, played(0, attempts("teacher_0", "student_0", [[True] * 4])))
    observe(games, played(1, attempts("teacher_0", "student_0", [[False] * 4])))
    assert games.solve_rate() == 0.0 and games.window() == Tally(2, 8, 4)


def one_sided(games, solved, rounds, tasks, *, teacher="teacher_0", student="student_0", first=0):
    for number in range(first, first + rounds):
        others = attempts("teacher_1", "student_1", [[True, False]], start=100)
        observe(games, played(number, attempts(teacher, student, [[solved] * 2] * tasks), others))
    return games


@pytest.mark.parametrize("solved, words", [(True, "solved every task"), (False, "solved no task")])
def test_a_pair_whose_every_game_ends_alike_is_called_after_a_while(solved, words):
    per_round = -(-MIN_TASKS // PATIENCE)
    assert one_sided(MatchedGames(), solved, PATIENCE - 1, 50).alarms(TEACHERS, STUDENTS) == []  # few meetings
    assert one_sided(MatchedGames(), solved, WINDOW, 1).alarms(TEACHERS, STUDENTS) == []  # few tasks
    games = one_sided(MatchedGames(), solved, PATIENCE, per_round)
    (alarm,) = games.alarms(TEACHERS, STUDENTS)
    assert f"student_0 {words} of teacher_0 " in alarm
    for number in range(PATIENCE, 3 * WINDOW):  # the words stay the same while it lasts
        one_sided(games, solved, 1, per_round, first=number)
        assert games.alarms(TEACHERS, STUDENTS) == [alarm]
    one_sided(games, not solved, 1, 1, first=99)  # one task the other way
    assert games.alarms(TEACHERS, STUDENTS) == []


def test_the_widest_case_is_told_and_only_that():
    games, per_round = MatchedGames(), -(-MIN_TASKS // PATIENCE)
    everybody = lambda number, rates: played(  # noqa: E731
        number,
        *(
            attempts(t, s, [[rates(t, s)] * 2] * per_round, start=100 * i + 10 * j)
            for i, t in enumerate(TEACHERS)
            for j, s in enumerate(STUDENTS)
        ),
    )
    for number in range(PATIENCE):
        observe(games, everybody(number, lambda t, s: False))
    (alarm,) = games.alarms(TEACHERS, STUDENTS)
    assert "the students solved no task of the teachers" in alarm
    games = MatchedGames()
    for number in range(PATIENCE):
        observe(games, everybody(number, lambda t, s: s == "student_1"))
    alarms = games.alarms(TEACHERS, STUDENTS)
    assert len(alarms) == 2
    assert "student_0 solved no task of the teachers" in alarms[0]
    assert "student_1 solved every task of the teachers" in alarms[1]
    games = MatchedGames()
    for number in range(PATIENCE):
        observe(games, everybody(number, lambda t, s: (t, s) == ("teacher_0", "student_0")))
    alarms = games.alarms(TEACHERS, STUDENTS)
    assert any("student_0 solved every task of teacher_0 " in alarm for alarm in alarms)
    assert any("student_1 solved no task of the teachers" in alarm for alarm in alarms)


def test_a_pair_that_meets_seldom_is_judged_by_its_meetings():
    games = MatchedGames()
    for number in range(6 * PATIENCE):
        own = attempts("teacher_0", "student_0", [[False] * 2] * 4) if number % 6 == 0 else []
        observe(games, played(number, own, attempts("teacher_0", "student_1", [[True, False]] * 4, start=50)))
    (alarm,) = games.alarms(TEACHERS, STUDENTS)
    assert "student_0 solved no task of teacher_0 " in alarm
    assert games.disengaged("teacher_0", "student_0") == 0 and games.disengaged("teacher_0") is None


def test_a_pair_that_has_not_met_for_many_rounds_is_not_called():
    games = one_sided(MatchedGames(), False, PATIENCE, 4)
    (alarm,) = games.alarms(TEACHERS, STUDENTS)
    assert "student_0 solved no task of teacher_0 " in alarm

    def others(number):
        return observe(games, played(number, attempts("teacher_1", "student_0", [[True, False]])))

    for number in range(PATIENCE, AGE):
        assert others(number).alarms(TEACHERS, STUDENTS) == [alarm], "all five meetings are young enough"
    assert others(AGE).alarms(TEACHERS, STUDENTS) == []
    assert games.window("teacher_0", "student_0").tasks == (PATIENCE - 1) * 4
    for number in range(AGE + 1, AGE + PATIENCE):
        others(number)
    assert games.window("teacher_0", "student_0") == Tally()


def test_it_is_known_since_when_the_present_members_play():
    games = one_sided(MatchedGames(), True, 3, 1)
    assert games.since == 0
    for number in (3, 4):
        observe(games, played(number), teacher_1=2)
        assert games.since == 3
    again = MatchedGames()
    again.load_state_dict(json.loads(json.dumps(games.state_dict())))
    assert observe(again, played(5), teacher_1=2).since == 3


def test_the_games_of_a_replaced_member_are_forgotten():
    games = one_sided(MatchedGames(), False, PATIENCE, 4)
    assert games.disengaged("teacher_0", "student_0") == 0
    observe(games, played(PATIENCE, attempts("teacher_0", "student_0", [[False] * 2])), student_0=1)
    assert games.disengaged("teacher_0", "student_0") is None
    assert games.window("teacher_0", "student_0") == Tally(1, 2, 0)
    assert games.window("teacher_1", "student_1").tasks == PATIENCE  # the others' stay
    assert games.window("teacher_0") == games.window("teacher_0", "student_0")  # nor do they count for its opponent
    assert games.window().tasks == PATIENCE + 1 and games.disengaged() is None


def test_a_run_from_the_start_has_no_games_of_the_last_one():
    games = one_sided(MatchedGames(), False, PATIENCE, 4)
    observe(games, played(0, attempts("teacher_0", "student_0", [[True] * 2])))
    assert games.newest() == games.window() == Tally(1, 2, 2) and games.solve_rate() == 1.0
    assert games.since == 0 and games.alarms(TEACHERS, STUDENTS) == []


GAME = st.tuples(
    st.sampled_from(TEACHERS), st.sampled_from(STUDENTS), st.sampled_from(("code_o", "code_i")), st.booleans()
)


@given(st.lists(st.lists(GAME, max_size=6), min_size=1, max_size=8), st.integers(1, 3), st.integers(0, 7))
def test_a_resumed_count_is_the_one_that_was_never_stopped(rounds, rotation, stop):
    def record(number):
        return played(
            number,
            *(attempts(t, s, [[won]], kind=kind, start=i) for i, (t, s, kind, won) in enumerate(rounds[number])),
        )

    whole, resumed = MatchedGames(rotation=rotation), MatchedGames(rotation=rotation)
    for number in range(len(rounds)):
        if number == stop:
            state = json.loads(json.dumps(resumed.state_dict()))
            resumed = MatchedGames(rotation=rotation)
            resumed.load_state_dict(state)
        changed = {"student_1": int(number > 3)}
        for games in (whole, resumed):
            observe(games, record(number), **changed)
        assert whole.newest().solved == sum(game[3] for game in rounds[number])
    assert resumed.state_dict() == whole.state_dict()
    assert resumed.solve_rate() == whole.solve_rate()


def test_the_window_of_a_member_is_of_rounds_and_not_of_rounds_for_each_opponent():
    """It meets another opponent in every other round."""
    games = MatchedGames()
    for number in range(2 * WINDOW):
        observe(games, played(number, attempts("teacher_0", STUDENTS[number % 2], [[number >= WINDOW]])))
    assert games.window("teacher_0") == games.window() == Tally(WINDOW, WINDOW, WINDOW)
    assert games.window("teacher_0", "student_0") == Tally(WINDOW, WINDOW, WINDOW // 2)


def test_another_run_of_one_round_forgets_the_first():
    games = MatchedGames()
    for solved in (True, False):
        observe(games, played(0, attempts("teacher_0", "student_0", [[solved]])))
    assert games.window() == Tally(1, 1, 0)


def test_types_that_take_more_than_a_window_of_rounds_are_all_in_the_headline():
    games, rotation = MatchedGames(rotation=WINDOW + 4), WINDOW + 4
    for number in range(rotation):
        observe(games, played(number, attempts("teacher_0", "student_0", [[number == 0]], kind=KINDS[number > 0])))
    assert games.solve_rate() == games.solve_rate("teacher_0", "student_0") == 0.5


KINDS = ("code_o", "code_i")
