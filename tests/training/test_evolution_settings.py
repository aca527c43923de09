"""What the settings of evolution mean inside a run: intervals and ages in rounds, founders that share one A."""

import pytest
import torch


@pytest.mark.slow
@pytest.mark.parametrize(("min_age", "steps"), [(2, [4]), pytest.param(3, [], marks=pytest.mark.slow)])
def test_interval_and_ages_count_rounds(make_trainer, min_age, steps):
    """Two optimizer steps a round, three rounds: after round 2 founders are 4 steps old, but 2 rounds."""
    trainer = make_trainer(
        num_iterations=2,
        max_steps=6,
        evolution_interval=2,
        evolution_kwargs={"min_age": min_age, "operators": ["clone"]},
    )
    trainer.train()
    assert sorted({event.step for event in trainer.lineage}) == steps


def test_founders_share_one_a_if_asked(make_trainer):
    for share in (False, True):
        population = make_trainer(shared_init=share).population
        factors = [population.factors(name) for name in population]
        same = [torch.equal(factors[0][path].A, other[path].A) for other in factors[1:] for path in other]
        assert all(same) if share else not any(same)
