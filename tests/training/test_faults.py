"""What fails around the trainer does not end the run: the executor, an unwritable folder."""

import itertools
import json
import os
import threading

import psutil
import pytest

from tests.training.conftest import Altered
from trl_populora.executor import Execution, Status


PROGRAM = "```python\ndef f(x):\n    return [x, {}]\n```\n```input\n1\n```\n```output\n[1, {}]\n```"


def writing_programs(trainer):
    """Teachers write valid tasks, each a new one, so that there is something to execute."""
    numbers = itertools.count()

    def change(drawn, members):
        return [c._replace(text=PROGRAM.format(n, n)) for c, n in zip(drawn, numbers)]

    trainer.source.sampler = Altered(trainer.source.sampler, change)
    return trainer


def statuses(trainer):
    with open(os.path.join(trainer.args.output_dir, "history.jsonl")) as file:
        return [json.loads(line)["statuses"] for line in file]


@pytest.mark.slow
def test_rows_whose_execution_failed_count_for_nobody(make_trainer):
    trainer = writing_programs(make_trainer(rewards=None, max_steps=2))
    failed = Execution(Status.INFRA_ERROR, (), 0.0, 0)
    trainer.source.executor.run_many = lambda jobs: [failed for _ in jobs]
    trainer.train()
    proposals = trainer.source.played.record.proposals
    executed = [p for p in proposals if p.refusal is not None and p.refusal.reason == "infra_error"]
    assert executed and all(p.reward is None for p in executed)
    assert trainer.ratings.games.sum() == 0
    assert all(rating.mu == pytest.approx(25.0) for rating in map(trainer.ratings.__getitem__, trainer.population))


def test_fork_servers_that_die_are_replaced(make_trainer):
    """All processes of the executor are killed, in one round before its jobs, in the next one while they run."""
    trainer = writing_programs(make_trainer(rewards=None, max_steps=4))
    executor, real = trainer.source.executor, trainer.source.executor.run_many

    def kill():
        for child in psutil.Process().children(recursive=True):
            child.kill()

    def run_many(jobs):
        if trainer.state.global_step == 1:
            kill()
        if trainer.state.global_step == 2:
            threading.Timer(0.02, kill).start()
        return real(jobs)

    executor.run_many = run_many
    trainer.train()
    assert trainer.state.global_step == 4
    assert set(statuses(trainer)[0]) == set(statuses(trainer)[3]) and "ok" in statuses(trainer)[3]


@pytest.mark.slow
def test_a_folder_that_comes_back_has_lost_nothing(make_trainer, caplog):
    """The output folder is a file for two rounds, as when a disk is not mounted."""
    trainer = make_trainer(max_steps=4)
    folder = trainer.args.output_dir

    def on_round(summary):
        if summary.round == 0:
            os.rename(folder, folder + ".away")
            open(folder, "w").close()
        if summary.round == 2:
            os.remove(folder)
            os.rename(folder + ".away", folder)

    trainer.on_round = on_round
    trainer.train()
    with open(os.path.join(folder, "history.jsonl")) as file:
        assert [json.loads(line)["round"] for line in file] == [0, 1, 2, 3]
    assert len(os.listdir(os.path.join(folder, "rounds"))) == 4
    assert "cannot be written" in caplog.text
