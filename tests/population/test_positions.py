"""A base with an embedding for each position sees the same positions in every batch, as `generate` counts them."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, GPTBigCodeConfig, GPTBigCodeForCausalLM

from tests.tiny import lora, perturb, two_layers
from trl_populora.population import Population


SHAPE = dict(vocab_size=259, n_embd=32, n_layer=2, n_head=4, eos_token_id=2, pad_token_id=0, bos_token_id=None)
BASES = [
    lambda: GPT2LMHeadModel(GPT2Config(**SHAPE, initializer_range=0.2)),
    lambda: GPTBigCodeForCausalLM(GPTBigCodeConfig(**SHAPE, initializer_range=0.2)),
]
IDS = torch.randint(3, 250, (2, 9), generator=torch.Generator().manual_seed(0))


def population_on(make):
    torch.manual_seed(0)
    population = Population(make().eval(), lora(target_modules=["c_attn"]), num_teachers=1, num_students=1)
    perturb(population, 0.3)
    return population


@pytest.mark.parametrize("make", BASES, ids=["GPT-2", "StarCoder"])
def test_padding_on_the_left_changes_no_answer(make):
    population = population_on(make)
    model, pad = population.base_model, torch.zeros(2, 5, dtype=torch.long)
    padded, mask = torch.cat([pad, IDS], dim=1), torch.cat([pad, torch.ones_like(IDS)], dim=1)
    with population.route(["teacher_0", "student_0"]), torch.no_grad():
        want = model(input_ids=IDS).logits
        torch.testing.assert_close(model(input_ids=padded, attention_mask=mask).logits[:, 5:], want)
        first = model(input_ids=padded[:, :10], attention_mask=mask[:, :10], use_cache=True)
        cache = {name: first[name] for name in ("cache", "past_key_values") if name in first}
        rest = model(input_ids=padded[:, 10:], attention_mask=mask, **cache)
        torch.testing.assert_close(rest.logits, want[:, 5:])
        drawn = model.generate(padded, attention_mask=mask, max_new_tokens=3, do_sample=False)
    assert torch.equal(drawn[:, 14], want[:, -1].argmax(-1))


def test_columns_would_be_other_positions():
    """The test above can fail: without the hook, as GRPOTrainer asks the model, the answers differ."""
    population = population_on(BASES[0])
    population.routing.close()
    pad = torch.zeros(2, 5, dtype=torch.long)
    padded, mask = torch.cat([pad, IDS], dim=1), torch.cat([pad, torch.ones_like(IDS)], dim=1)
    with torch.no_grad():
        want = population.base_model(input_ids=IDS).logits
        got = population.base_model(input_ids=padded, attention_mask=mask).logits[:, 5:]
    assert (got - want).abs().max() > 0.1


def test_a_rotary_base_is_left_as_it_is():
    population = Population(two_layers(), lora(), num_teachers=1, num_students=1)
    assert not population.base_model.base_model._forward_pre_hooks
