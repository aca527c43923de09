"""Rules about the package as a whole: what it costs to import, who may import what, and that its facts agree."""

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import FunctionType

import pytest

import trl_populora


ROOT = Path(__file__).resolve().parents[1]


ROOMS = ["executor", "run_files.run", "tasks", "self_play", "diagnostics", "testing", "hub"]
STATEMENTS = [
    "import trl_populora",
    *(f"import trl_populora.{room}" for room in ROOMS),
    "import trl_populora.cli; trl_populora.cli.build_parser()",
]
SCRIPT = f"""
import json, sys
found = {{}}
for statement in {STATEMENTS!r}:
    exec(statement)
    found[statement] = sorted({{name.split('.')[0] for name in sys.modules}})
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """Top-level modules that a fresh interpreter has loaded after each statement and those before it."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT, check=True)
    return {statement: set(names) for statement, names in json.loads(done.stdout).items()}


def test_import_is_lazy(imported):
    heavy = {"torch", "numpy", "trl", "transformers", "peft", "datasets", "rich", "matplotlib", "scipy"}
    assert not heavy & imported["import trl_populora"]


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_without_torch(imported, room):
    assert not {"torch", "transformers", "trl"} & imported[f"import trl_populora.{room}"]


def test_the_command_answers_without_torch(imported):
    assert "torch" not in imported[STATEMENTS[-1]]


def test_every_public_name_resolves():
    kinds = {"OPERATORS": dict, "__version__": str, "make_task_types": FunctionType}  # all others are classes
    for name in trl_populora.__all__:
        found = getattr(trl_populora, name)
        assert isinstance(found, kinds.get(name, type)), name
        assert getattr(found, "__name__", name) == name
    assert set(trl_populora.__all__) <= set(dir(trl_populora))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = trl_populora.Nothing


@pytest.mark.slow
def test_import_contracts_hold():
    command = [str(Path(sys.executable).with_name("lint-imports")), "--config", "setup.cfg", "--no-cache", "--no-logo"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_version_is_stated_once_and_agrees():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == trl_populora.__version__


def test_constraints_admit_what_pyproject_asks_for():
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE))
    pins = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra, requirements in project["optional-dependencies"].items():
        wanted += requirements if extra != "vllm" else []
    from packaging.requirements import Requirement

    for requirement in map(Requirement, wanted):
        name = requirement.name.lower().replace("_", "-")
        if name == "torch":  # not pinned there: its builds differ by machine
            continue
        assert name in pins, f"{name} is not in constraints.txt"
        assert requirement.specifier.contains(pins[name]), f"{name}=={pins[name]} is not {requirement}"


def test_installed_trl_is_in_the_supported_range():
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = next(one for one in map(Requirement, project["dependencies"]) if one.name == "trl")
    assert wanted.specifier.contains(metadata.version("trl"))


def test_no_pattern_that_older_python_reads_wrongly():
    """Before 3.11.5, a possessive repetition of a group can match wrongly (gh-106052). Debian 12 has 3.11.2."""
    wrong = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+")
    assert wrong.search(r"(?:a|b)*+") and not wrong.search(r"(?>(?:a|b)*)c++")
    for path in [*(ROOT / "trl_populora").rglob("*.py"), *(ROOT / "recipes").rglob("*.py")]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not wrong.search(line), f"{path}:{number}: use an atomic group, (?>...)"
