"""Settings that are mappings: every key comes through each way, is checked by its dataclass, and is recorded."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from tests.training.ways_in import (
    ALWAYS,
    NAMES,
    by_command_line,
    by_recipe,
    construct,
    everything,
    first_of_each_kind,
    typed,
    values_for,
)
from trl_populora import train
from trl_populora.settings import from_mapping
from trl_populora.tasks import DEFAULT_TYPES, task_type_class
from trl_populora.training import config
from trl_populora.training.nested import COMMON, NESTED, Nested


NESTS = NESTED | {f"task_kwargs.{name}": Nested(task_type_class(name), without=COMMON) for name in DEFAULT_TYPES}
INSIDE = [
    (path, nested.record, field.name)
    for path, nested in NESTS.items()
    for field in fields(nested.record)
    if field.name not in nested.without
]

# Values of keys inside nested settings, where the type alone does not say one that its dataclass takes.
KEYS = {
    "evolution_kwargs.elites": [2],
    "evolution_kwargs.fraction": [0.5, 0.125],
    "evolution_kwargs.islands": [2],
    "evolution_kwargs.selection": ["tournament"],
    "evolution_kwargs.operators": [["gaussian", "clone"], ["svd_subspace"], "gaussian"],
    "evolution_kwargs.operator_parameters": [{"gaussian": {"eps": 1e-3}}],
    "executor_kwargs.memory_mb": [128],
    "executor_kwargs.result_bytes": [64],
    "executor_kwargs.source_bytes": [64],
    "probe_kwargs.exams": [["held_out_easy", "gsm8k[:8]"], ["held_out"], "held_out", []],
}


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


@pytest.mark.parametrize(
    "prefix, record, key", first_of_each_kind(INSIDE), ids=lambda one: one if isinstance(one, str) else ""
)
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
    assert (
        set(NESTED) | {"task_kwargs", "sampler_kwargs", "vllm_engine_kwargs"}
        == {name for name in NAMES if name.endswith("_kwargs")} - inherited
    )
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
    assert type(args.settings()["eval_strategy"]) is str  # plain data, for the record and the card


def test_the_docs_list_every_setting_and_key():
    inherited = {field.name for field in fields(config.GRPOConfig)}
    text = Path(__file__, "../../../docs/configuration.md").resolve().read_text()
    names = [name for name in NAMES if name not in inherited] + [key for _, _, key in INSIDE]
    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    "text, wanted",
    [
        (
            "evolution_kwargs: {operator_parameters: {gaussian: {eps: 1e-3}}}",
            {"operator_parameters": {"gaussian": {"eps": 1e-3}}},
        ),
        ("executor_kwargs: {cpu_seconds: 1e-1}", {"cpu_seconds": 0.1}),
        ("evolution_kwargs: {max_age:}", {"max_age": None}),
        ("evolution_kwargs:", {}),
        ("reward_kwargs: {}", {}),
    ],
)
def test_what_yaml_makes_of_values_is_mended(text, wanted, tmp_path):
    path, name = tmp_path / "recipe.yaml", text.split(":")[0]
    path.write_text(yaml.safe_dump(ALWAYS) + text + "\n")
    got = getattr(train.parse(["--config", str(path)])[1], name)
    assert typed(got) == typed(getattr(construct({})[1], name) | wanted)


@pytest.mark.parametrize(
    "changes, words",
    [
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
        (
            {"task_kwargs": {"letters": {}}, "task_types": ["code_o"]},
            "need that type among task_types=.'code_o'.: add it",
        ),
        ({"task_kwargs": {"code_o": {"num_inputs": 3}}}, "Unknown key 'num_inputs' in task_kwargs.code_o"),
        ({"task_kwargs": {"code_f": {"inputs": 3}}}, "'inputs' in task_kwargs.code_f. Did you mean 'num_inputs'"),
        ({"task_kwargs": {"code_f": 3}}, "task_kwargs.code_f=3 must be a mapping"),
        ({"task_kwargs": {"code_f": None}}, "task_kwargs.code_f is null"),
    ],
)
def test_what_its_dataclass_does_not_know_is_refused(changes, words, tmp_path):
    for way in (construct, by_command_line, lambda given: by_recipe(given, tmp_path)):
        with pytest.raises(ValueError, match=words):
            way(changes)
