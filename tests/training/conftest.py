"""Tiny trainers: a random base of one layer, a handful of rows a round, CPU, no files unless asked for."""

import zlib

import pytest

from tests.tiny import lora, perturb, tiny_model, tiny_tokenizer
from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer
from trl_populora.training.supported import SELF_PLAY


def text_of(completion):
    return completion[0]["content"] if isinstance(completion, list) else completion


def hash_reward(completions, **kwargs):
    """A reward that varies with the text: a random base solves nothing, and zero advantages would prove nothing."""
    return [zlib.crc32(text_of(c).encode()) % 7 / 3 for c in completions]


class Altered:
    """A sampler whose completions are changed on the way: `change(completions, members)` returns others."""

    def __init__(self, sampler, change):
        self.sampler, self.change = sampler, change

    def __call__(self, prompts, members, **kwargs):
        return self.change(self.sampler(prompts, members, **kwargs), members)

    def __getattr__(self, name):
        return getattr(self.sampler, name)


def make_config(folder, **overrides) -> PopulationSelfPlayConfig:
    settings = dict(
        output_dir=str(folder / "run"),
        num_teachers=2,
        num_students=2,
        num_generations=2,
        prompts_per_teacher=1,
        per_device_train_batch_size=4,
        max_completion_length=8,
        prompt_style="compact",
        num_references=1,
        task_kwargs={"code_f": {"num_inputs": 4}},
        seed_tasks=8,
        max_steps=2,
        learning_rate=1e-2,
        evolution_interval=0,
        executor_kwargs={"workers": 1},
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        overwrite_output_dir=True,
    )
    if overrides.get("num_teachers") == 0:  # of self-play
        settings = {name: value for name, value in settings.items() if name not in SELF_PLAY}
    return PopulationSelfPlayConfig(**(settings | overrides))


def build_trainer(
    config, *, noise=0.1, rewards=hash_reward, model=None, peft_config=None, **arguments
) -> PopulationSelfPlayTrainer:
    trainer = PopulationSelfPlayTrainer(
        model or tiny_model(),
        reward_funcs=rewards,
        args=config,
        processing_class=tiny_tokenizer(),
        peft_config=peft_config or lora(),
        **arguments,
    )
    if noise:
        perturb(trainer.population, noise)
    return trainer


def finished(folder, *, noise=0.1, **settings) -> PopulationSelfPlayTrainer:
    """A trainer whose run in `folder` is over, for fixtures that several tests read."""
    trainer = build_trainer(make_config(folder, **settings), noise=noise)
    trainer.train()
    trainer.close()
    return trainer


ARGUMENTS = ("noise", "rewards", "on_round", "callbacks", "model", "peft_config", "sampler")


@pytest.fixture
def config(tmp_path):
    """`config(**settings)`: a small configuration in a folder of this test."""
    return lambda **overrides: make_config(tmp_path, **overrides)


@pytest.fixture
def make_trainer(config):
    """`make_trainer(**arguments, **settings)`: a trainer that is closed after the test."""
    trainers = []

    def make(**given):
        arguments = {name: given.pop(name) for name in ARGUMENTS if name in given}
        trainers.append(build_trainer(config(**given), **arguments))
        return trainers[-1]

    yield make
    for trainer in trainers:
        trainer.close()
