"""Who draws, fills in and learns by which random numbers, and what the outcomes of a round tell the ratings."""

from tests.self_play.script import G, scripted, self_play
from tests.self_play.test_solvable import game_of, settings
from trl_populora.self_play import Attempt, Completion, Proposal, RewardSettings, RoundSettings
from trl_populora.self_play.evidence import Outcome
from trl_populora.self_play.pairing import Pairing
from trl_populora.self_play.settlement import choose, outcomes
from trl_populora.tasks import INFRASTRUCTURE, Refusal
from trl_populora.tasks.countdown import Countdown


def test_every_phase_of_every_round_has_random_numbers_of_its_own(executor):
    """Students that draw with the noise of the teachers, or of the round before, are not independent of them."""
    game = self_play(executor, settings=settings())
    sampler = scripted(game, solved=0.0)
    for round in range(2):
        game.play(sampler, round=round, step=round)
    seeds = [seed for _, _, seed in sampler.calls]
    assert len(seeds) == 6 and len(set(seeds)) == 6  # propose, solve and extra attempts, twice


def test_extra_attempts_at_a_task_are_one_group(executor):
    game, sampler = game_of(executor, students=4, teachers=4, attempts=6)
    record = game.play(sampler, round=0, step=0).record
    groups = {}
    for extra in record.extra_attempts:
        groups.setdefault(extra.group, []).append(extra.task.id)
    assert len(groups) > 1 and all(len(tasks) == 6 and len(set(tasks)) == 1 for tasks in groups.values())


def test_students_draw_the_tasks_that_they_learn_from_separately():
    """By their own numbers, anew in every round."""
    (task,) = Countdown().seeds(1)
    attempts = [Attempt(f"student_{i // 4}", task, "", group=i) for i in range(8)]
    rules = RoundSettings(balance_rows=True, prompts_per_teacher=2)

    def places(round):
        chosen = [one.group for one in choose(attempts, ["student_0", "student_1"], rules, round=round) if one.learned]
        own = tuple(group for group in chosen if group < 4), tuple(group - 4 for group in chosen if group >= 4)
        assert [len(one) for one in own] == [2, 2]
        return own

    drawn = [places(round) for round in range(10)]
    assert any(first != second for first, second in drawn) and len(set(drawn)) > 1


def test_outcomes_tell_the_prompt_and_leave_out_what_the_executor_failed_on():
    (task,) = Countdown().seeds(1)
    refusals = [Refusal("no_task", ""), INFRASTRUCTURE]
    proposals = [
        Proposal(
            "teacher_0",
            "countdown",
            "",
            group=i // 2,
            task=None if i % 2 else task,
            refusal=refusals[i // 2] if i % 2 else None,
        )
        for i in range(4)
    ]
    pairing = Pairing("teacher_0", "student_1", (0, 1, 2, 3), False)
    told = list(outcomes(proposals, [pairing], {0: [True, False], 2: [False]}, stake=8))
    about = dict(teacher="teacher_0", student="student_1", type="countdown")
    assert told == [
        Outcome(games=2, student_wins=1, prompt=0, **about),
        Outcome(games=8, student_wins=0, prompt=0, forfeit=True, **about),
        Outcome(games=1, student_wins=0, prompt=1, **about),
    ]


def test_students_are_filled_in_with_tasks_of_their_own(executor):
    """Each draws separately, and none gets a task twice."""
    rules = RoundSettings(num_generations=G, num_references=1, prompts_per_teacher=4)
    game = self_play(executor, settings=rules)
    record = game.play(scripted(game, valid=0.0), round=0, step=0).record
    tasks = {name: [] for name in game.ratings.students}
    for attempt in record.attempts[::G]:
        tasks[attempt.member].append(attempt.task.id)
    assert all(len(own) == len(set(own)) == 4 * G for own in tasks.values())
    assert set(tasks["student_0"]) != set(tasks["student_1"])


def test_a_waiting_task_fills_one_place(executor):
    """What nobody has solved is tried by the next student without a valid task, not by all."""
    game, sampler = game_of(executor, rounds=2, attempts=0)
    game.play(sampler, round=0, step=0)
    waiting = {task.id for task in game.late.unsolved}
    script = scripted(game, valid=0.0)
    record = game.play(script, round=2, step=2).record  # the same types as in round 0
    filled = [attempt.task.id for attempt in record.attempts[::G]]
    tried = [one for one in filled if one in waiting]
    assert waiting and sorted(tried) == sorted(waiting)


def test_an_answer_that_cannot_be_read_costs_more_than_a_wrong_one(executor):
    rules = RoundSettings(num_generations=G, num_references=1, rewards=RewardSettings(malformed=-0.75, wrong=-0.25))
    game = self_play(executor, settings=rules)
    script = scripted(game, solved=0.5)

    def sampler(prompts, members, *, seed):
        drawn = script(prompts, members, seed=seed)
        return [
            Completion("I do not know.", [1], [2]) if member == "student_0" else one
            for one, member in zip(drawn, members)
        ]

    attempts = game.play(sampler, round=0, step=0).record.attempts
    assert {one.reward for one in attempts if one.member == "student_0"} == {-0.75}
    assert {(one.solved, one.reward) for one in attempts if one.member == "student_1"} == {(True, 1.0), (False, -0.25)}
