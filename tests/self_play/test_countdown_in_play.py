"""Countdown in a round: alone without an executor, and beside a Python type."""

from tests.code_tasks import code_types
from tests.self_play.test_types_in_play import no_run, play
from trl_populora.tasks.countdown import Countdown


def test_countdown_plays_alone_and_runs_nothing():
    _, records = play({"countdown": Countdown(min_numbers=3)}, no_run, rounds=2)
    for record in records:
        assert all(one.valid and one.task.author == "teacher_0" for one in record.proposals)
        assert record.attempts and all(one.solved for one in record.attempts)


def test_countdown_plays_beside_a_python_type(executor):
    types = {"countdown": Countdown(), "code_o": code_types("compact")["code_o"]}
    _, (record,) = play(types, executor.run_many, prompts=2)
    assert {one.type for one in record.proposals} == set(types) and all(one.valid for one in record.proposals)
    assert {one.task.type for one in record.attempts} == set(types)
