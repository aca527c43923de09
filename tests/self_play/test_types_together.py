"""Rounds of types of other kinds than Python puzzles, alone and beside them."""

from collections import Counter

import pytest

from tests.self_play.script import G, scripted
from trl_populora.self_play import Ratings, RoundSettings, SelfPlay
from trl_populora.tasks import TaskBuffer, make_task_types


def self_play(executor, types):
    kinds = make_task_types(types, style="compact")
    buffer = TaskBuffer(kinds, 1000, [task for kind in kinds.values() for task in kind.seeds(16)])
    return SelfPlay(
        task_types=kinds,
        run_many=executor.run_many,
        buffer=buffer,
        ratings=Ratings(["teacher_0", "teacher_1"], ["student_0", "student_1"]),
        settings=RoundSettings(num_generations=G, num_references=1),
    )


@pytest.mark.slow
@pytest.mark.parametrize("types", [["math"], ["sql", "code_i"], ["code_o", "math", "countdown"]])
def test_all_that_is_valid_is_played_and_judged(executor, types):
    game, seen = self_play(executor, types), Counter()
    sampler = scripted(game, solved=0.5)
    for round in range(len(types)):
        record = game.play(sampler, round=round, step=round).record
        valid = [proposal for proposal in record.proposals if proposal.valid]
        seen.update(proposal.type for proposal in valid)
        assert {proposal.refusal.reason for proposal in record.proposals if not proposal.valid} <= {"duplicate"}
        assert {attempt.solved for attempt in record.attempts} == {True, False}
    assert set(seen) == set(types) and min(seen.values()) >= G
