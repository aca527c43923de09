"""Every setting means the same whichever way it comes: by constructor, recipe or command line, default or not."""

import json
import re
from dataclasses import fields

import pytest
import yaml
from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType
from trl import TrlParser

from tests.training.ways_in import (
    ALWAYS,
    CLASSES,
    FIELDS,
    NAMES,
    VALUES,
    by_command_line,
    by_recipe,
    construct,
    everything,
    first_of_each_kind,
    spell,
    typed,
    values_for,
)
from trl_populora import train
from trl_populora.training import checks, config


# Upstream declares these so that the three ways cannot agree on every value.
UPSTREAM = {
    "debug": "HfArgumentParser loses its default, which TrainingArguments mends; values pass as text only from Python",
    "include_num_input_tokens_seen": "a union of str and bool: the parser takes booleans only",
    "report_to": "the parser takes one name; a recipe and the constructor take a list too",
    "optim_target_modules": "the parser takes one name; a recipe and the constructor take a list too",
    "trackio_static_space_id": "Literal[False] has no spelling on the command line",
    "parallelism_config": "an object of accelerate, for the constructor only",
    "liger_kernel_config": "the parser calls dict(text)",
    "fsdp": "refused with a population; TrainingArguments wants a device map for it",
    "fsdp_config": "refused with a population without fsdp",
    "deepspeed": "refused with a population, and reads a file",
    "auto_find_batch_size": "refused by GRPOConfig",
    "fp16": "refused with a population",
    "fp16_full_eval": "contradicts bf16_full_eval",
    "dataloader_prefetch_factor": "wants dataloader_num_workers beside it",
    "log_completions_hub_repo": "wants log_completions beside it",
    "dataloader_pin_memory": "TrainingArguments sets it to False wherever use_cpu is true",
    "ddp_backend": "TrainingArguments wants a process group for it",
    "local_rank": "set by the launcher",
    "load_best_model_at_end": "refused with a population",
    "dataloader_multiprocessing_context": "wants dataloader_num_workers beside it",
}


@pytest.fixture
def unchecked(monkeypatch):
    """Transport only: what values must satisfy together is tested in test_config."""
    for name in ("check_choices", "check_population", "derive_batch", "check_processes", "check_supported"):
        monkeypatch.setattr(config, name, lambda *args: None)
    for name in ("check_choices", "check_numbers"):  # of recipe_checks
        monkeypatch.setattr(checks, name, lambda args: None)


def test_defaults_agree(tmp_path):
    assert everything(construct({})) == everything(by_command_line({})) == everything(by_recipe({}, tmp_path))
    plain = TrlParser(CLASSES).parse_args_and_config(
        [word for name, value in ALWAYS.items() for word in (f"--{name}", *spell(value))]
    )
    assert everything(plain) == everything(construct({}))  # also for those who write a script of their own
    assert construct({})[1].lora_target_modules == "all-linear"


@pytest.mark.parametrize(
    "cls, name", first_of_each_kind(one for one in FIELDS if one[1] not in UPSTREAM), ids=lambda one: str(one)
)
def test_every_setting_comes_through(cls, name, unchecked, tmp_path):
    for value in values_for(cls, name):
        changes = {name: value}
        constructed = everything(construct(changes))
        assert everything(by_recipe(changes, tmp_path)) == constructed, value
        assert everything(by_command_line(changes)) == constructed, value


@pytest.mark.slow
def test_a_value_arrives_at_all(unchecked):
    """The ways could agree on losing a value."""
    lost = []
    for cls, name in FIELDS:
        default = everything(construct({}))[name]
        if name in UPSTREAM or name in ALWAYS:
            continue
        if all(everything(construct({name: value}))[name] == default for value in values_for(cls, name)):
            lost.append(name)
    assert lost == []


def test_exceptions_are_fields_and_none_is_ours():
    inherited = {field.name for field in fields(config.GRPOConfig)}
    assert set(UPSTREAM) <= inherited and set(VALUES) <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    "changes, wanted",
    [
        ({"lr_scheduler_kwargs": {"min_lr": "1e-6"}}, {"min_lr": 1e-6}),
        ({"reward_weights": ["1e-1", 1]}, [0.1, 1.0]),
        ({"learning_rate": "1e-4"}, 1e-4),
        ({"save_total_limit": None}, None),
        ({"seed_families": ("add", "each")}, ["add", "each"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_yaml_makes_of_numbers_is_mended(changes, wanted, tmp_path):
    (name, value), path = next(iter(changes.items())), tmp_path / "recipe.yaml"
    text = yaml.safe_dump(ALWAYS | {name: list(value) if isinstance(value, tuple) else value})
    path.write_text(re.sub(r"'(\de-\d)'", r"\1", text))  # 1e-3 as people write it, without quotes
    got = getattr(train.parse(["--config", str(path)])[1], name)
    assert typed(got) == typed(wanted)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"num_teachers": 2.0}, "num_teachers=2.0 must be a whole number"),
        ({"num_teachers": None}, "num_teachers=None must be a whole number"),
        ({"shared_member": 1}, "shared_member=1 must be true or false"),
        ({"pairing_floor": "0.1"}, "pairing_floor='0.1' must be a number"),
        ({"task_types": [1]}, "task_types=.1. must be a list"),
        ({"lora_target_modules": []}, "lora_target_modules"),
        ({"lora_target_modules": [".*q_proj"]}, "give the trainer a peft_config"),
        ({"lora_target_modules": ["all-linear", "q_proj"]}, "all-linear"),
    ],
)
def test_what_fits_no_hint_is_refused_at_construction(changes, words):
    with pytest.raises(ValueError, match=words):
        construct(changes)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"lr_scheduler_type": None}, "lr_scheduler_type is empty in the recipe"),
        ({"pairing": None}, "pairing is empty in the recipe"),
        ({"learning_rate": None}, "learning_rate is empty in the recipe"),
        ({"output_dir": 2024}, "output_dir=2024 in the recipe must be text"),
    ],
)
def test_what_no_command_line_could_give_is_refused_in_a_recipe(changes, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        by_recipe(changes, tmp_path)


def test_enumerations_are_what_transformers_makes_of_them(tmp_path):
    for args in (construct({})[1], by_recipe({}, tmp_path)[1], by_command_line({})[1]):
        assert isinstance(args.lr_scheduler_type, SchedulerType)
        assert isinstance(args.save_strategy, SaveStrategy) and isinstance(args.logging_strategy, IntervalStrategy)


LINEARS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "change, trained",
    [
        ({}, LINEARS),
        ({"lora_target_modules": "all-linear"}, LINEARS),
        ({"lora_target_modules": ["q_proj", "v_proj"]}, {"q_proj", "v_proj"}),
    ],
    ids=["default", "all-linear", "names"],
)
@pytest.mark.parametrize("way", ["recipe", "command line"])
def test_a_run_trains_the_layers_it_says(change, trained, way, tiny_model, tmp_path):
    small = {"model_name_or_path": tiny_model, "output_dir": str(tmp_path / "run"), "num_teachers": 1, "lora_r": 2}
    small |= {"num_students": 1, "seed_tasks": 2, "executor_kwargs": {"workers": 1}, "evolution_interval": 0}
    small |= {"prompt_style": "compact"} | change
    run, args = by_recipe(small, tmp_path) if way == "recipe" else by_command_line(small)
    train.prepare_output(args)
    _, trainer = train.build(run, args)
    try:
        trainer.save_model()
        for member in ("teacher_0", "student_0"):
            saved = json.loads((tmp_path / "run" / member / "adapter_config.json").read_text())
            assert {name.rsplit(".", 1)[-1] for name in saved["target_modules"]} == trained
        names = {name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}
        assert len(names) == 2 * 2 * 2 * len(trained)  # members, A and B, layers of the base
    finally:
        trainer.close()
