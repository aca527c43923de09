"""A user's subclass of the trainer with a population, and what callbacks see of the model."""

import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback
from transformers.utils import logging
from trl.experimental.gmpo import GMPOTrainer

from tests.tiny import lora, perturb, tiny_tokenizer, two_layers
from tests.training.conftest import hash_reward
from trl_populora.population.routing import UNROUTED
from trl_populora.training import PopulationSelfPlayTrainer


PROMPTS = Dataset.from_dict({"prompt": [f"say {word}" for word in "one two three four five six seven".split()]})


class OwnLoss(PopulationSelfPlayTrainer):
    """The policy gradient that TRL's loss `grpo` has in the first step, where all ratios are 1."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        mask = inputs["completion_mask"]
        logps = self.logps(model, ids, attended, mask.shape[1])
        rows = -(logps * inputs["advantages"][:, None] * mask).sum(1) / mask.sum(1)
        return rows.mean() / self.current_gradient_accumulation_steps

    def logps(self, model, ids, attended, kept):
        return self._get_per_token_logps_and_entropies(model, ids, attended, kept)[0]


class InChunks(OwnLoss):
    def logps(self, model, ids, attended, kept):
        return self._get_per_token_logps_and_entropies(model, ids, attended, kept, batch_size=2)[0]


class CallsTheModel(OwnLoss):
    def logps(self, model, ids, attended, kept):
        logits = model(input_ids=ids, attention_mask=attended).logits[:, -kept - 1 : -1]
        return logits.log_softmax(-1).gather(2, ids[:, -kept:, None])[..., 0]


class Mixed(GMPOTrainer, PopulationSelfPlayTrainer):
    """TRL's own variant: its ratio is one of rows, whose gradient in the first step is the same."""


@pytest.fixture
def train(config):
    def trained(kind, *, rewards=hash_reward, callbacks=None, eval_dataset=None, **settings):
        settings = dict(num_teachers=0, num_students=3, num_generations=2, loss_type="grpo", max_steps=1) | settings
        trainer = kind(
            two_layers(),
            rewards,
            config(**settings),
            train_dataset=PROMPTS,
            eval_dataset=eval_dataset,
            processing_class=tiny_tokenizer(),
            peft_config=lora(),
            callbacks=callbacks,
        )
        perturb(trainer.population, 0.1)
        trainer.train()
        return trainer

    return trained


def weights(trainer):
    return torch.cat(
        [p.detach().flatten() for name in trainer.population for p in trainer.population.parameters(name)]
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OwnLoss, InChunks, CallsTheModel, Mixed])
@pytest.mark.parametrize("size, again", [(4, False), (12, True)], ids=["three micro-batches", "one, checkpointed"])
def test_a_loss_of_ones_own_trains_the_member_of_each_row(train, kind, size, again):
    settings = dict(per_device_train_batch_size=size, optim="sgd", learning_rate=1.0, gradient_checkpointing=again)
    want, got = (weights(train(one, **settings)) for one in (PopulationSelfPlayTrainer, kind))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(want, weights(train(kind, **settings | {"learning_rate": 0.0})), atol=1e-3)


@pytest.mark.slow
def test_metrics_of_a_mixed_in_loss_are_means_over_tokens(train):
    """As those of TRL's own loss: not means over micro-batches, whose rows have other lengths."""
    settings = dict(per_device_train_batch_size=4, learning_rate=0.0, logging_steps=1)
    logs = [train(kind, **settings).state.log_history[0] for kind in (PopulationSelfPlayTrainer, Mixed)]
    assert logs[0]["entropy"] == pytest.approx(logs[1]["entropy"], rel=1e-6)


class AsksMore(PopulationSelfPlayTrainer):
    """Looks at other log-probabilities first: no loss of TRL's may take them for those of the rows."""

    def _compute_loss(self, model, inputs):
        assert "old_per_token_logps" in inputs
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        self._get_per_token_logps_and_entropies(model, ids.flip(1), attended, ids.shape[1] // 2)
        return super()._compute_loss(model, inputs)


def test_a_loss_of_ones_own_may_ask_for_other_log_probabilities(train):
    settings = dict(num_iterations=2, max_steps=2, optim="sgd", learning_rate=1.0)
    want, got = (weights(train(kind, **settings)) for kind in (PopulationSelfPlayTrainer, AsksMore))
    assert torch.equal(want, got)


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "checkpointed"])
@pytest.mark.parametrize("first", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["after", "before"])
def test_a_loss_of_ones_own_may_call_the_model_beside_shared_prompts(train, first, again):
    class CallsItToo(PopulationSelfPlayTrainer):
        def _compute_loss(self, model, inputs):
            ids, mask = (
                torch.cat([inputs[f"prompt_{kind}"], inputs[f"completion_{kind}"]], dim=1) for kind in ("ids", "mask")
            )
            terms = [
                lambda: super(CallsItToo, self)._compute_loss(model, inputs),
                lambda: model(input_ids=ids, attention_mask=mask).logits[:, -2].square().mean(),
            ]
            return sum(term() for term in (terms[::-1] if first else terms))

    settings = dict(optim="sgd", learning_rate=1.0, num_generations=4, gradient_checkpointing=again)
    want, got = (weights(train(CallsItToo, share_prompts=share, **settings)) for share in (False, True))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


def test_a_loss_of_ones_own_is_told_how_gradients_are_scaled(train, caplog):
    train(Mixed, loss_type="dapo")
    assert "Mixed has a loss of its own, and loss_type='dapo'" in caplog.text
    caplog.clear()
    train(Mixed)
    train(PopulationSelfPlayTrainer, loss_type="dapo")
    assert "a loss of its own" not in caplog.text


@pytest.mark.slow
def test_a_loss_of_ones_own_is_evaluated_with_the_member_of_each_row(train):
    losses = []

    class Evaluated(CallsTheModel):
        def compute_loss(self, model, inputs, **kwargs):
            loss = super().compute_loss(model, inputs, **kwargs)
            if not self.model.training:
                with self.population.route(self.row_members):
                    losses.append((loss, super().compute_loss(model, inputs, **kwargs)))
            return loss

    trainer = train(Evaluated, eval_dataset=PROMPTS)
    trainer.evaluate()
    assert any(loss for loss, _ in losses) and all(torch.equal(*pair) for pair in losses)
    assert trainer.population.routing._plan is None


@pytest.mark.slow
@pytest.mark.parametrize("uses_parent", [False, True])
def test_rewards_of_ones_own_count_for_advantages_and_fitness(train, uses_parent):
    class OwnRewards(PopulationSelfPlayTrainer):
        def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
            if uses_parent:
                return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list) + 100
            return torch.tensor([[len(ids) + 100.0] for ids in completion_ids_list])

    trainer = train(OwnRewards)
    logged = list(trainer._logs["rewards"]["hash_reward"])  # TRL's, from which it makes the advantages
    fitness = [trainer.ratings.fitness(name) for name in trainer.population]
    assert min(logged) >= 100 and sum(fitness) / 3 == pytest.approx(sum(logged) / len(logged))


@pytest.mark.slow
@pytest.mark.parametrize("entry", [None, "names"])
def test_a_batch_may_hold_what_trl_lets_it_hold(train, entry):
    """`None`, and lists with an entry for each row, which stays with its row."""

    class Extra(PopulationSelfPlayTrainer):
        def _generate_and_score_completions(self, inputs):
            return super()._generate_and_score_completions(inputs) | {"extra": entry and list(self.row_members)}

        def _compute_loss(self, model, inputs):
            assert inputs["extra"] == (entry and self.row_members)
            return super()._compute_loss(model, inputs)

    train(Extra, per_device_train_batch_size=4)


def test_an_optimizer_without_a_group_for_each_member_is_refused(train):
    class OneGroup(PopulationSelfPlayTrainer):
        def create_optimizer(self, model=None):
            self.optimizer = torch.optim.SGD([p for p in self.model.parameters() if p.requires_grad])
            return self.optimizer

    with pytest.raises(ValueError, match=r"one group of parameters for each member.*\[None\].*super"):
        train(OneGroup)


@pytest.mark.slow
def test_a_model_that_is_asked_without_a_member_warns_and_is_the_base(train, monkeypatch):
    said, answers = [], {}
    monkeypatch.setattr(logging.get_logger("trl_populora.population.routing"), "warning_once", said.append)

    class Ask(TrainerCallback):
        def on_step_end(self, args, state, control, model, processing_class, **kwargs):
            batch = processing_class(["one two"], return_tensors="pt")
            routing = model.population.routing
            with torch.no_grad():
                with routing.base():
                    answers["base"] = model(**batch).logits
                with model.population.route(["student_1"]):
                    answers["student_1"] = model(**batch).logits
                    drawn = model.generate(**batch, max_new_tokens=1, do_sample=False)
                assert not said and drawn[0, -1] == answers["student_1"][0, -1].argmax()
                answers["unrouted"] = model(**batch).logits

    train(PopulationSelfPlayTrainer, callbacks=[Ask()])
    assert said and set(said) == {UNROUTED}
    assert torch.equal(answers["unrouted"], answers["base"])
    assert not torch.allclose(answers["student_1"], answers["base"], atol=1e-3)
