"""What `GRPOTrainer` refuses is refused in the same words."""

import pytest
from datasets import Dataset
from peft import get_peft_model
from transformers import BitsAndBytesConfig

from tests.drop_in.pairs import CLASSES, PROMPTS, load, plain, settings
from tests.tiny import lora


BAD = {
    "no-reward": lambda f: dict(reward_funcs=None),
    "no-dataset": lambda f: dict(train_dataset=None),
    "dataset-of-lists": lambda f: dict(train_dataset=PROMPTS),
    "tokenizer": lambda f: dict(processing_class="tokenizer"),
    "peft-twice": lambda f: dict(model=get_peft_model(load(f.base), lora()), peft_config=lora()),
    "peft-dict": lambda f: dict(peft_config={"policy": lora()}),
    "lora-on-head": lambda f: dict(model=f.untied, peft_config=lora(target_modules=["lm_head"])),
    "reward-weights": lambda f: dict(args=settings(reward_weights=[1.0, 2.0])),
    "reward-tokenizers": lambda f: dict(reward_processing_classes=[None, None]),
    "sync-without-beta": lambda f: dict(args=settings(sync_ref_model=True)),
    "quantization-twice": lambda f: dict(
        args=settings(model_init_kwargs={"quantization_config": BitsAndBytesConfig()}),
        quantization_config=BitsAndBytesConfig(),
    ),
    "eval-missing": lambda f: dict(args=settings(eval_strategy="steps", eval_steps=1)),
    "unknown": lambda f: dict(teacher="strict"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_are_grpo_trainers(case, folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raised = []
    for trainer_class in CLASSES:
        with pytest.raises((TypeError, ValueError)) as info:
            trainer_class(**plain(folders) | BAD[case](folders))
        raised.append((type(info.value), str(info.value).replace("PopulationSelfPlay", "GRPO")))
    assert raised[0] == raised[1]


def test_a_reward_of_the_wrong_length_is_refused_alike(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for trainer_class in CLASSES:
        trainer = trainer_class(**plain(folders) | dict(reward_funcs=lambda completions, **kwargs: [1.0]))
        with pytest.raises(ValueError, match="returned 1 rewards, but 4 were expected"):
            trainer.train()


def test_a_dataset_without_prompts_is_refused_alike(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raised = []
    for trainer_class in CLASSES:
        trainer = trainer_class(**plain(folders) | dict(train_dataset=Dataset.from_dict({"question": PROMPTS})))
        with pytest.raises((KeyError, ValueError)) as info:
            trainer.train()
        raised.append((type(info.value), str(info.value)))
    assert raised[0] == raised[1]
