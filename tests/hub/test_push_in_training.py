"""Uploads while a run trains: whole populations of one step, whatever is saved meanwhile; failures cost nothing."""

import json
import shlex
from pathlib import Path

import pytest

from tests.hub import scripts


pytestmark = pytest.mark.slow
PUSHED = {"push_to_hub": True, "hub_model_id": "user/repo"}


def versions_of(hub, commit):
    """Title, and files of a commit of the population."""
    _, title, files = hub.repos["model", "user/repo"].commits[commit]
    return title, {path: blob.content for path, blob in files.items()}


def test_a_push_goes_on_while_later_steps_are_saved(process, hub, tmp_path):
    """The Hub takes the files of step 1 only when step 3 is saved and step 1 is gone: it gets step 1, whole."""
    hub.held.clear()
    settings = PUSHED | {"max_steps": 3, "save_total_limit": 1, "hub_private_repo": True, "hub_token": "hf_user"}
    job = process.submit(scripts.train_and_release, settings | {"learning_rate": 0.1}, str(tmp_path), 3)
    code, out, err = job.result()
    assert code == 0, err
    assert not (tmp_path / "demo/checkpoint-1").exists()
    assert hub.titles("user/repo") == ["initial commit", "Training in progress, step 1", "End of training"]
    assert hub.repos["model", "user/repo"].private
    _, first = versions_of(hub, 1)
    _, last = versions_of(hub, 2)
    assert json.loads(first["self_play.json"])["step"] == 1 and json.loads(last["self_play.json"])["step"] == 3
    assert len(first["history.jsonl"].splitlines()) == 1 and len(last["history.jsonl"].splitlines()) == 3
    path = "student_0/adapter_model.safetensors"
    assert last[path] == (tmp_path / "demo" / path).read_bytes() != first[path]
    assert first["README.md"].count(b'"user/repo", subfolder=') == 1
    assert not [path for path in first if path.startswith((".", "rounds", "checkpoint")) and path != ".gitattributes"]
    assert f"Pushed: {hub.url}/user/repo/commit/" in out
    checkpoint = (tmp_path / "demo/checkpoint-3/training_args.bin").read_bytes()
    assert b"hf_user" not in checkpoint


@pytest.mark.parametrize("strategy, folders", [
    ("end", set()),
    ("every_save", set()),
    ("checkpoint", {"last-checkpoint"}),
    ("all_checkpoints", {"checkpoint-1", "checkpoint-2"}),
])  # fmt: skip
def test_checkpoints_are_pushed_when_the_strategy_says_so(client, hub, tmp_path, strategy, folders):
    settings = PUSHED | {"hub_strategy": strategy, "hub_always_push": True, "plots": False}
    code, _, err = client(scripts.train, settings, str(tmp_path))
    assert code == 0, err
    tops = {path.split("/")[0] for path in hub.files("user/repo") if "/" in path}
    assert tops == {"teacher_0", "student_0"} | folders
    steps = ["Training in progress, step 1", "Training in progress, step 2"]
    during = [title for title in hub.titles("user/repo")[1:] if title != "End of training"]
    assert during == ([] if strategy == "end" else steps)
    for folder in folders:
        manifest = json.loads(hub.read("user/repo", f"{folder}/manifest.json"))
        assert {f"{folder}/{name}" for name in manifest["files"]} < hub.files("user/repo")


def test_a_failed_push_costs_nothing_and_can_be_repeated(client, hub, tmp_path):
    """The network is gone until training has ended."""
    hub.failures = [("POST", "/commit/")] * 10
    code, out, err = client(scripts.train, PUSHED | {"plots": False}, str(tmp_path))
    assert code == 1 and hub.titles("user/repo") == ["initial commit"]
    assert "Nothing is lost. The next save and the end of the run push again." in err
    assert err.count("Nothing is lost. To push again: ") == 1
    folder = tmp_path / "demo"
    assert (folder / "checkpoint-2").is_dir() and (folder / "student_0").is_dir()
    assert len((folder / "history.jsonl").read_text().splitlines()) == 2
    command = shlex.split(err.strip().splitlines()[-1].partition("To push again: ")[2])
    assert command[-4:] == ["push", str(folder), "--to", "user/repo"] and "populora" in "".join(command[:-4])
    hub.failures = []
    code, _, err = client(scripts.populora, *command[-4:])
    assert code == 0, err
    weights = (folder / "student_0/adapter_model.safetensors").read_bytes()
    assert hub.read("user/repo", "student_0/adapter_model.safetensors") == weights


@pytest.mark.parametrize("strategy, place", [("checkpoint", "last-checkpoint"), ("all_checkpoints", "checkpoint-2")])
def test_the_last_push_brings_the_last_checkpoint(client, hub, tmp_path, strategy, place):
    """Whose own push has failed."""
    hub.failures = [("POST", "/commit/")]
    code, _, err = client(scripts.train, PUSHED | {"plots": False, "hub_strategy": strategy}, str(tmp_path))
    assert code == 0, err
    assert json.loads((tmp_path / "demo/run.json").read_text())["revision"] == hub_head(hub, "user/base")
    manifest = json.loads(hub.read("user/repo", f"{place}/manifest.json"))
    assert manifest == json.loads((tmp_path / "demo/checkpoint-2/manifest.json").read_text())


def test_what_cannot_be_pushed_to_is_known_before_training(client, hub, tmp_path):
    settings = {"push_to_hub": True, "hub_model_id": "other/repo"}
    code, _, err = client(scripts.train, settings, str(tmp_path))
    assert code == 2 and "other/repo cannot be pushed to: you may not write there" in err
    hub.put("other/repo", {"README.md": b"theirs"})
    code, _, err = client(scripts.train, settings, str(tmp_path))
    assert code == 2 and "other/repo cannot be pushed to: you may not write there" in err
    code, _, err = client(scripts.train, PUSHED | {"hub_token": "hf_wrong"}, str(tmp_path))
    assert code == 2 and "user/repo cannot be pushed to: the Hub does not accept the token" in err
    assert not hub.files("other/repo") - {"README.md"} and ("model", "user/repo") not in hub.repos
    assert not Path(tmp_path, "demo", "history.jsonl").exists()


def test_a_hub_that_cannot_be_reached_does_not_keep_a_run_from_starting(client, hub, tmp_path):
    hub.failures = [("POST", "/api/repos/create")]
    code, _, err = client(scripts.train, PUSHED | {"max_steps": 1, "hub_strategy": "end"}, str(tmp_path))
    assert code == 0 and "the Hub cannot be reached" in err and "Training does not wait for it" in err
    assert hub.titles("user/repo") == ["initial commit", "End of training"]


def test_tags_and_the_dataset_of_a_script(client, hub, tmp_path):
    assert client(scripts.push_from_a_script, str(tmp_path)).endswith("/commit/" + hub_head(hub))
    data, text = hub.card("user/repo")
    assert data["datasets"] == ["user/prompts"] and {"mine", "more"} <= set(data["tags"])
    assert "self-play" not in data["tags"] and "eachers were" not in text and "teacher_reward" not in text
    assert "2 students, each a LoRA adapter" in text and "[`user/prompts`]" in text and "# ours: a" in text


def hub_head(hub, repo="user/repo"):
    return hub.repos["model", repo].commits[-1][0]
