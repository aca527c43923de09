"""Prompts that are computed once: what each token sees, which bases can do it, and that nothing else changes."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaModel,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tests.drawn_examples import examples
from tests.tiny import SHAPE, two_layers
from tests.training.test_scoring import padded_rows
from trl_populora.population.composition import schedule
from trl_populora.training.batching import deal
from trl_populora.training.shared_prompts import cost, pack, packs, prompt_numbers


KEYS = ("ids", "mask")
SHAPES = SHAPE | {"num_hidden_layers": 2}
BASES = {
    "llama": two_layers,
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPES)),
    "a window that no row fills": lambda: MistralForCausalLM(MistralConfig(**SHAPES, sliding_window=2048)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=259, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    ),
}


@st.composite
def batches(draw):
    """Rows of several members and prompts: which share one, their tokens, and widths of their padding."""
    prompts = draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=4))
    row = st.tuples(
        st.integers(0, 2), st.sampled_from(prompts), st.lists(st.integers(0, 3), max_size=4)
    )  # member, prompt, completion
    return draw(st.lists(row, min_size=1, max_size=8)), draw(st.integers(0, 2)), draw(st.sampled_from([1, 1000]))


def padded(rows, spare):
    """Rows as TRL pads them, with `spare` more columns at both ends; and the width of the completions."""
    left, right = (spare + max(1, *(len(row[k]) for row in rows)) if rows else 1 for k in (1, 2))
    ids, mask = torch.full((len(rows), left + right), 9), torch.zeros(len(rows), left + right, dtype=torch.long)
    for i, (_, prompt, completion) in enumerate(rows):
        for start, tokens in ((left - len(prompt), prompt), (left, completion)):
            ids[i, start : start + len(tokens)] = torch.tensor(tokens, dtype=torch.long)
            mask[i, start : start + len(tokens)] = 1
    return ids, mask, right


@examples(150)
@given(batches())
def test_each_token_is_predicted_from_its_own_row(batch):
    """The cell that predicts it sees the prompt and the tokens before it, at their positions, and nothing else."""
    rows, spare, hidden = batch
    ids, mask, right = padded(rows, spare)
    members = [member for member, _, _ in rows]
    kinds = {(member, tuple(prompt)) for member, prompt, _ in rows}
    assert len(set(prompt_numbers(ids[:, :-right], mask[:, :-right], members))) == len(kinds)
    packed = pack(ids, mask, right, members, hidden=hidden)
    if packed is None:
        return
    assert len(kinds) <= len(packed.members) < len(rows)
    assert set(packed.members) == set(members)
    inputs = packed.inputs
    lengths = [max(len(row[k]) for row in rows) for k in (1, 2)]
    assert cost(*inputs["input_ids"].shape, hidden) < cost(len(rows), sum(lengths), hidden)
    seen = 0
    for k, cell, i, column in zip(*map(torch.Tensor.tolist, (*packed.places, *packed.targets)), strict=True):
        member, prompt, completion = rows[i]
        visible = inputs["attention_mask"][k, 0, cell]
        order = inputs["position_ids"][k][visible]
        assert order.tolist() == list(range(len(prompt) + column)) and packed.members[k] == member
        assert inputs["input_ids"][k][visible].tolist() == [*prompt, *completion[:column]]
        assert inputs["labels"][k, cell + 1] == completion[column]
        seen += 1
    assert seen == sum(len(completion) for _, _, completion in rows) == (inputs["labels"] != -100).sum()
    assert inputs["position_ids"].min() == 0
    assert inputs["attention_mask"].any(-1).all()  # padding, too: a softmax over nothing is NaN


@pytest.mark.parametrize("base", BASES)
def test_log_probabilities_are_those_of_separate_rows(make_trainer, base):
    """In passes without gradients as well as with: of members of other temperatures, and of the reference."""
    torch.manual_seed(0)
    trainer = make_trainer(model=BASES[base](), share_prompts=True, beta=0.1)
    names, routing = list(trainer.population), trainer.population.routing
    routing.set_temperature(names[1], 1.5)
    ids, mask = padded_rows([7 + i // 3 % 4 for i in range(24)], [1 + i * 5 % 9 for i in range(24)])
    for i in range(24):
        ids[i, :10], mask[i, :10] = ids[i - i % 3, :10], mask[i - i % 3, :10]  # three completions to a prompt
    trainer.row_members = [names[i // 6] for i in range(24)]
    tokens = []
    handle = trainer.population.base_model.register_forward_pre_hook(
        lambda _model, _args, kwargs: tokens.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    kept, found = mask[:, 10:].bool(), {}
    for trainer.args.share_prompts in (False, True):
        for model in (trainer.model, trainer.ref_model):
            with torch.no_grad():
                given = model, ids, mask, ids.shape[1] - 10
                told = trainer._get_per_token_logps_and_entropies(*given, batch_size=6, compute_entropy=True)
            found.setdefault(model is trainer.model, []).append([values[kept] for values in told[:2]])
        logps, entropies, _ = trainer._get_per_token_logps_and_entropies(*given[:0], trainer.model, *given[1:])
        found.setdefault("update", []).append([logps[kept].detach()])
        found.setdefault("tokens", []).append(sum(tokens))
        tokens.clear()
        assert entropies is None
    handle.remove()
    plain, shared = found.pop("tokens")
    assert shared < 0.7 * plain
    for before, after in found.values():
        for want, got in zip(before, after, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@examples(150)
@given(st.integers(1, 300), st.integers(0, 300), st.integers(1, 12), st.sampled_from([64, 576, 3584]))
def test_as_many_are_packed_as_cost_least(prompt, completion, rows, hidden):
    def total(k):
        return cost(-(-rows // k), prompt + k * (completion + 1) - 1, hidden)

    width, packed = packs([0] * rows, [prompt] * rows, [completion] * rows, hidden=hidden)
    assert sorted(row for own in packed for row in own) == list(range(rows))
    assert cost(len(packed), width, hidden) == min(map(total, range(1, rows + 1)))


def drawn_batch(rng, *, prompts, group, prompt, completion):
    """Rows of two members, as TRL pads them: groups with a prompt each, completions of very different lengths."""
    sizes = [rng.randint(1, prompt) for _ in range(2 * prompts)]
    ends = [max(1, min(3 * completion, int(rng.expovariate(1 / completion)))) for _ in range(2 * prompts * group)]
    mask = torch.tensor([[i >= prompt - sizes[row // group] for i in range(prompt)] for row in range(len(ends))])
    ids = torch.arange(len(sizes)).repeat_interleave(group)[:, None] * mask
    completions = torch.arange(max(ends)) < torch.tensor(ends)[:, None]
    return {
        "prompt_ids": ids,
        "prompt_mask": mask.long(),
        "completion_ids": completions.long(),
        "completion_mask": completions.long(),
        "member_ids": torch.arange(2).repeat_interleave(prompts * group),
        "advantages": torch.tensor([float(rng.random() < 0.6) for _ in ends]),
    }


@examples(60)
@given(
    st.integers(0, 10**6),
    st.sampled_from([4, 8, 16]),
    st.sampled_from([(20, 60), (60, 20), (5, 100)]),
    st.sampled_from([16, 64, 576]),
    st.booleans(),
)
def test_an_update_never_costs_more_than_without(seed, size, lengths, hidden, idle):
    """Also with long and uneven completions, and with groups of which only some rows are left."""
    whole = drawn_batch(random.Random(seed), prompts=4, group=8, prompt=lengths[0], completion=lengths[1])
    parts = [{name: value[i : i + size] for name, value in whole.items()} for i in range(0, 64, size)]
    totals = []
    for share in (False, True):
        totals.append(0)
        for batch in deal(parts, ["student"] * 2, leave_out_idle=idle, share_prompts=share, hidden=hidden):
            ids, mask = (torch.cat([batch[f"{kind}_{name}"] for kind in ("prompt", "completion")], 1) for name in KEYS)
            given = ids, mask, batch["completion_ids"].shape[1], batch["member_ids"].tolist()
            packed = pack(*given, hidden=hidden) if share else None
            shape = ids.shape if packed is None else packed.inputs["input_ids"].shape
            totals[-1] += cost(*shape, hidden)
    assert totals[1] <= totals[0]


def test_rows_of_a_prompt_share_a_micro_batch():
    """Of the sizes of a recipe: 4 students with 3 tasks of 4 attempts each, in micro-batches of 8 rows."""
    members = [row // 12 for row in range(48)]
    prompts = [row // 4 for row in range(48)]
    lengths = [(row * 7) % 23 + 5 for row in range(48)]
    chosen = schedule(members, lengths, roles=["student"] * 4, size=8, prompts=prompts)
    assert sorted(row for rows in chosen for row in rows) == list(range(48))
    assert all(len({prompts[row] for row in rows}) == 2 for rows in chosen)
    sums = [sum(lengths[4 * k : 4 * k + 4]) for k in range(12)]
    first = {prompts[row] for row in chosen[0]}
    assert all(sums[k] == min(sums[3 * (k // 3) : 3 * (k // 3) + 3]) for k in first)  # the shortest first


def test_the_micro_batch_with_most_tokens_comes_first():
    prompt = torch.tensor([[1, 2, 3, 4, 5, 6]] * 4 + [[7, 7, 7, 7, 7, 7], [8, 8, 8, 8, 8, 8]])
    whole = {
        "prompt_ids": prompt,
        "prompt_mask": torch.ones_like(prompt),
        "completion_ids": torch.ones(6, 4, dtype=torch.long),
        "completion_mask": torch.tensor([[1, 1, 1, 1]] * 4 + [[1, 1, 1, 0]] * 2),
        "member_ids": torch.tensor([0, 0, 0, 0, 1, 1]),
        "advantages": torch.ones(6),
    }
    halves = [{name: value[k : k + 2] for name, value in whole.items()} for k in (0, 2, 4)]
    plain = deal(halves, ["teacher", "student"])
    shared = deal(halves, ["teacher", "student"], share_prompts=True)
    assert plain[0]["completion_mask"].sum() == 8  # 2 rows of 10 tokens
    assert shared[0]["completion_mask"].sum() == 6  # 2 rows of 9 tokens, and not one of 6 + 4 + 4


@pytest.mark.parametrize(
    ("base", "why"),
    [
        (lambda: two_layers(attn_implementation="eager"), "attn_implementation='eager' .only 'sdpa' takes a mask"),
        (lambda: MistralForCausalLM(MistralConfig(**SHAPES, sliding_window=16)), "an attention window of 16 tokens"),
        (
            lambda: Qwen2ForCausalLM(
                Qwen2Config(**SHAPES, use_sliding_window=True, sliding_window=16, max_window_layers=1)
            ),
            "layers of the kinds full_attention, sliding_attention",
        ),
        (
            lambda: FalconForCausalLM(FalconConfig(**SHAPES, alibi=True)),
            "no way to take a mask for each pair of tokens",
        ),
        (lambda: BloomForCausalLM(BloomConfig(vocab_size=259, hidden_size=32, n_layer=1, n_head=4)), "has "),
    ],
)
def test_a_base_that_cannot_is_refused(make_trainer, base, why):
    with pytest.raises(ValueError, match=f"share_prompts=true: .*{why}.*Set share_prompts to false"):
        make_trainer(model=base(), share_prompts=True)
    make_trainer(model=base())


def test_a_base_with_positions_of_its_own_is_noticed(make_trainer):
    class Counts(LlamaModel):
        """Counts columns, whatever positions it is given."""

        def forward(self, *args, position_ids=None, **kwargs):
            return super().forward(*args, **kwargs)

    base = two_layers()
    base.model = Counts(base.config)
    with pytest.raises(ValueError, match="changes log-probabilities of LlamaForCausalLM by .* in the mean"):
        make_trainer(model=base, share_prompts=True)


def test_dropout_of_a_base_is_no_difference(make_trainer):
    """A base made from its configuration is in training mode, in which each pass draws anew."""
    base = GPT2LMHeadModel(GPT2Config(vocab_size=259, n_embd=32, n_layer=2, n_head=4)).train()
    modes = {module: module.training for module in base.modules()}
    make_trainer(model=base, share_prompts=True, noise=0.0)
    assert modes == {module: module.training for module in modes}


def test_a_run_with_shared_prompts_plays_as_one_without(make_trainer):
    """One optimizer step: rows and rewards are the same, and weights up to rounding."""
    weights = []
    for share in (False, True):
        trainer = make_trainer(model=two_layers(), share_prompts=share, max_steps=1, num_generations=4, optim="sgd")
        trainer.train()
        played = [(row.player, row.completion.ids, row.reward) for row in trainer.source.played.rows]
        members = trainer.population
        weights.append(
            (played, torch.cat([p.detach().flatten() for name in members for p in members.parameters(name)]))
        )
    (rows, plain), (others, shared) = weights
    assert rows == others
    torch.testing.assert_close(plain, shared, rtol=1e-4, atol=1e-6)
