"""Log-probabilities under the policy of the round and under the reference: short rows share passes with short ones."""

import pytest
import torch
from trl import GRPOTrainer


def padded_rows(prompts, completions):
    """Rows as TRL pads them: prompts on the left, completions on the right, all to the longest."""
    mask = torch.cat(
        [
            torch.arange(max(prompts)) >= max(prompts) - torch.tensor(prompts)[:, None],
            torch.arange(max(completions)) < torch.tensor(completions)[:, None],
        ],
        dim=1,
    ).long()
    ids = torch.randint(3, 200, mask.shape, generator=torch.Generator().manual_seed(0))
    return ids * mask, mask


@pytest.mark.parametrize("scored", ["policy", "reference"])
def test_each_pass_is_as_wide_as_its_own_rows(make_trainer, scored):
    """Lengths as of a round: proposers read long prompts, few completions are long. Same values, fewer tokens."""
    trainer = make_trainer(beta=0.1)
    names = list(trainer.population)
    trainer.row_members = [names[i % 2] if i < 8 else names[2 + i % 2] for i in range(32)]
    prompts = [40 + i % 3 if i < 8 else 12 + i % 4 for i in range(32)]
    completions = [60 if i == 17 else 4 + i * 7 % 13 for i in range(32)]
    ids, mask = padded_rows(prompts, completions)
    model, counted = (trainer.ref_model if scored == "reference" else trainer.model), []
    handle = trainer.population.base_model.register_forward_pre_hook(
        lambda _model, _args, kwargs: counted.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    with torch.no_grad():
        got, *_ = trainer._get_per_token_logps_and_entropies(model, ids, mask, max(completions), batch_size=4)
        handle.remove()
        routing = trainer.population.routing
        with routing.base() if scored == "reference" else routing.rows(trainer.row_members):
            want, *_ = GRPOTrainer._get_per_token_logps_and_entropies(trainer, model, ids, mask, max(completions))
    kept = mask[:, -max(completions) :].bool()
    assert got.shape == want.shape
    torch.testing.assert_close(got[kept], want[kept], rtol=1e-5, atol=1e-5)
    assert len(counted) == 8 and mask.sum() <= sum(counted) <= 0.45 * ids.numel()
