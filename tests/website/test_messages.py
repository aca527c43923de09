"""The page of messages quotes what the source says, and what is raised."""

import ast
import os
import re
from functools import cache
from pathlib import Path

import pytest

from trl_populora import extras
from trl_populora.evaluation.exams import make_exam
from trl_populora.extras import require
from trl_populora.integrations.base_models import resolve_base
from trl_populora.integrations.user_data import load_prompts, load_rewards
from trl_populora.recipe import RunArguments, parse
from trl_populora.recipe_checks import check_call
from trl_populora.run_files.checkpoint import find_checkpoint
from trl_populora.training import PopulationSelfPlayConfig, trackers


ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "trouble" / "messages.md"
HOLE = "\0"
FOREIGN = (  # messages of transformers and TRL
    "Your setup doesn't support bf16/gpu.",
    "… does not support …, which … uses when several GPUs are visible to a single process.",
)


def quoted() -> list[str]:
    """The messages in the headings of the page."""
    return [
        message
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("#### ")
        for message in re.findall(r"`([^`]+)`", line)
    ]


@cache
def texts() -> tuple[str, ...]:
    """All texts of the source, with a hole where a value goes."""
    found = []
    for path in sorted((ROOT / "trl_populora").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.JoinedStr, ast.Constant, ast.BinOp)):
                found.append(flat(node))
    return tuple(text for text in found if len(text) > 8)


def flat(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(flat(part) if isinstance(part, ast.Constant) else HOLE for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return flat(node.left) + flat(node.right)
    return HOLE


def parts(message: str) -> list[str]:
    """The words of a message, without its values."""
    return [part for part in message.removeprefix("alarm: ").split("…") if part]


def has(text: str, message: str) -> bool:
    """Whether a text has the words of a message, in their order."""
    place = 0
    for part in parts(message):
        found = text.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return True


def pattern(message: str) -> str:
    """A regular expression for a message of the page."""
    return "(?s)" + ".*".join(map(re.escape, parts(message)))


def test_there_are_thirty():
    assert len(quoted()) >= 30


@pytest.mark.every(3)
@pytest.mark.parametrize("message", [one for one in quoted() if one not in FOREIGN])
def test_the_source_has_the_message(message):
    assert any(has(text, message) for text in texts()), message


def config(**settings):
    return PopulationSelfPlayConfig(
        **{"output_dir": "never-made", "use_cpu": True, "bf16": False, "num_teachers": 2, "num_students": 2} | settings
    )


RAISED = {
    "Unknown setting … in the recipe": lambda: check_call([], {"num_teacher": 2}),
    "Unknown key … in …": lambda: config(evolution_kwargs={"fractions": 0.5}),
    "model_name_or_path is not set: name a Hub id, a folder or 'tiny' in the recipe.": RunArguments,
    "model=…: no local folder of that name, not in the Hub cache, and …": lambda: resolve_base("no/such-model"),
    "…=… is unknown. Choose from …": lambda: config(pairing="random"),
    "num_teachers=… and num_students=…: self-play needs at least one of each": lambda: config(num_students=0),
    "num_generations=… must be at least 2: a GRPO group needs a baseline.": lambda: config(num_generations=1),
    "… rows a round (num_teachers=… x … and num_students=… x …) do not divide into passes of "
    "per_device_train_batch_size=…": lambda: config(num_generations=2, per_device_train_batch_size=5),
    "prompts_per_teacher=… does not fit: with num_teachers=… and num_students=…, each teacher meets … students in a "
    "round.": lambda: config(num_students=4, prompts_per_teacher=3),
    "…=… contradicts …: leave it out, or set ….": lambda: config(gradient_accumulation_steps=7),
    "Not supported with a population: …": lambda: config(loss_type="bnpo"),
    "task type … is unknown.": lambda: config(task_types=["code_x"]),
    "…: the module … cannot be imported (…).": lambda: load_rewards(["no_such.function"]),
    "… needs …, which is not installed: pip install 'trl-populora[…]'….": lambda: require(
        "vllm", user="use_vllm=true"
    ),
    "exam … is unknown.": lambda: make_exam("gsm9k", {}),
    "… is not a complete checkpoint of a population: …": lambda: find_checkpoint("no-folder", "."),
}


@pytest.mark.parametrize("message", RAISED)
def test_the_message_is_raised(message, monkeypatch):
    assert message in quoted()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(extras, "is_installed", lambda module: False)
    with pytest.raises(ValueError, match=pattern(message)):
        RAISED[message]()


def test_a_tracker_that_is_missing(monkeypatch):
    message = "report_to=…: … is not installed."
    assert message in quoted()
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=pattern(message)):
        trackers.check_trackers(["wandb"])


def test_a_dataset_without_prompts(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "2 + 2?"}\n')
    message = "dataset_name=… has no column 'prompt', only …."
    assert message in quoted()
    with pytest.raises(ValueError, match=pattern(message)):
        load_prompts(str(path))


def test_a_damaged_dataset(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b"\n')
    message = "dataset_name=… cannot be loaded: …"
    assert message in quoted()
    with pytest.raises(ValueError, match=pattern(message)) as told:
        load_prompts(str(path))
    assert "error occurred while generating" not in str(told.value)


def test_rows_that_processes_cannot_share(monkeypatch):
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "7")
    message = "… rows a round cannot be split among … processes."
    assert message in quoted()
    with pytest.raises(ValueError, match=pattern(message)):
        config(num_generations=2, per_device_train_batch_size=4)


def test_a_recipe_that_cannot_be_read(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("num_studens: 2\n")
    with pytest.raises(ValueError, match=f"{pattern('Unknown setting … in the recipe')}. Did you mean 'num_students'"):
        parse(["--config", str(path)])
