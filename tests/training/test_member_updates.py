"""Invariant 2: every member's update is what a GRPOTrainer with one adapter computes on that member's rows alone."""

import math
import zlib
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from peft import PeftModel
from trl import GRPOConfig, GRPOTrainer

from tests.tiny import lora, perturb, tiny_tokenizer, two_layers
from tests.training.conftest import Altered, hash_reward, text_of
from trl_populora.training import PopulationSelfPlayTrainer
from trl_populora.training.batching import deal


NAMES = ["teacher_0", "teacher_1", "student_0", "student_1"]
LENGTHS = {"teacher_0": 3, "teacher_1": 8, "student_0": 5, "student_1": 7}


def shorten(sampler):
    """Give members completions of different lengths."""

    def shortened(drawn, members):
        # every second one ends properly: the others are truncated
        kept = [list(c.ids)[: max(1, LENGTHS[m] - i % 3)] for i, (c, m) in enumerate(zip(drawn, members, strict=True))]
        kept = [[*ids[:-1], 2] if i % 2 else ids for i, ids in enumerate(kept)]
        return [
            c._replace(ids=ids, text=sampler.tokenizer.decode(ids, skip_special_tokens=True))
            for c, ids in zip(drawn, kept, strict=True)
        ]

    return Altered(sampler, shortened)


def train_alone(folder, rows, G, settings):
    """One adapter under TRL's own trainer, on recorded rows. It computes the prompt of each."""
    settings = {name: value for name, value in settings.items() if name != "share_prompts"}
    model = PeftModel.from_pretrained(two_layers(), folder, is_trainable=True)
    args = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=len(rows) // 4,
        num_generations=G,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        max_completion_length=8,
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        shuffle_dataset=False,
        **settings,
    )

    def replay(prompts, trainer):
        return {
            "prompt_ids": [list(row.completion.prompt_ids) for row in rows],
            "completion_ids": [list(row.completion.ids) for row in rows],
            "logprobs": None,
            "recorded": [row.reward + hash_reward([row.completion.text])[0] for row in rows],
        }

    def recorded_reward(completions, recorded, **kwargs):
        return recorded

    trainer = GRPOTrainer(
        model,
        recorded_reward,
        args,
        train_dataset=Dataset.from_dict({"prompt": ["recorded"] * (len(rows) // G)}),
        processing_class=tiny_tokenizer(),
        rollout_func=replay,
    )
    trainer.train()
    return [p for p in model.parameters() if p.requires_grad]


def slow(**settings):
    return pytest.param(settings, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "settings",
    [
        slow(loss_type="dapo", gradient_checkpointing=True),
        slow(loss_type="dapo", optim="sgd"),
        {"loss_type": "grpo", "optim": "sgd", "beta": 0.2},
        slow(loss_type="dapo", optim="sgd", beta=0.2, num_iterations=2),
        slow(loss_type="dr_grpo", optim="sgd", num_iterations=2, max_grad_norm=1e9),
        slow(loss_type="cispo", optim="sgd"),
        slow(loss_type="sapo", optim="sgd", scale_rewards="none"),
        slow(loss_type="vespo", optim="sgd", mask_truncated_completions=True, beta=0.1),
        slow(loss_type="luspo", optim="sgd", importance_sampling_level="sequence"),
        {"share_prompts": True, "optim": "sgd", "beta": 0.2},
        slow(share_prompts=True, loss_type="grpo", optim="sgd", gradient_checkpointing=True),
        slow(share_prompts=True, loss_type="dapo", optim="sgd", beta=0.2, num_iterations=2),
        slow(share_prompts=True, loss_type="vespo", optim="sgd", mask_truncated_completions=True),
        slow(share_prompts=True, loss_type="luspo", optim="sgd", importance_sampling_level="sequence"),
    ],
    ids=lambda s: "-".join(f"{k}={v}" for k, v in s.items()),
)
def test_update_equals_a_trainer_of_one(make_trainer, tmp_path, settings):
    settings = {"max_steps": settings.get("num_iterations", 1)} | settings
    fresh = settings.get("beta", 0) > 0  # TRL's reference is the initial adapter, ours the base: equal when B = 0
    trainer = make_trainer(
        model=two_layers(), num_generations=4, per_device_train_batch_size=8, noise=0.0 if fresh else 0.1, **settings
    )
    trainer.source.sampler = shorten(trainer.source.sampler)
    trainer.population.save(tmp_path / "founders")
    trainer.train()
    for name in trainer.population:
        rows = [row for row in trainer.source.played.rows if row.player == name]
        assert len(rows) == (4 if name.startswith("teacher") else 16)
        alone = train_alone(tmp_path / "founders" / name, rows, 4, settings)
        before = PeftModel.from_pretrained(two_layers(), tmp_path / "founders" / name).state_dict()
        moved = 0.0
        for got, want, start in zip(trainer.population.parameters(name), alone, _lora(before), strict=True):
            torch.testing.assert_close(got - start, want - start, rtol=2e-3, atol=2e-6)
            moved += float((want - start).abs().sum())
        assert moved > 0


def _lora(state):
    return [value for key, value in state.items() if "lora_A" in key or "lora_B" in key]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"beta": 0.2, "num_iterations": 2, "max_steps": 2}], ids=["plain", "beta"])
def test_the_size_of_a_micro_batch_changes_nothing(make_trainer, settings):
    """Fewer rows than members, whole roles, the whole round: one update, to the rounding of float32."""
    updates = []
    for size in (2, 4, 6, 12):
        trainer = make_trainer(
            model=two_layers(), per_device_train_batch_size=size, optim="sgd", **{"max_steps": 1} | settings
        )
        trainer.source.sampler = shorten(trainer.source.sampler)
        before = {name: [p.detach().clone() for p in trainer.population.parameters(name)] for name in NAMES}
        trainer.train()
        after = {name: trainer.population.parameters(name) for name in NAMES}
        updates.append({name: [a - b for a, b in zip(after[name], before[name], strict=True)] for name in NAMES})
    for update in updates[:-1]:
        for name in NAMES:
            for got, want in zip(update[name], updates[-1][name], strict=True):
                assert want.norm() > 0 and (got - want).norm() <= 1e-4 * want.norm()


@pytest.mark.slow
def test_micro_batches_hold_equally_many_rows_of_each_member_and_all_rows_of_the_round(make_trainer):
    trainer = make_trainer(model=two_layers(), num_iterations=2, max_steps=4)
    trainer.source.sampler = shorten(trainer.source.sampler)
    loss, seen = trainer._compute_loss, []
    trainer._compute_loss = lambda model, inputs: (
        seen.append((trainer.state.global_step, inputs)) or loss(model, inputs)
    )
    trainer.train()
    rounds = {0: [], 1: []}
    for step, inputs in seen:
        counts = Counter(inputs["member_ids"].tolist())
        assert len(set(counts.values())) == 1
        rounds[step // 2].append((step, counts))
    for steps in rounds.values():
        assert [step for step, _ in steps] == sorted(step for step, _ in steps) and len(steps) == 6
        for step in {step for step, _ in steps}:  # every optimizer step sees the whole round once
            total = sum((counts for own, counts in steps if own == step), Counter())
            assert total == {0: 2, 1: 2, 2: 4, 3: 4}


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1e-3, 0.5, 1e9])
def test_clipping_is_torchs_own_member_by_member(make_trainer, bound):
    trainer = make_trainer(model=two_layers(), max_grad_norm=bound)
    trainer.create_optimizer()
    generator = torch.Generator().manual_seed(0)
    trainer.updates.scales = {name: 0.5 + i for i, name in enumerate(NAMES)}
    want, norms = {}, {}
    for i, name in enumerate(NAMES[:3]):  # the last one has no gradient
        own = trainer.population.parameters(name)
        for p in own:
            p.grad = 10.0**-i * torch.randn(p.shape, generator=generator)
        copies = [torch.nn.Parameter(p.detach().clone()) for p in own]
        for copy, p in zip(copies, own, strict=True):
            copy.grad = p.grad * trainer.updates.scales[name]
        norms[name] = float(torch.nn.utils.clip_grad_norm_(copies, bound))
        want[name] = [copy.grad for copy in copies]
    total = trainer._clip_grad_norm(trainer.model)
    for name in NAMES[:3]:
        for p, grad in zip(trainer.population.parameters(name), want[name], strict=True):
            torch.testing.assert_close(p.grad, grad, rtol=1e-5, atol=0.0)
    assert trainer.updates.grad_norms == pytest.approx(norms | {NAMES[3]: 0.0}, rel=1e-5)
    assert float(total) == pytest.approx(sum(norm**2 for norm in norms.values()) ** 0.5, rel=1e-5)
    assert all(p.grad is None for p in trainer.population.parameters(NAMES[3]))


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_a_member_without_rows_or_tokens_changes_no_scale(make_trainer, loss_type):
    """All completions of a member may be masked, as truncated ones are."""
    trainer = make_trainer(loss_type=loss_type)
    members, tokens = NAMES[:3] * 2, [3, 0, 5, 3, 0, 1]
    rows = SimpleNamespace(members=members, loss_tokens=tokens, rewards=[1.0, 1.0, 1.0, 0.0, 0.0, math.nan])
    trainer.updates.rescale(rows)
    by_token = {"teacher_0": 12 / 6, "teacher_1": 0.0, "student_0": 12 / 6, "student_1": 0.0}
    by_row = {"teacher_0": 3.0, "teacher_1": 3.0, "student_0": 3.0, "student_1": 0.0}
    assert trainer.updates.scales == (by_token if loss_type == "dapo" else by_row)
    assert trainer.updates.idle == {"student_1"}


def test_a_child_learns_also_if_its_slot_did_not(make_trainer):
    trainer = make_trainer(learning_rate=0.0, max_steps=4)
    trainer.create_optimizer_and_scheduler(4)
    trainer.population.restore(replace(trainer.population["student_0"], learning_rate=0.04))
    trainer.updates.start_over("student_0", trainer.optimizer, trainer.lr_scheduler)
    rates = {group["member"]: group["initial_lr"] for group in trainer.optimizer.param_groups}
    assert rates == dict.fromkeys(NAMES, 0.0) | {"student_0": 0.04}
    assert trainer.lr_scheduler.get_last_lr() == [group["lr"] for group in trainer.optimizer.param_groups]  # logged


@pytest.mark.slow
def test_rows_of_a_member_are_compute_matched(make_trainer):
    """Invariant 5: within a role every member has the same number of rows in every round."""
    trainer = make_trainer(num_teachers=4, num_students=2, max_steps=2)
    seen = []
    trainer.on_round = lambda summary: seen.append({m.name: m.rows for m in summary.members})
    trainer.train()
    assert len(seen) == 2
    for rows in seen:
        assert [rows[f"teacher_{i}"] for i in range(4)] == [2] * 4
        assert [rows[f"student_{i}"] for i in range(2)] == [8] * 2


def test_text_of_reads_both_forms():
    assert text_of("a") == text_of([{"role": "assistant", "content": "a"}]) == "a"


@pytest.mark.slow
@pytest.mark.parametrize("moved", [True, False])
def test_a_penalty_towards_where_members_do_not_start_is_told(make_trainer, monkeypatch, moved):
    said = []
    monkeypatch.setattr("trl_populora.training.callbacks.logger.warning", said.append)
    trainer = make_trainer(beta=0.1, max_steps=1)
    for name in trainer.population:
        for factor in trainer.population.factors(name).values():
            factor.B.data.fill_(0.01 if moved and name == "student_1" else 0.0)
    trainer.train()
    assert [text for text in said if "beta=0.1" in text and "student_1 does not start" in text] == said[:moved]


def unanimous_or_not(completions, **kwargs):
    """Half of the groups get the same reward for all rows, so that these have no advantage."""
    group = [zlib.crc32(text_of(c).encode()) for c in completions]
    return [float(one % 3) if i // 2 % 2 else 1.0 for i, one in enumerate(group)]


@pytest.mark.slow
def test_rows_without_an_advantage_are_left_out_and_change_no_update(make_trainer, monkeypatch):
    def run(leave_out):
        if not leave_out:
            monkeypatch.setattr("trl_populora.training.trainer.deal", lambda batches, roles, **_: deal(batches, roles))
        trainer = make_trainer(rewards=unanimous_or_not, num_generations=2, max_steps=3)
        rows, loss = [], trainer._compute_loss
        monkeypatch.setattr(
            trainer,
            "_compute_loss",
            lambda model, inputs: rows.append(len(inputs["advantages"])) or loss(model, inputs),
        )
        trainer.train()
        return sum(rows), {name: [p.detach().clone() for p in trainer.population.parameters(name)] for name in NAMES}

    fewer, got = run(True)
    every_row, want = run(False)
    assert fewer < every_row
    for name in NAMES:
        torch.testing.assert_close(got[name], want[name], rtol=0, atol=2e-5)


class RoundsOtherwise(PopulationSelfPlayTrainer):
    """The pass before the update is off, as in bfloat16, where a probability depends on the shape of a batch."""

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        logps, *others = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        return logps if torch.is_grad_enabled() else logps + 0.01, *others


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_rows_that_nothing_has_changed_are_not_clipped(config, rate):
    settings = config(
        num_generations=4,
        learning_rate=rate,
        optim="sgd",
        max_steps=2,
        num_iterations=2,
        importance_sampling_level="sequence",
        epsilon=1e-3,
        logging_steps=1,
    )
    trainer = RoundsOtherwise(
        two_layers(), hash_reward, settings, processing_class=tiny_tokenizer(), peft_config=lora()
    )
    perturb(trainer.population, 0.1)
    trainer.train()
    first, second = (
        one["clip_ratio/region_mean"] for one in trainer.state.log_history if "clip_ratio/region_mean" in one
    )
    assert first == 0 and (second > 0) == (rate > 0)
    trainer.close()
