"""What scripts and notebooks do to a trainer: switch adapters, ask the base, save when they like, change settings."""

import os

import pytest
import torch
from datasets import Dataset
from transformers import EarlyStoppingCallback, TrainerCallback

from tests.tiny import lora, perturb, tiny_model, tiny_tokenizer
from tests.training.conftest import hash_reward
from trl_populora.reporting import read_history
from trl_populora.training import PopulationSelfPlayTrainer


PROMPTS = Dataset.from_dict({"prompt": [f"say {word}" for word in "one two three four five six".split()]})


class At(TrainerCallback):
    """Calls `action(trainer, control)` at the end of these steps."""

    def __init__(self, action, *steps):
        self.action, self.steps, self.trainer = action, steps, None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step in self.steps:
            self.action(self.trainer, control)


@pytest.fixture
def make(config):
    trainers = []

    def make_trainer(*, cls=PopulationSelfPlayTrainer, rewards=hash_reward, dataset=PROMPTS, at=None, **given):
        arguments = {name: given.pop(name) for name in ("callbacks", "optimizers") if name in given}
        if at is not None:
            arguments["callbacks"] = [at]
        settings = dict(num_teachers=0, num_students=2, num_generations=2, per_device_train_batch_size=4, max_steps=3)
        trainer = cls(
            tiny_model(),
            rewards,
            config(**(settings | given)),
            train_dataset=dataset,
            processing_class=tiny_tokenizer(),
            peft_config=lora(),
            **arguments,
        )
        perturb(trainer.population, 0.1)
        trainers.append(trainer)
        if at is not None:
            at.trainer = trainer
        return trainer

    yield make_trainer
    for trainer in trainers:
        trainer.close()


def weights(trainer):
    return {name: [p.detach().clone() for p in trainer.population.parameters(name)] for name in trainer.population}


def use_the_idiom_of_peft(trainer, control):
    with trainer.model.disable_adapter():
        pass


SWITCHES = {
    "set_adapter": lambda trainer, control: trainer.model.set_adapter("student_0"),
    "disable_adapter": use_the_idiom_of_peft,
    "enable_adapter_layers": lambda trainer, control: trainer.model.base_model.enable_adapter_layers(),
}


@pytest.mark.slow
def test_adapters_that_a_callback_switches_change_nothing(make):
    undisturbed = make()
    undisturbed.train()
    wanted = weights(undisturbed)
    for name, switch in SWITCHES.items():
        trainer = make(at=At(switch, 1, 2))
        trainer.train()
        for member, parameters in weights(trainer).items():
            assert all(map(torch.equal, parameters, wanted[member])), (name, member)


def test_adapters_of_pefts_own_are_refused_where_rows_are_routed(make):
    trainer = make()
    trainer.model.base_model.enable_adapter_layers()
    with (
        trainer.population.route(["student_1"]),
        pytest.raises(ValueError, match="PEFT's own adapters were turned on"),
    ):
        trainer.model(torch.tensor([[1, 2]]))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [4, 1])
def test_a_reward_function_that_asks_the_model_asks_the_base(make, rows):
    """Also where old log-probabilities of the members were computed before (`num_iterations`)."""
    asked = []

    def judge(completions, **columns):
        ids = torch.arange(rows * 3).view(rows, 3) % 50
        with torch.no_grad():
            own = trainer.model(ids).logits
            with trainer.population.routing.base():
                asked.append(torch.equal(own, trainer.model(ids).logits))
        return [float(len(one)) for one in completions]

    trainer = make(rewards=judge, num_iterations=2, max_steps=4)
    trainer.train()
    assert asked == [True, True]


@pytest.mark.slow
def test_a_checkpoint_is_saved_at_the_end_of_the_round(make, tmp_path):
    """One of within a round would play the round again when it is resumed."""

    def save(trainer, control):
        control.should_save = True

    trainer = make(at=At(save, 1, 4), num_iterations=2, max_steps=6, output_dir=str(tmp_path / "run"))
    trainer.train()
    found = sorted(name for name in os.listdir(tmp_path / "run") if name.startswith("checkpoint"))
    assert found == ["checkpoint-2", "checkpoint-4"]


@pytest.mark.parametrize("later", [False, True])
def test_who_saves_and_stops_within_a_round_gets_both_at_its_end(make, tmp_path, later):
    """Also in a callback that is added after ours."""

    def leave(trainer, control):
        control.should_save = control.should_training_stop = True

    at = At(leave, 3)
    settings = dict(num_iterations=2, max_steps=6, output_dir=str(tmp_path / "run"))
    trainer = make(**settings) if later else make(at=at, **settings)
    if later:
        at.trainer = trainer
        trainer.add_callback(at)
    trainer.train()
    assert trainer.state.global_step == 4 and (tmp_path / "run" / "checkpoint-4").is_dir()
    assert len(read_history(trainer.args.output_dir)) == 2


def test_completions_that_generate_shortens_are_recorded_as_they_are_learned(make):
    class Short(PopulationSelfPlayTrainer):
        def _generate(self, prompts):
            prompt_ids, completion_ids, mask, completions, logprobs, *rest = super()._generate(prompts)
            return prompt_ids, [ids[:3] for ids in completion_ids], mask, completions, logprobs, *rest

    trainer = make(cls=Short, max_steps=1)
    trainer.train()
    (summary,) = read_history(trainer.args.output_dir)
    assert all(0 < member.length <= 3 and member.tokens <= 3 * member.rows for member in summary.members)


def test_a_callback_may_empty_the_log(make):
    class Empties(TrainerCallback):
        def on_log(self, args, state, control, **kwargs):
            state.log_history.clear()

    make(callbacks=[Empties()], max_steps=1).train()


def test_settings_that_members_have_taken_over_are_not_changed_in_silence(make):
    trainer = make()
    trainer.args.learning_rate = 0.5
    with pytest.raises(ValueError, match=r"learning_rate was 0\.01 when the trainer was made.*now it is 0\.5"):
        trainer.train()
    trainer.args.learning_rate, trainer.args.num_generations = 0.01, 4
    with pytest.raises(ValueError, match=r"num_generations was 2 when the trainer was made.*now it is 4"):
        trainer.train()


def test_what_would_do_nothing_or_harm_is_refused_when_the_trainer_is_made(make):
    class Turns(PopulationSelfPlayTrainer):
        def _generate_single_turn(self, prompts):
            raise AssertionError

    scheduler = torch.optim.lr_scheduler.ConstantLR(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]))
    for given, words in (
        ({"cls": Turns}, "Turns._generate_single_turn would not be called"),
        ({"callbacks": [EarlyStoppingCallback()]}, "EarlyStoppingCallback follows metric_for_best_model"),
        ({"optimizers": (None, scheduler)}, "optimizers cannot be combined with a population"),
        ({"pad_to_multiple_of": 8}, "pad_to_multiple_of=8 is undone"),
    ):
        with pytest.raises(ValueError, match=words):
            make(**given)
    picture = [{"role": "user", "content": [{"type": "text", "text": "what?"}, {"type": "image", "text": None}]}]
    words = [{"role": "user", "content": [{"type": "text", "text": "say one"}]}]
    with pytest.raises(ValueError, match=r"the prompt of row 2 \(index 1\) has content that is not text"):
        make(dataset=Dataset.from_dict({"prompt": [words, picture, words]}))


def test_settings_that_arguments_make_useless_are_told(make, caplog):
    make(model_init_kwargs={"dtype": "bfloat16"}, lora_alpha=7)
    (told,) = [record.getMessage() for record in caplog.records if "Without effect" in record.getMessage()]
    assert "model_init_kwargs={'dtype': 'bfloat16'}: the model is made already" in told
    assert "lora_alpha=7: adapters are made by peft_config" in told and "lora_r" not in told
