"""The reward `solvable`: extra attempts, rewards that wait for later rounds, and what both leave as it was."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.code_tasks import code_buffer, code_seeds, code_types
from tests.self_play.script import G, scripted, self_play
from trl_populora.diagnostics import task_metrics
from trl_populora.executor import Status
from trl_populora.self_play import (
    Attempt,
    Completion,
    RewardSettings,
    RoundRecord,
    RoundSettings,
    SelfPlay,
    TokenLimits,
)
from trl_populora.self_play.requests import Request
from trl_populora.self_play.settlement import solved_elsewhere
from trl_populora.tasks.countdown import Countdown


def settings(*, rounds=0, attempts=3, teacher="solvable"):
    rewards = RewardSettings(teacher=teacher)
    return RoundSettings(
        num_generations=G, num_references=1, rewards=rewards, solvable_rounds=rounds, solvable_attempts=attempts
    )


def game_of(executor, *, able=(), valid=1.0, **options):
    """A game in which the students in `able` know all answers and the others none, and its sampler."""
    sizes = {key: options.pop(key) for key in ("teachers", "students", "types") if key in options}
    game = self_play(executor, settings=settings(**options), **sizes)
    script = scripted(game, valid=valid, solved=1.0)

    def sample(prompts, members, *, seed):
        sample.calls.append(list(members))
        drawn = script(prompts, members, seed=seed)
        return [
            one if member in game.ratings.teachers or member in able else Completion("```output\n'no'\n```", [1], [2])
            for one, member in zip(drawn, members)
        ]

    sample.calls = []
    return game, sample


def test_a_task_that_another_student_solves_is_paid(executor):
    game, sampler = game_of(executor, able=("student_1",))
    record = game.play(sampler, round=0, step=0).record
    matched = {attempt.opponent: attempt.member for attempt in record.attempts if attempt.opponent}
    assert set(matched.values()) == {"student_0", "student_1"}
    for proposal in (one for one in record.proposals if one.valid):
        assert proposal.solve_rate == (matched[proposal.member] == "student_1")
        assert proposal.reward == 1.0 - proposal.solve_rate


def test_a_copy_of_the_task_that_the_same_student_solves_pays_both_authors():
    """Two teachers write the same task. The one student fails one copy and solves the other."""
    kind = Countdown()
    (task,) = kind.seeds(1)
    games = [Request("student_0", kind, [], task=task, slot=slot) for slot in (0, 0, 1, 1)]
    attempts = [Attempt("student_0", task, "", 0, solved) for solved in (False, False, False, True)]
    assert solved_elsewhere(games, attempts, []) == {0}


def pays_for_others(solve_rate, solved_elsewhere):
    return 0.5 * solved_elsewhere


@pytest.mark.slow
@pytest.mark.parametrize("able", [("student_0",), ("student_1",), ("student_0", "student_1")])
def test_who_was_matched_is_nobody_else(executor, able):
    """A reward of one's own hears whether another member solved the task. Others try what the matched one cannot."""
    game, sampler = game_of(executor, able=able, teacher=f"{__name__}:pays_for_others")
    record = game.play(sampler, round=0, step=0).record
    matched = {attempt.opponent: attempt.member for attempt in record.attempts if attempt.opponent}
    for proposal in (one for one in record.proposals if one.valid):
        assert proposal.reward == 0.5 * (matched[proposal.member] not in able)
    alone, sampler = game_of(
        executor, able=("student_0",), teachers=1, students=1, teacher=f"{__name__}:pays_for_others"
    )
    assert {one.reward for one in alone.play(sampler, round=0, step=0).record.proposals if one.valid} == {0.0}


def test_a_task_that_nobody_solves_is_not(executor):
    game, sampler = game_of(executor)
    record = game.play(sampler, round=0, step=0).record
    assert {one.reward for one in record.proposals if one.valid} == {0.0}
    assert len(record.extra_attempts) == 3 * len({one.task.id for one in record.proposals if one.valid})


@pytest.mark.slow
def test_extra_attempts_go_to_the_others_and_leave_the_round_alone(executor):
    game, sampler = game_of(executor, students=4, teachers=4, attempts=6)
    played = game.play(sampler, round=0, step=0)
    plain_game, plain_sampler = game_of(executor, students=4, teachers=4, teacher="adversarial")
    plain = plain_game.play(plain_sampler, round=0, step=0)
    tried = {one.task.id: one.member for one in played.record.attempts if one.opponent}
    share = Counter()
    for extra in played.record.extra_attempts:
        assert extra.member != tried[extra.task.id] and (extra.reward, extra.opponent) == (None, None)
        share[extra.task.id, extra.member] += 1
    assert share and set(share.values()) == {2}, "six attempts, three others"
    assert played.record.attempts == plain.record.attempts and played.record.matches == plain.record.matches
    assert [row[:5] for row in played.rows] == [row[:5] for row in plain.rows]
    assert game.ratings.state_dict() == plain_game.ratings.state_dict()
    assert len(sampler.calls) == 3 and len(plain_sampler.calls) == 2 and plain.record.extra_attempts == ()


def test_a_student_that_is_alone_tries_again(executor):
    game, sampler = game_of(executor, teachers=1, students=1)
    record = game.play(sampler, round=0, step=0).record
    assert {one.member for one in record.extra_attempts} == {"student_0"}


def test_what_a_student_that_is_alone_solves_in_a_second_try_is_paid(executor):
    game, sampler = game_of(executor, teachers=1, students=1)

    def better(prompts, members, *, seed):
        if len(sampler.calls) == 2:  # of the extra attempts
            return [Completion(text, [1], [2]) for text in answers(prompts)]
        return sampler(prompts, members, seed=seed)

    knowing = scripted(game, solved=1.0)

    def answers(prompts):
        return [one.text for one in knowing(prompts, ["student_0"] * len(prompts), seed=0)]

    record = game.play(better, round=0, step=0).record
    assert all(one.solved for one in record.extra_attempts) and record.extra_attempts
    assert {(one.solve_rate, one.reward) for one in record.proposals if one.valid} == {(0.0, 1.0)}


def test_without_unsolved_tasks_there_are_no_extra_attempts(executor):
    game, sampler = game_of(executor, able=("student_0", "student_1"))
    assert game.play(sampler, round=0, step=0).record.extra_attempts == ()
    assert len(sampler.calls) == 2


def test_an_executor_that_fails_makes_nothing_solved_or_unsolved(executor):
    game, sampler = game_of(executor, able=("student_0", "student_1"), types=("code_i",))
    real, calls = game.run_many, []

    def failing(jobs):
        calls.append(jobs)
        return [replace(e, status=Status.INFRA_ERROR, values=()) if len(calls) > 1 else e for e in real(jobs)]

    game.run_many = failing
    record = game.play(sampler, round=0, step=0).record
    assert all(one.reward is None and one.solve_rate is None for one in record.proposals if one.valid)
    assert all(game.buffer.tries(one.task) == (0, 0) for one in record.proposals if one.valid)


def test_every_attempt_of_the_population_counts_as_a_try(executor):
    game, sampler = game_of(executor)
    record = game.play(sampler, round=0, step=0).record
    counted = Counter(one.task.id for one in (*record.attempts, *record.extra_attempts))
    for proposal in (one for one in record.proposals if one.valid):
        assert game.buffer.tries(proposal.task) == (counted[proposal.task.id], 0)


def play_on(game, sampler, rounds, versions=None):
    return [game.play(sampler, round=k, step=k, versions=versions and versions[k]) for k in range(rounds)]


def test_teachers_learn_from_a_round_when_it_is_settled(executor):
    able = set()
    game, sampler = game_of(executor, able=able, rounds=2)
    first = game.play(sampler, round=0, step=0)
    again = game.play(sampler, round=1, step=1)
    for early in (first, again):
        assert {row.reward for row in early.rows if row.role == "teacher"} == {None}
    able.update(game.ratings.students)  # from now on everybody knows everything
    third = game.play(sampler, round=2, step=2)
    taught = [row for row in third.rows if row.role == "teacher"]
    assert [row.completion for row in taught] == [row.completion for row in first.rows if row.role == "teacher"]
    assert [row.prompt for row in taught] == [row.prompt for row in first.rows if row.role == "teacher"]
    for row, then, now in zip(taught, first.record.proposals, third.record.late_proposals, strict=True):
        assert replace(now, reward=0) == replace(then, reward=0, learned=True)
        assert not then.learned, "it waits"
        assert row.reward == now.reward == (1.0 if then.valid else -1.0)
        assert not then.valid or then.reward == 0.0, "what was known in its own round"
    shape = [(row.player, row.role) for row in first.rows]
    assert [(row.player, row.role) for row in third.rows] == shape


def test_waiting_tasks_get_extra_attempts_each_round_and_fill_slots_first(executor):
    game, sampler = game_of(executor, rounds=1, valid=0.6)
    before = game.play(sampler, round=0, step=0).record
    waiting = {one.task.id for one in before.proposals if one.valid}
    record = game.play(sampler, round=1, step=1).record
    assert waiting <= {one.task.id for one in record.extra_attempts}
    fills = {one.task.id for one in record.attempts if one.opponent is None}
    needed = Counter(one.type for one in record.proposals if not one.valid)
    stock = Counter(one.type for one in before.proposals if one.valid)
    assert fills and len(fills & waiting) == sum(min(needed[name], stock[name]) for name in needed)
    assert game.late.unsolved and not {task.id for task in game.late.unsolved} & waiting


def test_rows_of_a_teacher_that_was_replaced_carry_no_reward(executor):
    game, sampler = game_of(executor, able=("student_0", "student_1"), rounds=1)
    old, new = {"teacher_0": 0, "teacher_1": 0}, {"teacher_0": 0, "teacher_1": 1}
    _, second = play_on(game, sampler, 2, versions=[old, new])
    rewards = {row.player: set() for row in second.rows if row.role == "teacher"}
    for row in second.rows:
        if row.role == "teacher":
            rewards[row.player].add(row.reward)
    assert rewards["teacher_1"] == {None} and None not in rewards["teacher_0"]
    learned = {name: {one.learned for one in second.record.late_proposals if one.member == name} for name in old}
    assert learned == {"teacher_0": {True}, "teacher_1": {False}}


def test_waiting_rewards_go_into_a_checkpoint(executor):
    game, sampler = game_of(executor, able=("student_1",), rounds=2, valid=0.7)
    play_on(game, sampler, 2)
    state = json.loads(json.dumps(game.late.state_dict()))
    other, _ = game_of(executor, rounds=2)
    other.late.load_state_dict(state, code_types())
    assert other.late.state_dict() == state and other.late.unsolved == game.late.unsolved
    for side in (game, other):
        side.late.note({task.id for task in side.late.unsolved[:1]})
    rows, proposals = ([], ())
    assert [game.late.exchange(9, rows, proposals, {})] == [other.late.exchange(9, rows, proposals, {})]


@pytest.mark.slow
@pytest.mark.parametrize("lower", [0, 1])
def test_rows_that_would_wait_no_longer_are_dropped(executor, lower):
    game, sampler = game_of(executor, rounds=3)
    play_on(game, sampler, 3)
    other, own = game_of(executor, rounds=lower)
    other.late.load_state_dict(game.late.state_dict(), code_types())
    assert [one["round"] for one in other.late.state_dict()] == [2][:lower]
    assert bool(other.late.unsolved) == bool(lower)
    record = other.play(own, round=3, step=3).record
    known = {one.task.id for one in (*record.proposals, *record.late_proposals) if one.task is not None}
    assert {one.task.id for one in record.extra_attempts} <= known
    assert bool(record.late_proposals) == bool(lower)


def test_tasks_that_were_given_up_are_left_alone_while_they_wait(executor):
    """In their own round they get 4 + 3 attempts: a limit of 8 is reached in the next."""
    game, sampler = game_of(executor, rounds=4, valid=0.6)
    game.buffer.max_unsolved_tries = 8
    first = {one.task.id for one in game.play(sampler, round=0, step=0).record.proposals if one.valid}
    second = game.play(sampler, round=1, step=1).record
    assert first <= {one.task.id for one in second.extra_attempts}
    assert game.buffer.given_up >= len(first) and first <= {task.id for task in game.late.unsolved}
    third = game.play(sampler, round=2, step=2).record
    played = {one.task.id for one in (*third.attempts, *third.extra_attempts)}
    assert first and not first & played
    young = {one.task.id for one in second.proposals if one.valid}
    assert young & {one.task.id for one in third.extra_attempts}, "those of round 1 are still tried"


def test_waiting_tasks_of_an_exam_that_was_added_are_left_alone(executor):
    """As after a resume with another exam: the buffer has dropped them, but they wait."""
    game, sampler = game_of(executor, rounds=2)
    before = game.play(sampler, round=0, step=0).record
    waiting = {one.task.id: one.task for one in before.proposals if one.valid}
    assert waiting
    keys = {key for task in waiting.values() for key in game.buffer.types[task.type].question_keys(task.payload)}
    game.buffer.reserved |= keys
    game.buffer.load_state_dict(game.buffer.state_dict())
    game.late.leave_out(game.buffer.reserves)
    later = [game.play(sampler, round=step, step=step) for step in (1, 2)]
    for played in later:
        attempts = (*played.record.extra_attempts, *played.record.attempts)
        assert not waiting.keys() & {one.task.id for one in attempts}
    settled = [one for one in later[-1].record.late_proposals if one.task is not None]
    assert {one.task.id for one in settled} == waiting.keys()
    assert all(one.reward is None and not one.learned for one in settled)
    due = [row for row in later[-1].rows if row.role == "teacher"]
    assert {row.reward for row, one in zip(due, later[-1].record.late_proposals, strict=True) if one.task} == {None}


def test_a_population_of_another_size_gets_its_own_rows_without_rewards(executor):
    small, sampler = game_of(executor, rounds=1)
    large, more = game_of(executor, teachers=4, students=4, rounds=1)
    small.play(sampler, round=0, step=0)
    large.late.load_state_dict(small.late.state_dict(), code_types())
    played = large.play(more, round=1, step=1)
    taught = [row for row in played.rows if row.role == "teacher"]
    assert len(taught) == 4 * G and {row.reward for row in taught} == {None} and played.record.late_proposals == ()


def test_records_and_rows_tell_the_kinds_apart(executor):
    game, sampler = game_of(executor, rounds=1)
    record = play_on(game, sampler, 2)[1].record
    kinds = Counter(row["kind"] for row in record.rows())
    assert kinds["learned"] == len(record.proposals) + len(record.attempts)
    assert (kinds["extra"], kinds["late"]) == (len(record.extra_attempts), len(record.late_proposals))
    assert kinds["extra"] and kinds["late"]


def test_metrics_of_tasks(executor):
    game, sampler = game_of(executor, able=("student_1",), teacher="adversarial")
    record = game.play(sampler, round=0, step=0).record
    metrics = task_metrics(record, game.buffer, game.task_types)
    valid = [one for one in record.proposals if one.valid]
    unsolved = [one for one in valid if one.solve_rate == 0]
    assert metrics["unsolved"] == len(unsolved) / len(valid) and 0 < metrics["unsolved"] < 1
    assert metrics["unsolved_reward"] == 1.0, "the others are always solved and pay nothing"
    assert metrics["never_solved"] == len({one.task.id for one in unsolved}) / len({one.task.id for one in valid})
    assert (metrics["duplicates"], metrics["extra_rows"], metrics["given_up"]) == (0.0, 0.0, 0.0)
    late_game, late_sampler = game_of(executor, able=("student_1",), rounds=1)
    first, second = (one.record for one in play_on(late_game, late_sampler, 2))
    before, after = (task_metrics(one, late_game.buffer, late_game.task_types) for one in (first, second))
    assert "unsolved_reward" not in before, "no teacher learned yet"
    assert after["unsolved_reward"] == 1.0
    assert task_metrics(RoundRecord(0, 0), code_buffer(), late_game.task_types) == {"given_up": 0.0, "extra_rows": 0.0}


def test_a_teacher_that_repeats_itself_is_refused(executor):
    game, sampler = game_of(executor, able=("student_0",), types=("code_o",))
    text = "```python\ndef f(x):\n    return x + {n}\n```\n```input\n1\n```"

    def repeat(prompts, members, *, seed):
        drawn = sampler(prompts, members, seed=seed)
        return [Completion(text.format(n=77)) if m in game.ratings.teachers else one for one, m in zip(drawn, members)]

    record = game.play(repeat, round=0, step=0).record
    reasons = [
        [one.refusal and one.refusal.reason for one in record.proposals if one.member == name]
        for name in game.ratings.teachers
    ]
    assert reasons == [[None, *["duplicate"] * (G - 1)]] * 2, "two teachers may have the same idea in one round"
    again = game.play(repeat, round=1, step=1).record
    assert {one.refusal.reason for one in again.proposals} == {"duplicate"}
    assert task_metrics(again, game.buffer, game.task_types)["duplicates"] == 1.0


def test_the_copy_of_a_proposal_that_the_executor_failed_on_is_spared_like_it(executor):
    game, sampler = game_of(executor, able=("student_0",), types=("code_o",))
    text = "```python\ndef f(x):\n    return x + 78\n```\n```input\n1\n```"
    real = game.run_many

    def failing(jobs):
        fails = [job.program.endswith("x + 78") for job in jobs]
        return [replace(e, status=Status.INFRA_ERROR, values=()) if f else e for e, f in zip(real(jobs), fails)]

    def repeat(prompts, members, *, seed):
        drawn = sampler(prompts, members, seed=seed)
        return [Completion(text) if m == "teacher_0" else one for one, m in zip(drawn, members)]

    game.run_many = failing
    record = game.play(repeat, round=0, step=0).record
    own = [one for one in record.proposals if one.member == "teacher_0"]
    assert [(one.refusal.reason, one.reward) for one in own] == [("infra_error", None)] * G
    game.run_many = real
    again = [one for one in game.play(repeat, round=1, step=1).record.proposals if one.member == "teacher_0"]
    assert [one.refusal and one.refusal.reason for one in again] == [None, *["duplicate"] * (G - 1)]


def length(text) -> int:
    return len(text if isinstance(text, str) else text[0]["content"])


def test_references_are_dropped_until_a_proposers_prompt_fits(executor):
    buffer = code_buffer(99, code_seeds(40, type="code_o"))
    game = self_play(executor, types=("code_o",), buffer=buffer)
    task_type = replace(game.task_types["code_o"], num_references=6)
    bare = length(task_type.propose_prompt([], random.Random(0)))
    shown = set()
    for room in (0, 400, 10**6):
        limits = TokenLimits(length, prompt=bare + room, answer=10**6)
        for seed in range(5):
            rng = random.Random(seed)
            references = buffer.references("code_o", 6, rng)
            prompt, kept = limits.fit(task_type, references, buffer, rng)
            assert length(prompt) <= bare + room and list(kept) == references[: len(kept)]
            shown.add((room, len(kept)))
    assert {(0, 0), (10**6, 6)} <= shown and any(room == 400 and 0 < n < 6 for room, n in shown)


def test_induction_takes_a_shorter_program_where_the_drawn_one_does_not_fit(executor):
    game = self_play(executor, types=("code_f",))
    task_type, buffer = game.task_types["code_f"], game.buffer
    (shortest,) = buffer.shortest("code_f", 1)
    room = length(task_type.propose_prompt([shortest], None))
    longest = max(buffer.tasks("code_o"), key=lambda task: len(task.payload.program))
    prompt, references = TokenLimits(length, prompt=room, answer=9).fit(task_type, [longest], buffer, None)
    assert references == [shortest] and length(prompt) == room
    with pytest.raises(ValueError, match=f"max_prompt_tokens={room - 1} is too small.*{room} tokens"):
        TokenLimits(length, prompt=room - 1, answer=9).check(game.task_types, buffer)
    with pytest.raises(ValueError, match=f"max_prompt_tokens={room - 1} is too small"):
        SelfPlay(
            task_types=game.task_types, run_many=game.run_many, buffer=buffer, ratings=game.ratings,
            settings=game.settings, lengths=TokenLimits(length, prompt=room - 1, answer=9),
        )  # fmt: skip
    with pytest.raises(ValueError, match="answer limit must be at least 1 token, got 0"):
        TokenLimits(length, prompt=1, answer=0)


def test_a_round_within_limits_asks_nothing_longer(executor):
    game = self_play(executor)
    game.lengths = TokenLimits(length, prompt=260, answer=18)
    sampler = scripted(game)
    record = game.play(sampler, round=0, step=0).record
    assert all(length(prompt) <= 260 for prompt in sampler.calls[0][0])
    reasons = {one.refusal.reason for one in record.proposals if one.refusal}
    assert reasons <= {"prompt_too_long", "answer_too_long"} and reasons


@pytest.mark.parametrize("field", ["solvable_attempts", "solvable_rounds"])
def test_settings_that_make_no_sense_are_refused(field):
    with pytest.raises(ValueError, match=field):
        RoundSettings(**{field: -1}, rewards=RewardSettings(teacher="solvable"))
    with pytest.raises(ValueError, match="solvable_rounds=1 with teacher_reward=.*does not depend on who else"):
        RoundSettings(solvable_rounds=1)
