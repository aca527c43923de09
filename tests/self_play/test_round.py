"""One round with a scripted sampler and the real executor."""

import math
import random
from collections import Counter

import pytest

from tests.code_tasks import code_buffer, code_seeds
from tests.self_play.script import TYPES, G, scripted, self_play
from trl_populora.evolution import Candidate, EvolutionSettings, select
from trl_populora.self_play import Completion, RoundSettings
from trl_populora.self_play.requests import proposal_requests


def test_one_round(executor):
    game = self_play(executor)
    sampler = scripted(game)
    played = game.play(sampler, round=0, step=0)
    record, rows = played.record, played.rows
    assert len(record.proposals) == 2 * G and len(record.attempts) == 2 * G * G
    assert all(p.valid and p.task.author == p.member for p in record.proposals)
    assert len(rows) == 2 * G * (1 + G) == len(record.proposals) + len(record.attempts)
    assert [row.role for row in rows] == ["teacher"] * 2 * G + ["student"] * 2 * G * G
    assert [len(call[0]) for call in sampler.calls] == [2 * G, 2 * G * G]
    assert set(played.seconds) == {"propose", "verify", "match", "solve", "judge"}


def test_groups_are_contiguous_and_share_member_and_prompt(executor):
    game = self_play(executor)
    rows = game.play(scripted(game, valid=0.5), round=0, step=0).rows
    for start in range(0, len(rows), G):
        group = rows[start : start + G]
        assert len({(row.player, row.type, row.prompt[0]["content"]) for row in group}) == 1


def test_rewards_are_those_of_the_paper(executor):
    game = self_play(executor)
    record = game.play(scripted(game, valid=0.7, solved=0.4), round=0, step=0).record
    rates = {}
    for attempt in record.attempts:
        assert attempt.reward == (1.0 if attempt.solved else -0.5 if attempt.valid else -1.0)
        if attempt.opponent:
            rates.setdefault((attempt.opponent, attempt.task.id), []).append(attempt.solved)
    for proposal in record.proposals:
        if proposal.valid:
            solved = rates[(proposal.member, proposal.task.id)]
            assert proposal.reward == pytest.approx(1 - sum(solved) / len(solved))
        else:
            assert proposal.reward == -1.0 and proposal.refusal.reason == "no_program"


@pytest.mark.every(3)
@pytest.mark.parametrize(("teachers", "students"), [(1, 1), (4, 2), (1, 2), (2, 4), (4, 4)])
@pytest.mark.parametrize("valid", [0.0, 0.5, 1.0])
def test_every_student_always_has_the_same_number_of_rows(executor, teachers, students, valid):
    prompts = max(students // teachers, 1)
    settings = RoundSettings(num_generations=G, num_references=1, prompts_per_teacher=prompts)
    game = self_play(executor, teachers=teachers, students=students, settings=settings)
    record = game.play(scripted(game, valid=valid, solved=0.3), round=0, step=0).record
    share = Counter(attempt.member for attempt in record.attempts)
    assert set(share.values()) == {teachers * prompts * G * G // students} and len(share) == students
    assert set(Counter(p.member for p in record.proposals).values()) == {prompts * G}


def test_filled_in_tasks_are_no_games_and_reward_no_teacher(executor):
    game = self_play(executor)
    record = game.play(scripted(game, valid=0.0, solved=1.0), round=0, step=0).record
    assert all(attempt.opponent is None and attempt.solved for attempt in record.attempts)
    assert all(proposal.reward == -1.0 for proposal in record.proposals)
    assert game.ratings.games.sum() == 0 and game.ratings.forfeits.sum() == 2 * G * G
    assert [(m.games, m.student_wins, m.forfeits) for m in record.matches] == [(0, 0, G * G)] * 2
    assert all(
        game.ratings[s].mu == 25 > game.ratings[t].mu for s in game.ratings.students for t in game.ratings.teachers
    )
    ids = [a.task.id for a in record.attempts if a.member == "student_0"]
    assert len(set(ids)) == len(ids) // G, "a student gets different filled-in tasks"


def test_every_valid_proposal_is_played_by_exactly_one_student(executor):
    settings = RoundSettings(num_generations=G, num_references=1, prompts_per_teacher=2)
    game = self_play(executor, teachers=2, students=4, settings=settings)
    record = game.play(scripted(game), round=3, step=3).record
    for proposal in record.proposals:
        players = {
            a.member for a in record.attempts if a.task.id == proposal.task.id and a.opponent == proposal.member
        }
        assert len(players) >= 1
    assert sum(m.games for m in record.matches) == len(record.attempts)


def test_ratings_follow_the_games(executor):
    strong, weak = self_play(executor), self_play(executor)
    strong.play(scripted(strong, solved=1.0), round=0, step=0)
    weak.play(scripted(weak, solved=0.0), round=0, step=0)
    assert all(
        strong.ratings[s].mu > 25 > strong.ratings[t].mu
        for s, t in zip(strong.ratings.students, strong.ratings.teachers)
    )
    assert all(
        weak.ratings[s].mu < 25 < weak.ratings[t].mu for s, t in zip(weak.ratings.students, weak.ratings.teachers)
    )


def test_valid_tasks_enter_the_buffer(executor):
    game = self_play(executor)
    before = len(game.buffer)
    record = game.play(scripted(game), round=0, step=5).record
    new = {p.task.id for p in record.proposals}
    assert len(game.buffer) > before
    assert all(p.task in game.buffer for p in record.proposals) and all(p.task.step == 5 for p in record.proposals)
    assert len(new) >= 1


@pytest.mark.slow
def test_all_three_types_take_turns(executor):
    game = self_play(executor, types=TYPES)
    sampler = scripted(game)
    seen = {teacher: Counter() for teacher in game.ratings.teachers}
    for round in range(3):
        for proposal in game.play(sampler, round=round, step=round).record.proposals:
            seen[proposal.member][proposal.type] += 1
    assert all(counts == Counter(dict.fromkeys(TYPES, G)) for counts in seen.values())


def test_code_f_is_proposed_and_solved(executor):
    game = self_play(executor, types=("code_f",))
    record = game.play(scripted(game, solved=1.0), round=0, step=0).record
    valid = [p for p in record.proposals if p.valid]
    assert valid and all(len(p.task.payload.inputs) == 4 for p in valid)
    assert all(attempt.solved for attempt in record.attempts)


def test_same_seed_and_round_ask_the_same(executor):
    calls = []
    for _ in range(2):
        game = self_play(executor)
        sampler = scripted(game, valid=0.6)
        game.play(sampler, round=2, step=2)
        calls.append(sampler.calls)
    assert calls[0] == calls[1]


def test_infrastructure_errors_neither_reward_nor_punish(executor):
    from dataclasses import replace

    from trl_populora.executor import Status

    game = self_play(executor, types=("code_i",))
    real = game.run_many

    def failing(jobs):
        return [
            replace(e, status=Status.INFRA_ERROR, values=()) if i % 3 == 0 else e for i, e in enumerate(real(jobs))
        ]

    game.run_many = failing
    record = game.play(scripted(game, solved=1.0), round=0, step=0).record
    hit = [
        item for item in (*record.proposals, *record.attempts) if item.refusal and item.refusal.reason == "infra_error"
    ]
    assert hit and all(item.reward is None for item in hit)
    assert sum(m.games for m in record.matches) < len(record.attempts)
    assert all(m.games == m.student_wins for m in record.matches)


def test_refuses_an_empty_buffer(executor):
    with pytest.raises(ValueError, match="holds no code_i task"):
        self_play(executor, buffer=code_buffer(10, code_seeds(4, type="code_o")))


def test_refuses_a_sampler_that_loses_rows(executor):
    game = self_play(executor)
    with pytest.raises(ValueError, match="returned 1 completions for 8"):
        game.play(lambda prompts, members, *, seed: [Completion("")], round=0, step=0)


def requests_of(game, round):
    """One request of each prompt of a round."""
    shape = {"round": round, "settings": game.settings, "lengths": game.lengths}
    return list(proposal_requests(game.ratings.teachers, game.task_types, game.buffer, **shape))[::G]


def test_induction_is_shown_a_program_even_where_no_references_are_wanted(executor):
    settings = RoundSettings(num_generations=G, num_references=0)
    game = self_play(executor, types=TYPES, settings=settings)
    shown = [(request.type.id, len(request.references)) for round in range(3) for request in requests_of(game, round)]
    assert set(shown) == {("code_o", 0), ("code_i", 0), ("code_f", 1)}


@pytest.mark.parametrize("prompts", [1, 2, 5])
def test_in_every_round_all_teachers_face_the_same_types(executor, prompts):
    settings = RoundSettings(num_generations=G, num_references=1, prompts_per_teacher=prompts)
    game = self_play(executor, teachers=3, students=3, types=TYPES, settings=settings)
    total = Counter()
    for round in range(3):
        asked = {}
        for request in requests_of(game, round):
            asked.setdefault(request.player, []).append(request.type.id)
        assert len(asked) == 3 and len({tuple(types) for types in asked.values()}) == 1
        total.update(asked["teacher_0"])
    assert set(total.values()) == {prompts}, "over time every type has an equal share"


@pytest.mark.slow
@pytest.mark.parametrize(("teachers", "students"), [(1, 2), (2, 4), (4, 2), (2, 3), (3, 2)])
def test_proposals_to_one_prompt_go_to_one_student(executor, teachers, students):
    prompts = math.lcm(teachers, students) // teachers
    settings = RoundSettings(num_generations=G, num_references=1, prompts_per_teacher=prompts)
    game = self_play(executor, teachers=teachers, students=students, settings=settings)
    record = game.play(scripted(game), round=1, step=1).record
    groups = {}
    for proposal in record.proposals:
        groups.setdefault(proposal.group, []).append(proposal.task)
    solvers = {}
    for attempt in record.attempts:
        solvers.setdefault(id(attempt.task), set()).add(attempt.member)
    for tasks in groups.values():
        assert len(set.union(*(solvers[id(task)] for task in tasks))) == 1


def test_refuses_prompts_that_cannot_be_divided(executor):
    with pytest.raises(ValueError, match="prompts_per_teacher=1 .*to a multiple of 3"):
        self_play(executor, teachers=2, students=3)


@pytest.mark.slow
def test_a_teacher_without_valid_proposals_falls_is_replaced_and_does_not_breed(executor):
    game = self_play(executor, teachers=4, students=4)
    writes, answers = scripted(game, solved=0.9), scripted(game, solved=0.9)

    def sample(prompts, members, *, seed):
        sampler = writes if set(members) <= set(game.ratings.teachers) else answers
        return [
            Completion("no blocks here", [1], [2, 3]) if member == "teacher_0" else completion
            for member, completion in zip(members, sampler(prompts, members, seed=seed), strict=True)
        ]

    for round in range(8):
        game.play(sample, round=round, step=round)
    fitness = {name: game.ratings.fitness(name) for name in game.ratings.teachers}
    assert min(fitness, key=fitness.get) == "teacher_0" and game.ratings["teacher_0"].mu < 20
    assert game.ratings.games[0].sum() == 0 and game.ratings.forfeits[0].sum() == 8 * G * G
    assert game.ratings.forfeits[1:].sum() == 0
    for seed in range(20):
        for elites in (1, 3):
            candidates = [Candidate(*one) for one in fitness.items()]
            settings = EvolutionSettings(elites=elites)
            (replacement,) = select(candidates, settings, rng=random.Random(seed), num_parents=2)
            assert replacement.slot == "teacher_0" and "teacher_0" not in replacement.parents
