"""The recipes that come with the package: all are built in, listed and copied, and copies work where they are."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from trl_populora import cli
from trl_populora.shipped import RECIPES, copy_recipes, list_recipes, shipped_base


ROOT = Path(__file__).resolve().parents[1]


def files(folder: Path) -> set[Path]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder) for path in found}


def test_every_file_of_the_recipes_is_built_into_the_package():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = settings["package-data"]["trl_populora.recipes"]
    assert RECIPES == ROOT / "recipes"
    matched = {path.relative_to(RECIPES) for pattern in patterns for path in RECIPES.glob(pattern)}
    assert {path for path in matched if "__pycache__" not in path.parts} == files(RECIPES)


def test_the_list_has_a_line_for_each(capsys):
    assert cli.main(["recipes"]) == 0
    shown = capsys.readouterr().out.splitlines()
    recipes = sorted(path for path in files(RECIPES) if path.suffix == ".yaml")
    assert [line.split()[0] for line in shown[: len(recipes)]] == [str(path) for path in recipes]
    assert all(len(summary) > 20 and summary.endswith(".") for summary in list_recipes().values())


@pytest.mark.parametrize(
    "name, brought",
    [
        ("tiny", {"tiny"}),
        ("chains/", {"chains", "tiny/make/small_llama.py"}),
        ("experiments/tiny_rewards.yaml", {"experiments/tiny_rewards.yaml", "tiny/4t4s.yaml", "tiny/base"}),
        ("qwen2.5-7b/math.yaml", {"qwen2.5-7b/math.yaml", "accelerate_configs/multi_gpu.yaml"}),
        (
            "chains/1t1s.yaml",
            {"chains", "tiny/make/small_llama.py"},
        ),  # a module that it names speaks of the whole folder
    ],
)
def test_a_copy_brings_what_it_names(tmp_path, name, brought):
    written, kept = copy_recipes(name, tmp_path)
    copied = files(tmp_path / "recipes")
    assert {path.relative_to(tmp_path / "recipes") for path in written} == copied and not kept
    wanted = {one for one in files(RECIPES) for name in brought if (RECIPES / one).is_relative_to(RECIPES / name)}
    assert copied == wanted
    assert all((tmp_path / "recipes" / one).read_bytes() == (RECIPES / one).read_bytes() for one in copied)


def test_a_copy_replaces_nothing(tmp_path):
    copy_recipes("tiny", tmp_path)
    mine = tmp_path / "recipes/tiny/4t4s.yaml"
    mine.write_text("mine: 1")
    with pytest.raises(ValueError, match="is there already"):
        copy_recipes("tiny", tmp_path)
    with pytest.raises(ValueError, match="is there already"):
        copy_recipes("tiny/4t4s.yaml", tmp_path)
    _, kept = copy_recipes("experiments", tmp_path)
    assert mine in kept and mine.read_text() == "mine: 1"


@pytest.mark.parametrize("name", ["nope", "", ".", "..", "../docs", "/etc/passwd"])
def test_other_names_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="There is no recipe"):
        copy_recipes(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_wrong_name_is_told_with_the_nearest(tmp_path, capsys):
    assert cli.main(["recipes", "copy", "tiny/4t4", str(tmp_path)]) == 2
    assert "Did you mean 'tiny/4t4s.yaml'" in capsys.readouterr().err
    assert cli.main(["recipes", "copy"]) == 2
    assert "name what to copy" in capsys.readouterr().err
    assert cli.main(["recipes", "copy", "tiny/4t4s.yaml", str(tmp_path)]) == 0
    assert f"cd {tmp_path}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("recipes/chains/demo.yaml", "chains/demo.yaml"),
        ("chains/demo.yml", "chains/demo.yaml"),
        ("/somewhere/recipes/tiny/4t4z.yaml", "tiny/4t4s.yaml"),
        ("mine.yaml", None),
    ],
)
def test_a_recipe_that_is_not_here_is_in_the_package(tmp_path, monkeypatch, capsys, path, near):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "--config", path]) == 2
    hint = "" if near is None else f" `populora recipes copy {near}` puts the package's {near} here."
    assert capsys.readouterr().err == f"populora: error: {path} cannot be read: No such file or directory.{hint}\n"


@pytest.mark.slow
def test_paths_and_modules_work_in_a_copy(tmp_path):
    copy_recipes("chains", tmp_path)
    recipe = yaml.safe_load((tmp_path / "recipes/chains/1t1s.yaml").read_text())
    assert (tmp_path / recipe["model_name_or_path"] / "config.json").is_file()
    script = "import recipes.chains.exams as exams; print(exams.__file__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == str(tmp_path / "recipes/chains/exams.py"), done.stderr


def test_a_command_finds_modules_of_the_working_folder(tmp_path):
    (tmp_path / "mine.py").write_text("NAME = 'found'")
    script = "from trl_populora import cli; cli.main(['recipes']); import mine; print(mine.NAME)"
    without_the_folder = [sys.executable, "-P", "-c", script]  # as a console script is started
    done = subprocess.run(
        without_the_folder, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.stdout.splitlines()[-1:] == ["found"], done.stderr


@pytest.mark.slow
def test_a_wheel_brings_the_command_and_the_recipes_and_trains(tmp_path):
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for name in ("README.md", "LICENSE", "pyproject.toml", "setup.cfg", "setup.py"):
        shutil.copy(ROOT / name, source)
    for name in ("trl_populora", "recipes"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))

    def pip(*words):
        command = [sys.executable, "-m", "pip", *words[:1], "--quiet", "--no-index", "--no-deps", *words[1:]]
        subprocess.run(command, check=True, cwd=tmp_path)

    pip("wheel", "--no-build-isolation", "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("trl_populora-*.whl")
    pip("install", "--target", site, wheel)
    assert files(site / "trl_populora/recipes") == files(RECIPES)

    def populora(*words):
        command, where = [site / "bin/populora", *words], {**os.environ, "PYTHONPATH": str(site)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=where)
        assert done.returncode == 0 and "arning" not in done.stderr, done.stderr
        return done.stdout

    assert "tiny/4t4s.yaml" in populora("recipes")
    populora("recipes", "copy", "chains/demo.yaml")
    populora("train", "--config", "recipes/chains/demo.yaml", "--max_steps", "1")
    adapter = json.loads((tmp_path / "runs/demo/student_0/adapter_config.json").read_text())
    assert len(adapter["target_modules"]) == 7  # all kinds of linear layers
    assert {one.stem for one in (site / "bin").iterdir()} == {"populora", "trl-populora"}


def test_a_base_of_the_recipes_is_known_in_a_copy_unless_it_was_changed(tmp_path):
    copy = tmp_path / "recipes" / "tiny" / "base"
    copy.mkdir(parents=True)
    assert shipped_base(str(copy)) is None  # an empty folder of that name
    shutil.copytree(RECIPES / "tiny/base", copy, dirs_exist_ok=True)
    assert shipped_base(str(copy)) == shipped_base("recipes/tiny/base") == "recipes/tiny/base"
    (copy / "model.safetensors").write_bytes(b"trained on")
    assert shipped_base(str(copy)) is shipped_base("recipes/tiny/other") is shipped_base("tiny") is None
