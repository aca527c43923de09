"""Processes leave out different rows, and still have micro-batches of equal size: TRL gathers values of rows."""

import pytest

from trl_populora.training.batching import needed
from trl_populora.training.ranks import Ranks


ADVANTAGES = {
    "all teach": [1.0, -1.0, 1.0, -1.0, 2.0, -2.0],
    "none teaches": [0.0] * 6,
    "two teach": [0, 0, 0, 0, 1.0, -1.0],
}
MEMBERS, LENGTHS = [0, 0, 1, 1, 1, 1], [3, 1, 4, 2, 6, 5]


@pytest.mark.parametrize("others", ADVANTAGES)
@pytest.mark.parametrize("own", ADVANTAGES)
def test_all_processes_keep_equally_many_rows(own, others):
    def alone(name):
        return needed(ADVANTAGES[name], MEMBERS, LENGTHS, multiple=2)

    def together(name, other):
        return needed(ADVANTAGES[name], MEMBERS, LENGTHS, multiple=2, agree=lambda n: max(n, len(alone(other))))

    kept = together(own, others)
    assert len(kept) == len(together(others, own)) == max(len(alone(own)), len(alone(others)))
    assert set(kept) >= {row for row, advantage in enumerate(ADVANTAGES[own]) if advantage}
    assert {MEMBERS[row] for row in kept} == {0, 1}


def test_the_trainer_asks_all_processes(make_trainer, monkeypatch):
    """Here one other process needs all its rows, and this one, whose rewards are all equal, few."""
    asked = []
    monkeypatch.setattr(Ranks, "largest", lambda self, own: asked.append(own) or max(own, 12))
    trainer = make_trainer(max_steps=1, rewards=lambda completions, **kwargs: [0.0] * len(completions))
    trainer.train()
    assert min(asked) < 12 == sum(len(batch["member_ids"]) for batch in trainer._buffered_inputs)
