"""A member with a temperature of its own learns what a GRPOTrainer with that temperature would teach it."""

import pytest
import torch
from peft import PeftModel

from tests.tiny import tiny_model, two_layers
from tests.training.test_member_updates import shorten, train_alone


HEAT = {"teacher_0": 0.8, "teacher_1": 1.0, "student_0": 1.25, "student_1": 0.64}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{}, pytest.param({"beta": 0.2, "num_iterations": 2, "max_steps": 2}, marks=pytest.mark.slow)],
    ids=["plain", "beta"],
)
def test_update_equals_a_trainer_of_that_temperature(make_trainer, tmp_path, settings):
    settings = {"max_steps": 1, "optim": "sgd"} | settings
    noise = 0.0 if settings.get("beta") else 0.1  # TRL's reference is the initial adapter, ours the base
    trainer = make_trainer(
        model=two_layers(), num_generations=4, per_device_train_batch_size=8, noise=noise, temperature=0.9, **settings
    )
    trainer.source.sampler = shorten(trainer.source.sampler)
    for name, temperature in HEAT.items():
        trainer.population.routing.set_temperature(name, temperature)
    trainer.population.save(tmp_path / "founders")
    trainer.train()
    for name in HEAT if not settings.get("beta") else ("teacher_0", "student_1"):
        temperature = HEAT[name]
        rows = [row for row in trainer.source.played.rows if row.player == name]
        folder = tmp_path / "founders" / name
        start = [v for k, v in PeftModel.from_pretrained(two_layers(), folder).state_dict().items() if "lora_" in k]
        own = train_alone(folder, rows, 4, settings | {"temperature": 0.9 * temperature})
        got = trainer.population.parameters(name)
        for parameter, want, first in zip(got, own, start, strict=True):
            torch.testing.assert_close(parameter - first, want - first, rtol=2e-3, atol=2e-6)
        if name == "student_1":  # at another temperature it is another update
            other = train_alone(folder, rows, 4, settings | {"temperature": 0.9})
            moved = torch.stack([(want - first).norm() for want, first in zip(own, start, strict=True)]).norm()
            apart = torch.stack([(want - one).norm() for want, one in zip(own, other, strict=True)]).norm()
            assert 0.01 * moved < apart and moved > 0


def test_members_are_sampled_at_their_own_temperature(make_trainer):
    """The sampler's draw from a member at T is the draw of a sampler of temperature T."""
    trainer = make_trainer()
    population, sampler = trainer.population, trainer.source.sampler
    prompts = [[5, 6, 7, 8]] * 8
    members, seeds = ["student_0"] * 8, list(range(8))
    plain = [c.ids for c in sampler.draw(prompts, members, seeds)]
    population.routing.set_temperature("student_0", 0.5)
    warm = [c.ids for c in sampler.draw(prompts, members, seeds)]
    population.routing.set_temperature("student_0", 1.0)
    from trl_populora.generation import TransformersSampler

    half = TransformersSampler(population, sampler.tokenizer, max_completion_length=8, temperature=0.5)
    assert warm == [c.ids for c in half.draw(prompts, members, seeds)] != plain


def test_models_whose_heads_are_more_than_a_matrix_are_refused_at_once(make_trainer):
    model = tiny_model()
    model.config.final_logit_softcapping = 30.0
    with pytest.raises(ValueError, match="Set mutate_temperature to false"):
        make_trainer(model=model, evolution_interval=1, evolution_kwargs={"mutate_temperature": True})
