"""The three ways in which settings come: by constructor, recipe or command line."""

import json
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import get_origin, get_type_hints

import pytest
import yaml

from trl_populora import train
from trl_populora.settings import alternatives
from trl_populora.train import RunArguments
from trl_populora.training import PopulationSelfPlayConfig


CLASSES = (RunArguments, PopulationSelfPlayConfig)
FIELDS = [(cls, field.name) for cls in CLASSES for field in fields(cls)]
NAMES = [name for _, name in FIELDS]
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
    "initial_adapters": [{"student_0": "user/repo/student_1"}, "user/repo"],
    "evolution_kwargs": [{"fraction": 0.5, "operators": ["gaussian"]}],
    "executor_kwargs": [{"workers": 3}],
    "probe_kwargs": [{"founders": 4, "exams": ["held_out"]}],
    "reward_kwargs": [{"wrong": 0}],
    "task_types": [["code_o", "code_i"], ["code_o"], "code_f"],
    "task_kwargs": [{"code_f": {"num_inputs": 4}, "code_o": {"max_float_digits": 0}}],
    "vllm_importance_sampling_clip_max": [2, 2.5],
    "vllm_importance_sampling_cap": [2, 2.5],
    "log_completions_hub_repo": [],
    "torch_compile_backend": ["eager"],
    "per_device_train_batch_size": [16],
    "vllm_importance_sampling_clip_min": [1, 0.25],
}


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


def first_of_each_kind(cases):
    """Cases that end with a dataclass and its field: those whose type has come before are slow."""
    seen, marked = set(), []
    for case in cases:
        *_, cls, name = case
        kind = repr(get_type_hints(cls)[name])
        marked.append(pytest.param(*case, marks=pytest.mark.slow) if kind in seen else case)
        seen.add(kind)
    return marked


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
