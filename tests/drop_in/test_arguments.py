"""Every argument of the constructor, in every form that `GRPOTrainer` documents: the same run to the bit."""

import inspect

import pytest
import torch
from datasets import DatasetDict, IterableDataset
from peft import IA3Config, get_peft_model
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BitsAndBytesConfig,
    TrainerCallback,
)
from trl import GRPOTrainer

from tests.drop_in.multi_turn import bonuses, rollout
from tests.drop_in.pairs import CLASSES, PROMPTS, chats, letters, load, plain, prompts, settings, slow_but
from tests.tiny import lora, tiny_tokenizer


async def letters_later(completions, **kwargs):
    return letters(completions)


def sometimes(completions, **kwargs):
    return [None if i % 4 == 0 else reward for i, reward in enumerate(letters(completions))]


def by_column(completions, weight, log_extra, log_metric, trainer_state, **kwargs):
    log_extra("weight", weight)
    log_metric("weight", sum(weight) / len(weight))
    return [w * r + trainer_state.global_step for w, r in zip(weight, letters(completions), strict=True)]


class Judge(nn.Module):
    """A reward module that is no `PreTrainedModel`, as a compiled model is none."""

    def __init__(self, folder: str):
        super().__init__()
        self.model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
        self.config = self.model.config

    def forward(self, **inputs):
        return self.model(**inputs)


class Recorder(TrainerCallback):
    """Every event that reaches a callback, with what is handed over."""

    def __init__(self):
        self.events = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return lambda args, state, control, **given: self.events.append((name, state.global_step, sorted(given)))
        return super().__getattribute__(name)


def judge(folders):
    return AutoModelForSequenceClassification.from_pretrained(folders.reward, num_labels=1)


def stream(texts=PROMPTS):
    return IterableDataset.from_generator(lambda: ({"prompt": text} for text in texts))


def evaluated(**overrides):
    return settings(eval_strategy="steps", eval_steps=1, **overrides)


def own_optimizer(folders, *, schedule: bool):
    model = load(folders.base)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step) if schedule else None
    return dict(model=model, optimizers=(optimizer, scheduler))


# What differs from `plain` in each case; a value that is a function gets the folders.
CASES = {
    "model-path": lambda f: dict(model=f.base),
    "model-object": lambda f: dict(model=load(f.base)),
    "model-peft": lambda f: dict(model=get_peft_model(load(f.base), lora())),
    "reward-list": lambda f: dict(reward_funcs=[letters, lambda completions, **kw: [len(c) % 3 for c in completions]]),
    "reward-async": lambda f: dict(reward_funcs=letters_later),
    "reward-mixed": lambda f: dict(reward_funcs=[letters, letters_later, f.reward]),
    "reward-string": lambda f: dict(reward_funcs=f.reward),
    "reward-model": lambda f: dict(reward_funcs=judge(f), reward_processing_classes=tiny_tokenizer()),
    "reward-module": lambda f: dict(
        reward_funcs=[Judge(f.reward), letters], reward_processing_classes=[tiny_tokenizer(), None]
    ),
    "reward-model-chat": lambda f: dict(
        reward_funcs=[judge(f)],
        reward_processing_classes=[AutoTokenizer.from_pretrained(f.reward)],
        train_dataset=chats(),
    ),
    "reward-none": lambda f: dict(reward_funcs=[letters, sometimes]),
    "reward-none-alone": lambda f: dict(reward_funcs=sometimes),
    "reward-columns": lambda f: dict(reward_funcs=by_column, train_dataset=prompts(weight=list(range(8)))),
    "dataset-chat": lambda f: dict(train_dataset=chats()),
    "dataset-stream": lambda f: dict(train_dataset=stream()),
    "eval-one": lambda f: dict(args=evaluated(), eval_dataset=prompts()),
    "eval-dict": lambda f: dict(args=evaluated(), eval_dataset={"a": prompts(), "b": chats()}),
    "eval-dataset-dict": lambda f: dict(args=evaluated(), eval_dataset=DatasetDict(a=prompts(), b=prompts())),
    "eval-stream": lambda f: dict(args=evaluated(), eval_dataset=stream(PROMPTS[:2])),
    "tokenizer": lambda f: dict(model=load(f.base), processing_class=tiny_tokenizer()),
    "callbacks": lambda f: dict(callbacks=[Recorder()]),
    "callback-class": lambda f: dict(callbacks=[Recorder]),
    "optimizer": lambda f: own_optimizer(f, schedule=False),
    "optimizer-schedule": lambda f: own_optimizer(f, schedule=True),
    "quantization-ignored": lambda f: dict(
        model=load(f.base), quantization_config=BitsAndBytesConfig(load_in_4bit=True)
    ),
    "lora": lambda f: dict(peft_config=lora()),
    "ia3": lambda f: dict(
        peft_config=IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"])
    ),
    "rollout": lambda f: dict(rollout_func=rollout, reward_funcs=[bonuses, letters]),
}


FAST = ("model-peft", "reward-mixed")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", slow_but(*FAST, of=CASES))
def test_argument(case, pair, folders):
    ours, theirs = pair(lambda: plain(folders) | CASES[case](folders))
    assert recorded(ours) == recorded(theirs) and bool(recorded(ours)) == case.startswith("callback")


def recorded(run) -> list:
    return [c.events for c in run.trainer.callback_handler.callbacks if isinstance(c, Recorder)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_all_by_position(pair, folders):
    """All fourteen in GRPOTrainer's order, none of them at its default where that is possible."""

    def arguments():
        given = dict(
            model=load(folders.base),
            reward_funcs=[letters, bonuses],
            args=evaluated(),
            train_dataset=prompts(),
            eval_dataset=prompts(),
            processing_class=tiny_tokenizer(),
            reward_processing_classes=[None, None],
            callbacks=[Recorder()],
            optimizers=(None, None),
            quantization_config=None,
            peft_config=lora(),
            tools=None,
            rollout_func=rollout,
            environment_factory=None,
        )
        assert list(given) == list(inspect.signature(GRPOTrainer).parameters)
        return dict(positional=tuple(given.values()))

    pair(arguments)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_without_args(pair, folders, monkeypatch):
    """The default configuration: bf16 autocast, gradient checkpointing, groups of eight, a checkpoint at the end."""
    monkeypatch.setattr("transformers.training_args.is_torch_bf16_gpu_available", lambda: True)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    ours, _ = pair(
        lambda: dict(
            model=folders.base, reward_funcs=letters, train_dataset=prompts().select([3]), rollout_func=rollout
        )
    )
    assert ours.trainer.args.output_dir.endswith("-GRPO") and ours.trainer.args.num_generations == 8


def test_quantization_reaches_the_loader(folders, monkeypatch):
    """Quantised weights need a GPU; what is asked of the loader does not."""
    import trl.trainer.grpo_trainer as trl_module

    asked, create = [], trl_module.create_model_from_path

    def recording(model, **kwargs):
        asked.append((model, kwargs.pop("quantization_config"), kwargs))
        return create(model, **kwargs)

    monkeypatch.setattr(trl_module, "create_model_from_path", recording)
    wanted = BitsAndBytesConfig(load_in_4bit=True)
    for trainer_class in CLASSES:
        trainer_class(**plain(folders), quantization_config=wanted, peft_config=lora())
    assert asked[0] == asked[1] and asked[0][1] is wanted


def test_every_argument_has_a_case(folders):
    apart = {"tools", "environment_factory"}  # test_multi_turn.py
    exercised = set(plain(folders)).union(*(case(folders) for case in CASES.values()))
    assert exercised | apart == set(inspect.signature(GRPOTrainer).parameters)
