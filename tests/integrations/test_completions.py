"""The supervised module: which tokens carry loss, whose rows move whom, and that a run repeats."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM

from trl_populora.integrations.lightning.supervised import (
    IGNORED,
    Example,
    Row,
    SupervisedModule,
    collate,
    completion_loss,
    encode,
    fit,
    model_forward,
)


CPU = torch.device("cpu")


def example(prompt: str, completion: str, member: str = "") -> Example:
    return Example(({"role": "user", "content": prompt},), completion, member)


def module_for(model, tokenizer, *, steps: int, **overrides) -> SupervisedModule:
    settings = {"pad_token_id": tokenizer.pad_token_id, "learning_rate": 1e-2, "steps": steps} | overrides
    return SupervisedModule(model_forward(model), {"": model.parameters()}, **settings)


def test_encode_continues_the_rendered_prompt_and_ends_the_turn(tokenizer):
    (row,) = encode(tokenizer, [example("2+2", "4")])
    assert tokenizer.decode(row.ids) == ("<|im_start|>user\n2+2<|im_end|>\n<|im_start|>assistant\n4<|im_end|>")
    assert tokenizer.decode(row.ids[row.prompt :]) == "4<|im_end|>"


def test_collate_labels_completions_only(tokenizer):
    rows = [Row((5, 6, 7, 8), 3, "x"), Row((9, 10, 11), 1, "y")]
    batch = collate(rows, pad_token_id=1)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8], [1, 9, 10, 11]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [0, 1, 1, 1]]
    assert batch["labels"].tolist() == [[IGNORED, IGNORED, IGNORED, 8], [IGNORED, IGNORED, 10, 11]]
    assert batch["members"] == ["x", "y"]


def test_loss_equals_a_row_by_row_oracle(model, tokenizer):
    """One row at a time, without padding, summing -log p of each completion token in a loop."""
    rows = encode(tokenizer, [example("ab", "xyz"), example("longer prompt", "q")])
    expected = []
    for row in rows:
        log_probs = F.log_softmax(model(torch.tensor([row.ids])).logits[0].double(), dim=-1)
        expected.append(-sum(log_probs[at - 1, row.ids[at]] for at in range(row.prompt, len(row.ids))).item())

    batch = collate(rows, tokenizer.pad_token_id)
    logits = model_forward(model)(batch["input_ids"], batch["attention_mask"], batch["members"], 5)
    actual = completion_loss(logits, batch["labels"]).sum(dim=1)
    torch.testing.assert_close(actual.double(), torch.tensor(expected).double(), rtol=1e-5, atol=1e-5)


def test_first_step_equals_plain_torch(model, tokenizer):
    """Against a training step written out: mean over completion tokens, clip, AdamW."""
    rows = encode(tokenizer, [example("ab", "xyz"), example("c", "q")])
    by_hand = LlamaForCausalLM(model.config)
    by_hand.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(by_hand.parameters(), lr=1e-2, weight_decay=0.0)
    total = 0.0
    for row in rows:
        logits = by_hand(torch.tensor([row.ids])).logits[0, row.prompt - 1 : -1]
        total = total + F.cross_entropy(logits, torch.tensor(row.ids[row.prompt :]), reduction="sum")
    (total / sum(len(row.ids) - row.prompt for row in rows)).backward()
    torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 0.5)
    optimizer.step()

    fit(module_for(model, tokenizer, steps=1, max_grad_norm=0.5, rows_per_pass=1), [rows], device=CPU)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, by_hand.get_parameter(name), rtol=1e-4, atol=1e-5, msg=name)


def test_few_steps_fit_a_few_rows(model, tokenizer):
    rows = encode(tokenizer, [example(str(n), str(n + 1)) for n in range(4)])
    losses = fit(module_for(model, tokenizer, steps=30), [rows] * 30, device=CPU)
    assert len(losses) == 30
    assert losses[-1][""] < 0.4 * losses[0][""]


def test_two_runs_are_equal_bit_for_bit(model, tokenizer):
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    batches = [encode(tokenizer, [example(f"{step}{n}", str(step * n)) for n in range(3)]) for step in range(2)]
    results = []
    for _ in range(2):
        model.load_state_dict(start)
        fit(module_for(model, tokenizer, steps=2), batches, device=CPU)
        results.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
    assert all(torch.equal(results[0][name], results[1][name]) for name in start)
    assert any(not torch.equal(results[0][name], start[name]) for name in start)


def test_a_member_learns_from_its_own_rows_alone(tokenizer):
    """Two members of two parameters: replacing one's rows leaves the other's update bit-identical."""

    def train(rows_of_b):
        scales = {name: torch.nn.Parameter(torch.ones(300)) for name in "ab"}
        routed = []

        @contextlib.contextmanager
        def route(members):
            routed.append(list(members))
            yield
            routed.append("closed")

        def forward(input_ids, attention_mask, members, logits_to_keep):
            hidden = F.one_hot(input_ids[:, -logits_to_keep:], 300).float()
            return hidden * torch.stack([scales[name] for name in members]).unsqueeze(1)

        groups = {name: [scale] for name, scale in scales.items()}
        module = SupervisedModule(forward, groups, pad_token_id=1, learning_rate=0.1, steps=2, route=route)
        rows = [Row((3, 4, 5), 1, "a"), Row((7, 7), 1, "a"), *rows_of_b]
        fit(module, [rows, rows], device=CPU)
        assert len(routed) == 4 and routed[1::2] == ["closed"] * 2
        return {name: scale.detach() for name, scale in scales.items()}

    one = train([Row((9, 9, 9), 1, "b")])
    other = train([Row((6, 6, 6), 1, "b")])
    assert torch.equal(one["a"], other["a"])
    assert not torch.equal(one["b"], other["b"])


@pytest.mark.parametrize("rows_per_pass", [1, 2, 5])
def test_splitting_a_batch_changes_nothing(model, tokenizer, rows_per_pass):
    rows = encode(tokenizer, [example("p" * n, "c" * (5 - n)) for n in range(5)])
    losses = fit(module_for(model, tokenizer, steps=1, rows_per_pass=rows_per_pass), [rows], device=CPU)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        again = LlamaForCausalLM(model.config)
    whole = fit(module_for(again, tokenizer, steps=1), [rows], device=CPU)
    assert losses[0][""] == pytest.approx(whole[0][""], rel=1e-5)


def test_learning_rate_rises_and_decays_to_zero(model, tokenizer):
    module = module_for(model, tokenizer, steps=10, warmup_steps=4)
    factors = [module.learning_rate_factor(step) for step in range(11)]
    assert factors[:5] == sorted(factors[:5]) and factors[0] > 0 and factors[4] == 1.0
    assert factors[4:] == sorted(factors[4:], reverse=True) and factors[10] == 0.0


def test_the_model_is_left_in_the_mode_it_came_in(model, tokenizer):
    model.eval()
    model.lm_head.requires_grad_(False)
    before = model.lm_head.weight.clone()
    module = SupervisedModule(
        model_forward(model), {"": model.model.parameters()}, pad_token_id=1, learning_rate=0.1, steps=1
    )
    fit(module, [encode(tokenizer, [example("a", "b")])], device=CPU)
    assert not any(part.training for part in model.modules())
    assert not model.lm_head.weight.requires_grad and model.model.norm.weight.requires_grad
    assert torch.equal(model.lm_head.weight, before)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not list(module.parameters())  # Lightning never owned the model


def test_warmup_longer_than_the_run_is_refused(model, tokenizer):
    with pytest.raises(ValueError, match="warmup_steps=5"):
        module_for(model, tokenizer, steps=2, warmup_steps=5)


def test_too_little_data_is_reported(model, tokenizer):
    with pytest.raises(ValueError, match="ended after 1 batches"):
        fit(module_for(model, tokenizer, steps=3), [encode(tokenizer, [example("a", "b")])], device=CPU)
