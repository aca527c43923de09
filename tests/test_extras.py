"""Packages that only some runs need: every extra exists, and a missing one is told before anything is loaded."""

import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.cli.conftest import write_recipe
from trl_populora import train
from trl_populora.extras import EXTRAS, MissingPackageError, is_installed, require


ROOT = Path(__file__).resolve().parents[1]


def test_every_package_is_in_its_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package, extra in EXTRAS.values():
        assert package in {Requirement(one).name for one in extras[extra]}


def test_a_missing_package_is_told_with_its_extra(monkeypatch):
    assert is_installed("matplotlib")
    require("matplotlib", user="nobody")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"a plot needs matplotlib.*pip install 'trl-populora\[report\]'"):
        require("matplotlib", user="a plot")


@pytest.mark.parametrize(
    "module, settings, told",
    [
        ("math_verify", {"reward_funcs": ["accuracy_reward"]}, "reward_funcs: accuracy_reward needs math-verify"),
        (
            "math_verify",
            {"reward_funcs": ["reasoning_accuracy_reward"]},
            "reasoning_accuracy_reward needs",
        ),
        ("math_verify", {"task_types": ["math"], "task_kwargs": {}}, "task type 'math' needs math-verify"),
        ("math_verify", {"final_exams": ["math_500"]}, "MathAccuracy needs math-verify"),
        ("math_verify", {"eval_strategy": "steps", "probe_kwargs": {"exams": ["aime24"]}}, "needs math-verify"),
        ("lightning", {"warm_start_steps": 2}, "warm_start_steps=2 needs lightning"),
        ("vllm", {"use_vllm": True}, "use_vllm=true needs vllm"),
        ("wandb", {"report_to": ["wandb"]}, "wandb is not installed. Run `pip install wandb`"),
    ],
)
def test_a_run_that_needs_a_missing_package_ends_before_its_base_is_looked_for(
    tmp_path, monkeypatch, capsys, module, settings, told
):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("trl_populora.integrations.base_models.resolve_base", lambda name: pytest.fail("looked for"))
    assert train.main(write_recipe(tmp_path, "some/base", **settings)) == 2
    error = capsys.readouterr().err
    assert told in error and "pip install 'trl-populora[" in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()
