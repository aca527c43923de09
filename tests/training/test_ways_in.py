"""Every setting means the same whichever way it comes: by constructor, recipe or command line, default or not."""

import json
import re
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import get_origin, get_type_hints

import pytest
import yaml
from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType
from trl import TrlParser

from trl_populora import train
from trl_populora.train import RunArguments
from trl_populora.training import PopulationSelfPlayConfig, config
from trl_populora.training.conform import alternatives, from_mapping
from trl_populora.training.nested import NESTED, TASKS


CLASSES = (RunArguments, PopulationSelfPlayConfig)
FIELDS = [(cls, field.name) for cls in CLASSES for field in fields(cls)]
NAMES = [name for _, name in FIELDS]
NESTS = NESTED | {f"task_kwargs.{name}": nested for name, nested in TASKS.items()}
INSIDE = [
    (path, nested.record, field.name)
    for path, nested in NESTS.items()
    for field in fields(nested.record)
    if field.name not in nested.without
]
ALWAYS = {"model_name_or_path": "base", "output_dir": "runs/x", "use_cpu": True, "bf16": False, "report_to": "none"}

# Values where the type alone does not say one that upstream takes.
VALUES = {
    "lr_scheduler_type": ["cosine"],
    "optim": ["sgd"],
    "logging_strategy": ["epoch"],
    "save_strategy": ["epoch"],
    "eval_strategy": ["epoch"],
    "hub_strategy": ["end"],
    "debug": [],
    "use_cpu": [True],
    "bf16": [False],
    "tf32": [False],
    "log_level": ["info"],
    "log_level_replica": ["info"],
    "train_sampling_strategy": ["sequential"],
    "vllm_mode": ["server"],
    "vllm_model_impl": ["transformers"],
    "pad_to_multiple_of": [8],
    "include_num_input_tokens_seen": [True],
    "num_generations": [4],
    "generation_batch_size": [64],
    "eval_steps": [5],
    "logging_steps": [1, 5, 0.25],
    "save_steps": [1, 5, 0.25],
    "dataloader_prefetch_factor": [],
    "table_every": [3],
    "warm_start_learning_rate": [1, 0.25],
    "accelerator_config": [{"split_batches": True}],
    "lora_target_modules": [["q_proj", "v_proj"], ["q_proj"], "q_proj", "all-linear", ["all-linear"]],
    "evolution_kwargs": [{"fraction": 0.5, "operators": ["gaussian"]}],
    "executor_kwargs": [{"workers": 3}],
    "reward_kwargs": [{"wrong": 0}],
    "task_kwargs": [{"code_f": {"num_inputs": 4}, "limits": {"max_float_digits": 0}}],
    "vllm_importance_sampling_clip_max": [2, 2.5],
    "vllm_importance_sampling_cap": [2, 2.5],
    "log_completions_hub_repo": [],
    "torch_compile_backend": ["eager"],
    "per_device_train_batch_size": [16],
    "vllm_importance_sampling_clip_min": [1, 0.25],
}

# Values of keys inside nested settings, where the type alone does not say one that its dataclass takes.
KEYS = {
    "evolution_kwargs.fraction": [0.5, 0.125],
    "evolution_kwargs.islands": [2],
    "evolution_kwargs.selection": ["tournament"],
    "evolution_kwargs.operators": [["gaussian", "clone"], ["svd_subspace"], "gaussian"],
    "evolution_kwargs.operator_parameters": [{"gaussian": {"eps": 1e-3}}],
    "executor_kwargs.memory_mb": [128],
    "executor_kwargs.result_bytes": [64],
    "executor_kwargs.source_bytes": [64],
}

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
    for name in ("check_choices", "check_population", "derive_batch", "check_supported"):
        monkeypatch.setattr(config, name, lambda args: None)


def construct(changes):
    given = ALWAYS | changes
    return [cls(**{f.name: given[f.name] for f in fields(cls) if f.name in given}) for cls in CLASSES]


def spell(value) -> list[str]:
    if isinstance(value, dict):
        return [json.dumps(value)]
    return [str(one) for one in (value if isinstance(value, list) else [value])]


def by_command_line(changes):
    return train.parse([word for name, value in (ALWAYS | changes).items() for word in (f"--{name}", *spell(value))])


def by_recipe(changes, folder):
    path = Path(folder, "recipe.yaml")
    path.write_text(yaml.safe_dump(ALWAYS | changes))
    return train.parse(["--config", str(path)])


def typed(value):
    """A value together with the types of all its parts."""
    if isinstance(value, dict):
        return {key: typed(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [typed(one) for one in value]
    return type(value), value


def everything(pair):
    return {f.name: typed(getattr(part, f.name)) for part in pair for f in fields(part)}


def values_for(cls, name):
    if name in VALUES:
        return VALUES[name]
    hint = get_type_hints(cls)[name]
    kinds = [get_origin(kind) or kind for kind in alternatives(hint) if kind is not NoneType]
    field = cls.__dataclass_fields__[name]
    default = field.default
    if bool in kinds:
        return [not default] if isinstance(default, bool) else [False, True]
    if dict in kinds:
        return [{"key": 1, "inner": {"small": 1e-3}}]
    if list in kinds:
        element = next(kind for kind in alternatives(hint) if get_origin(kind) is list).__args__[0]
        return [[1, 2.5]] if element is float else [["a", "b"], ["a"], "a"]
    return {int: [7], float: [5, 0.125], str: ["word"]}[kinds[0]]


def test_defaults_agree(tmp_path):
    assert everything(construct({})) == everything(by_command_line({})) == everything(by_recipe({}, tmp_path))
    plain = TrlParser(CLASSES).parse_args_and_config(
        [word for name, value in ALWAYS.items() for word in (f"--{name}", *spell(value))]
    )
    assert everything(plain) == everything(construct({}))  # also for those who write a script of their own
    assert construct({})[1].lora_target_modules == "all-linear"


@pytest.mark.parametrize("cls, name", [one for one in FIELDS if one[1] not in UPSTREAM], ids=lambda one: str(one))
def test_every_setting_comes_through(cls, name, unchecked, tmp_path):
    for value in values_for(cls, name):
        changes = {name: value}
        constructed = everything(construct(changes))
        assert everything(by_recipe(changes, tmp_path)) == constructed, value
        assert everything(by_command_line(changes)) == constructed, value


def nest(path, value):
    """`("a.b", 1)` to `{"a": {"b": 1}}`."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def value_at(args, path):
    name, *keys = path.split(".")
    value = getattr(args, name)
    for key in keys:
        value = value[key]
    return value


@pytest.mark.parametrize("prefix, record, key", INSIDE, ids=lambda one: one if isinstance(one, str) else "")
def test_every_key_inside_a_setting_comes_through(prefix, record, key, tmp_path):
    """And only it: the other keys keep their defaults."""
    path = f"{prefix}.{key}"
    default, arrived = construct({})[1], []
    for value in KEYS.get(path) or values_for(record, key):
        changes = nest(path, value)
        constructed = construct(changes)
        assert everything(by_recipe(changes, tmp_path)) == everything(constructed), value
        assert everything(by_command_line(changes)) == everything(constructed), value
        arrived.append(value_at(constructed[1], path))
        assert arrived[-1] in (value, [value])
        whole = dict(value_at(constructed[1], prefix))
        assert whole | {key: value_at(default, path)} == value_at(default, prefix)
    assert any(one != value_at(default, path) for one in arrived)


def test_every_dataclass_is_open_but_for_what_is_a_setting_itself():
    inherited = {field.name for field in fields(config.GRPOConfig)}
    for nested in NESTS.values():
        assert set(nested.without) <= {field.name for field in fields(nested.record)}
    assert set(NESTED) | {"task_kwargs"} == {name for name in NAMES if name.endswith("_kwargs")} - inherited
    assert set(KEYS) <= {f"{prefix}.{key}" for prefix, _, key in INSIDE}


def test_a_run_records_every_key_as_it_is(tmp_path):
    given = {"fraction": 0.5, "operators": ["gaussian"]}
    args = construct({"evolution_kwargs": given})[1]
    recorded = json.loads(json.dumps(args.settings()))
    for path, nested in NESTS.items():
        value = recorded
        for name in path.split("."):
            value = value.get(name, {})
        assert set(value) == {field.name for field in fields(nested.record)} - set(nested.without), path
        assert from_mapping(nested.record, value, setting=path, without=nested.without) == from_mapping(
            nested.record, given if path == "evolution_kwargs" else None, setting=path
        )
    assert recorded["evolution_kwargs"] == args.to_dict()["evolution_kwargs"] == args.evolution_kwargs
    assert given == {"fraction": 0.5, "operators": ["gaussian"]}  # what the caller gave stays the caller's
    again = construct({name: recorded[name] for name in (*NESTED, "task_kwargs")})[1]
    assert again.settings() == args.settings()


def test_the_docs_list_every_setting_and_key():
    inherited = {field.name for field in fields(config.GRPOConfig)}
    text = Path(__file__, "../../../docs/configuration.md").resolve().read_text()
    names = [name for name in NAMES if name not in inherited] + [key for _, _, key in INSIDE]
    assert [name for name in names if f"`{name}`" not in text] == []


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
        (
            {"evolution_kwargs": {"operator_parameters": {"gaussian": {"eps": "1e-3"}}}},
            {"evolution_kwargs": {"operator_parameters": {"gaussian": {"eps": 1e-3}}}},
        ),
        ({"executor_kwargs": {"cpu_seconds": "1e-1"}}, {"executor_kwargs": {"cpu_seconds": 0.1}}),
        ({"lr_scheduler_kwargs": {"min_lr": "1e-6"}}, {"min_lr": 1e-6}),
        ({"reward_weights": ["1e-1", 1]}, [0.1, 1.0]),
        ({"learning_rate": "1e-4"}, 1e-4),
        ({"save_total_limit": None}, None),
        ({"evolution_kwargs": None}, {}),
        ({"evolution_kwargs": {"max_age": None}}, {}),
        ({"seed_families": ("add", "each")}, ["add", "each"]),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_what_yaml_makes_of_numbers_is_mended(changes, wanted, tmp_path):
    (name, value), path = next(iter(changes.items())), tmp_path / "recipe.yaml"
    text = yaml.safe_dump(ALWAYS | {name: list(value) if isinstance(value, tuple) else value})
    path.write_text(re.sub(r"'(\de-\d)'", r"\1", text))  # 1e-3 as people write it, without quotes
    got = getattr(train.parse(["--config", str(path)])[1], name)
    if name in NESTED:
        wanted = getattr(construct(wanted)[1], name)
    assert typed(got) == typed(wanted)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"num_teachers": 2.0}, "num_teachers=2.0 must be a whole number"),
        ({"num_teachers": None}, "num_teachers=None must be a whole number"),
        ({"shared_member": 1}, "shared_member=1 must be true or false"),
        ({"pairing_floor": "0.1"}, "pairing_floor='0.1' must be a number"),
        ({"task_types": [1]}, "task_types=.1. must be a list"),
        ({"evolution_kwargs": {"max_age": "9"}}, "evolution_kwargs: max_age='9' must be a whole number, or unset"),
        ({"evolution_kwargs": {"elites": 1.5}}, "evolution_kwargs: elites=1.5 must be a whole number"),
        ({"evolution_kwargs": {"operators": [1]}}, "evolution_kwargs: operators=.1. must be a list"),
        ({"evolution_kwargs": "gaussian"}, "evolution_kwargs='gaussian' must be a mapping"),
        ({"evolution_kwargs": "[1]"}, "evolution_kwargs='.1.' must be a mapping"),
        ({"evolution_kwargs": {"fracton": 0.5}}, "Unknown key 'fracton' in evolution_kwargs. Did you mean 'fraction'"),
        ({"evolution_kwargs": {"interval": 3}}, "Unknown key 'interval' in evolution_kwargs"),
        (
            {"evolution_kwargs": {"operator_parameters": {"gaussian": 5}}},
            "operator_parameters.'gaussian'.=5 must be a",
        ),
        ({"executor_kwargs": {"accept_unsafe": 1}}, "executor_kwargs: accept_unsafe=1 must be true or false"),
        ({"executor_kwargs": {"worker": 1}}, "Unknown key 'worker' in executor_kwargs. Did you mean 'workers'"),
        ({"reward_kwargs": {"wrong": "0.5"}}, "reward_kwargs: wrong='0.5' must be a number"),
        ({"task_kwargs": {"code_g": {}}}, "Unknown key 'code_g' in task_kwargs. Did you mean 'code_"),
        ({"task_kwargs": {"code_o": {"num_inputs": 3}}}, "Unknown key 'num_inputs' in task_kwargs.code_o"),
        ({"task_kwargs": {"code_f": {"inputs": 3}}}, "'inputs' in task_kwargs.code_f. Did you mean 'num_inputs'"),
        ({"task_kwargs": {"code_f": 3}}, "task_kwargs.code_f=3 must be a mapping"),
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
