"""What the settings of evolution mean inside a run: intervals and ages in rounds, founders that share one A."""

import pytest
import torch

from trl_populora.evolution import OPERATORS, Operator


@pytest.mark.slow
@pytest.mark.parametrize(("min_age", "steps"), [(2, [4]), (3, [])])
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


@pytest.mark.slow
def test_a_child_learns_at_its_own_rate_and_the_others_at_theirs(make_trainer):
    """The schedule goes on: at step k of 4, `1 - k / 4` of each member's rate."""
    trainer = make_trainer(
        max_steps=4,
        evolution_interval=2,
        lr_scheduler_type="linear",
        evolution_kwargs={"mutate_learning_rate": True, "operators": ["clone"]},
    )
    clip, seen = trainer.updates.clip, []

    def note(optimizer):
        seen.append({group["member"]: group["lr"] for group in optimizer.param_groups})
        return clip(optimizer)

    trainer.updates.clip = note
    before = {name: member.learning_rate for name, member in trainer.population.items()}
    trainer.train()
    children = {event.slot: event.learning_rate for event in trainer.lineage if event.step == 2}
    assert children and all(rate != before[name] for name, rate in children.items())
    for step, rates in enumerate(seen):
        expected = before | children if step >= 2 else before
        assert rates == pytest.approx({name: rate * (1 - step / 4) for name, rate in expected.items()})


def test_an_operator_of_ones_own_is_tried_on_the_paths_of_the_model(make_trainer, monkeypatch):
    def halve_first(parents, rng):
        first = min(parents[0], key=lambda path: int(path.split(".h.")[1].partition(".")[0]))
        return {path: one._replace(B=one.B / (1 + (path == first))) for path, one in parents[0].items()}

    monkeypatch.setitem(OPERATORS, "of_a_gpt2", Operator(halve_first, 1))
    with pytest.raises(ValueError, match=r"'of_a_gpt2' fails.*IndexError.*model.layers.0.self_attn.q_proj and"):
        make_trainer(evolution_interval=1, evolution_kwargs={"operators": ["of_a_gpt2"]})
