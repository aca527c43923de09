"""Rounds in which champions of the past play: what members get out of them, and what they do not."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.self_play.script import G, scripted, self_play
from trl_populora.self_play import Crossing, Guest, Guests, RoundSettings
from trl_populora.self_play.pairing import assign_prompts


GUESTS = Guests(teacher=Guest("guest_0", "teacher_1@3"), student=Guest("guest_1", "student_0@2"))


def settings(probability, prompts=1):
    return RoundSettings(
        num_generations=G, num_references=1, guest_probability=probability, prompts_per_teacher=prompts
    )


def play(executor, probability, *, guests=GUESTS, valid=0.7, solved=0.4, round=0, **sizes):
    prompts = math.lcm(sizes.get("teachers", 2), sizes.get("students", 2)) // sizes.get("teachers", 2)
    game = self_play(executor, settings=settings(probability, prompts), **sizes)
    sampler = scripted(game, valid=valid, solved=solved, guest_teacher="guest_0")
    return game, sampler, game.play(sampler, round=round, step=round, crossing=Crossing(guests))


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_without_crossing_guests_change_nothing(executor, probability):
    guests = GUESTS if probability == 0.0 else None
    game, sampler, played = play(executor, probability, guests=guests)
    other, plain, expected = play(executor, 0.0, guests=None)
    assert sampler.calls == plain.calls
    assert played.record == expected.record and played.rows == expected.rows
    assert game.ratings.state_dict() == other.ratings.state_dict()
    assert game.buffer.state_dict() == other.buffer.state_dict()


@pytest.mark.every(3)
@pytest.mark.parametrize(("teachers", "students"), [(1, 1), (2, 2), (4, 2), (1, 2)])
@pytest.mark.parametrize("probability", [0.5, 1.0])
def test_members_rows_are_as_many_as_ever(executor, teachers, students, probability):
    sizes = {"teachers": teachers, "students": students}
    _, _, played = play(executor, probability, **sizes)
    _, _, plain = play(executor, 0.0, **sizes)
    shape = Counter((row.player, row.role, row.type) for row in played.rows)
    assert shape == Counter((row.player, row.role, row.type) for row in plain.rows)
    assert not {row.player for row in played.rows} & {"guest_0", "guest_1"}
    for start in range(0, len(played.rows), G):
        group = played.rows[start : start + G]
        assert len({(row.player, row.type, row.prompt[0]["content"]) for row in group}) == 1


def test_crossed_members_meet_guests_only(executor):
    game, sampler, played = play(executor, 1.0)
    record = played.record
    proposed, solved = sampler.calls
    own = len(record.proposals)
    assert proposed[0][own:] == proposed[0][:own]  # the guest answers the same prompts
    assert set(proposed[1][own:]) == {"guest_0"} and len(record.guest_proposals) == own
    valid = [p for p in record.proposals if p.valid]
    assert len(record.guest_attempts) == G * len(valid) and set(solved[1][-G * len(valid) :]) == {"guest_1"}
    assert {a.opponent for a in record.attempts} == {"teacher_1@3", None}
    assert {a.member for a in record.guest_attempts} == {"student_0@2"}
    assert {p.task.author for p in record.guest_proposals if p.valid} == {"teacher_1@3"}
    played_tasks = {a.task.id for a in record.attempts if a.opponent}
    assert played_tasks == {p.task.id for p in record.guest_proposals if p.valid}
    assert record.matches == () and game.ratings.games.sum() == 0


def test_the_teacher_is_rewarded_by_the_guest_student(executor):
    for proposal, attempts in _attempts_at(play(executor, 1.0)[2].record):
        assert proposal.reward == pytest.approx(1 - sum(a.solved for a in attempts) / G)
        assert all(a.reward is None and a.opponent == proposal.member for a in attempts)


def test_nobody_learns_from_a_guest_and_its_tasks_stay_out_of_the_buffer(executor):
    game, _, played = play(executor, 1.0)
    record = played.record
    assert all(item.reward is None for item in (*record.guest_proposals, *record.guest_attempts))
    assert record.guest_proposals and not any(p.task in game.buffer for p in record.guest_proposals if p.valid)
    assert all(p.task in game.buffer for p in record.proposals if p.valid)


@pytest.mark.parametrize("reserved", [False, True])
def test_a_guest_may_repeat_itself_and_the_buffer_but_not_an_exam(executor, reserved):
    game = self_play(executor, types=("code_o",), settings=settings(1.0))
    script, task_type = scripted(game, guest_teacher="guest_0"), game.task_types["code_o"]
    known = game.buffer.tasks("code_o")[0]
    if reserved:
        game.buffer.reserved = frozenset({task_type.key(known.payload)})

    def sample(prompts, members, *, seed):
        text = task_type.propose_completion(known)
        drawn = script(prompts, members, seed=seed)
        return [one._replace(text=text) if who == "guest_0" else one for one, who in zip(drawn, members, strict=True)]

    record = game.play(sample, round=0, step=0, crossing=Crossing(GUESTS)).record
    told = {one.verdict for one in record.guest_proposals}
    assert len(record.guest_proposals) == 2 * G and told == {"held_out" if reserved else "valid"}


@pytest.mark.slow
def test_games_with_members_are_rated_beside_games_with_guests(executor):
    crossed, rated = 0, 0
    for round in range(4):
        game, _, played = play(executor, 0.5, teachers=4, students=4, round=round)
        ours = [a for a in played.record.attempts if a.opponent in game.ratings.teachers]
        assert sum(match.games for match in played.record.matches) == len(ours) == game.ratings.games.sum()
        crossed, rated = crossed + len(played.record.guest_attempts), rated + len(ours)
    assert crossed and rated


def test_infrastructure_errors_of_guests_do_not_count(executor):
    from trl_populora.executor import Status

    game = self_play(executor, types=("code_i",), settings=settings(1.0))
    real, calls = game.run_many, []

    def failing(jobs):
        calls.append(len(jobs))
        return [replace(e, status=Status.INFRA_ERROR, values=()) if len(calls) == 2 else e for e in real(jobs)]

    game.run_many = failing
    sampler = scripted(game, solved=1.0, guest_teacher="guest_0")
    record = game.play(sampler, round=0, step=0, crossing=Crossing(GUESTS)).record
    assert all(p.valid and p.reward is None for p in record.proposals)


def test_records_with_guests_become_rows(executor):
    record = play(executor, 0.5, teachers=4, students=4)[2].record
    assert record.guest_proposals
    rows = list(record.rows())
    assert len(rows) == sum(
        map(len, (record.proposals, record.attempts, record.guest_proposals, record.guest_attempts))
    )
    assert {row["member"] for row in rows} >= {"teacher_1@3", "student_0@2"}


@given(T=st.integers(1, 6), S=st.integers(1, 6), multiple=st.integers(1, 3), seed=st.integers(0, 99))
def test_every_prompt_is_dealt_once_and_whole(T, S, multiple, seed):
    length = math.lcm(T, S)
    teachers = [f"teacher_{t}" for t in range(T)]
    pairs = sorted((k % T, k % S) for k in range(length))
    prompts = multiple * length // T
    dealt = assign_prompts(
        [(teachers[t], f"student_{s}") for t, s in pairs],
        teachers,
        prompts=prompts,
        completions=3,
        crossing=0.5,
        rng=random.Random(seed),
    )
    assert sorted(slot for pairing in dealt for slot in pairing.slots) == list(range(T * prompts * 3))
    shares = Counter()
    for pairing in dealt:
        assert all(slot // (prompts * 3) == teachers.index(pairing.teacher) for slot in pairing.slots)
        assert set(Counter(slot // 3 for slot in pairing.slots).values()) == {3}, (
            "proposals to one prompt stay together"
        )
        shares[pairing.student] += len(pairing.slots)
    assert set(shares.values()) == {T * prompts * 3 // S}


def test_prompts_do_not_stick_to_students():
    pairs = [("t", "s0"), ("t", "s1")]
    firsts = Counter(
        assign_prompts(pairs, ["t"], prompts=2, completions=1, crossing=0.0, rng=random.Random(seed))[0].slots
        for seed in range(200)
    )
    assert set(firsts) == {(0,), (1,)} and min(firsts.values()) > 60


def test_refuses_a_probability_that_is_none():
    with pytest.raises(ValueError, match=r"guest_probability must be between 0 and 1, got 1.5"):
        RoundSettings(guest_probability=1.5)


def _attempts_at(record):
    """Valid proposals of members with the guest's attempts at each."""
    attempts = list(record.guest_attempts)
    found = []
    for proposal in (p for p in record.proposals if p.valid):
        own = [a for a in attempts if a.task is proposal.task][:G]
        attempts = [a for a in attempts if not any(a is one for one in own)]
        found.append((proposal, own))
        assert len(own) == G
    assert found and not attempts
    return found
