"""A pushed population is what others can use, and nothing else has left the machine."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest
import torch
from safetensors.torch import load_file

from tests.hub import scripts
from trl_populora.run_files.checkpoint import find_defect


pytestmark = pytest.mark.slow
MEMBERS = ("teacher_0", "teacher_1", "student_0", "student_1")


def pushed(client, *argv, **rest):
    code, out, err = client(scripts.populora, "push", *map(str, argv), **rest)
    assert code == 0, err
    return out


def test_a_repository_holds_what_is_named_and_nothing_else(client, hub, run):
    for stray in (".saving/student_0/adapter_model.safetensors", "notes.txt", "credentials.json", "wandb/run.log"):
        (run / stray).parent.mkdir(parents=True, exist_ok=True)
        (run / stray).write_text("not yours")
    out = pushed(client, run, "--to", "user/repo")
    commit = hub.repos["model", "user/repo"].commits[-1][0]
    assert out == f"Pushed: {hub.url}/user/repo/commit/{commit}\n"
    wanted = {f"{name}/{file}" for name in MEMBERS for file in ("adapter_config.json", "adapter_model.safetensors")}
    wanted |= {"README.md", "population.json", "self_play.json", "run.json", "history.jsonl", "lineage.jsonl"}
    wanted |= {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    wanted |= {f"plots/{path.name}" for path in (run / "plots").iterdir()}
    assert hub.files("user/repo") == wanted
    assert len(hub.titles("user/repo")) == 2  # all of it in one commit
    for name in MEMBERS:
        config = json.loads(hub.read("user/repo", f"{name}/adapter_config.json"))
        assert config["base_model_name_or_path"] == "user/base"
        weights = (run / name / "adapter_model.safetensors").read_bytes()
        assert hub.read("user/repo", f"{name}/adapter_model.safetensors") == weights
    everything = b"".join(blob.content for blob in hub.repos["model", "user/repo"].files.values())
    for secret in (b"hf_user", str(run.parent).encode(), b"models--user--base"):
        assert secret not in everything.replace(b"https://", b""), secret
    assert not [path for path in run.iterdir() if path.name.startswith(".uploading")]


def test_the_card(client, hub, run):
    pushed(client, run, "--to", "user/repo")
    data, text = hub.card("user/repo")
    assert data["base_model"] == "user/base" and data["base_model_relation"] == "adapter"
    assert data["license"] == "apache-2.0"  # the base's
    assert data["library_name"] == "peft" and {"populora", "self-play", "lora"} <= set(data["tags"])
    assert '"user/repo", subfolder="student_' in text and "# repo: a PopuLoRA population" in text
    pictures = [line.rpartition("(")[2][:-1] for line in text.splitlines() if line.startswith("![")]
    assert "plots/ratings.png" in pictures and set(pictures) <= hub.files("user/repo")


def test_what_the_owner_has_written_on_the_hub_stays(client, hub, run):
    card = b"---\nlicense: mit\nlanguage: en\ntags:\n- mine\nbase_model: other/base\n---\nOld text\n"
    stale = {"student_7/adapter_model.safetensors": b"old", "plots/old.png": b"old", "notes/mine.md": b"mine"}
    hub.put("user/repo", {"README.md": card, **stale})
    pushed(client, run, "--to", "user/repo")
    data, text = hub.card("user/repo")
    assert data["license"] == "mit" and data["language"] == "en" and data["base_model"] == "user/base"
    assert {"mine", "populora"} <= set(data["tags"]) and "Old text" not in text
    assert hub.files("user/repo") & set(stale) == {"notes/mine.md"}


def test_nothing_of_an_earlier_run_is_left(client, hub, run):
    """A pulled population has the lineage, probes and scores that lie beside it."""
    (run / "lineage.jsonl").unlink()
    pushed(client, run, "--to", "user/repo")
    earlier = ("lineage.jsonl", "probes.jsonl", "evaluation/evaluation.json", "mine.txt", "evaluation/mine.txt")
    hub.put("user/other", dict.fromkeys(earlier, b"earlier"))
    pushed(client, run, "--to", "user/other")
    assert hub.files("user/other") == hub.files("user/repo") | {"mine.txt", "evaluation/mine.txt"}


def test_norwegian_stays_a_language(client, hub, run):
    hub.put("user/repo", {"README.md": b"---\nlanguage: [en, no]\nlicense: mit\n---\n"})
    for _ in range(2):  # the second card is read from the first
        pushed(client, run, "--to", "user/repo")
        assert hub.card("user/repo")[0]["language"] == ["en", "no"]
    hub.put("user/other", {"README.md": b"---\nlanguage: no\n---\n"})
    pushed(client, run, "--to", "user/other")
    assert hub.card("user/other")[0]["language"] == "no"


def same_adapter(tensors, folder):
    saved = load_file(folder / "adapter_model.safetensors")
    return saved.keys() == tensors.keys() and all(torch.equal(saved[k], torch.tensor(tensors[k])) for k in saved)


def test_the_lines_of_the_card_load_every_member(client, hub, run):
    pushed(client, run, "--to", "user/repo")
    _, text = hub.card("user/repo")
    named = text.partition('subfolder="')[2].partition('"')[0]
    logits = {}
    for member in MEMBERS:
        tensors, logits[member] = client(scripts.run_card, text.replace(f'"{named}"', f'"{member}"'))
        assert same_adapter(tensors, run / member)
    assert len({str(values) for values in logits.values()}) == len(MEMBERS)


@pytest.mark.parametrize("member", ["student_0", "teacher_1"])
def test_a_member_alone_has_its_adapter_at_the_root(client, hub, run, member):
    pushed(client, run, "--to", "user/repo", "--member", member)
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md"} < hub.files("user/repo")
    assert not any("/" in path for path in hub.files("user/repo"))
    tensors, _ = client(scripts.run_card, hub.card("user/repo")[1])
    assert same_adapter(tensors, run / member)


def test_a_member_has_a_card_of_its_own(client, hub, run):
    pushed(client, run, "--member", "student_1")
    data, text = hub.card("user/demo-student_1")
    assert data["base_model"] == "user/base"
    assert text.startswith("\n# student_1 of a PopuLoRA population")
    assert "trained in a population of 2 teachers and 2 students" in text
    assert "| student_1 |" in text and "| teacher_0 |" not in text and "| `teacher_0` |" not in text


def test_the_rounds_as_a_dataset(client, hub, run):
    pushed(client, run, "--dataset", "--private")
    tables = sorted((run / "rounds").iterdir())
    assert hub.files("user/demo-rounds", "dataset") == {"README.md", *(f"rounds/{path.name}" for path in tables)}
    assert hub.repos["dataset", "user/demo-rounds"].private
    data, text = hub.card("user/demo-rounds", "dataset")
    assert data["configs"] == [{"config_name": "rounds", "data_files": "rounds/*.parquet", "default": True}]
    assert "`user/base`" in text and "| `member` | string |" in text
    rows = [row for path in tables for row in pyarrow.parquet.read_table(path).to_pylist()]
    assert client(scripts.run_dataset_card, text) == rows
    (run / "probes").mkdir()  # of a run that was pushed there before
    (run / "probes" / "step_000001.parquet").write_bytes(tables[0].read_bytes())
    pushed(client, run, "--dataset")
    assert "probes/step_000001.parquet" in hub.files("user/demo-rounds", "dataset")
    (run / "probes" / "step_000001.parquet").unlink()
    pushed(client, run, "--dataset")
    assert hub.files("user/demo-rounds", "dataset") == {"README.md", *(f"rounds/{path.name}" for path in tables)}


def test_a_checkpoint_only_when_asked(client, hub, run):
    pushed(client, run, "--to", "user/repo", "--checkpoint")
    files = {path for path in hub.files("user/repo") if path.startswith("last-checkpoint/")}
    source = run / "checkpoint-2"
    assert files == {f"last-checkpoint/{p.relative_to(source)}" for p in source.rglob("*") if p.is_file()}
    code, _, err = client(scripts.populora, "pull", "user/repo", "--output", str(run.parent / "a"), "--checkpoint")
    assert code == 0, err
    assert not (run.parent / "a" / "last-checkpoint").exists()
    resumed = {"resume_from_checkpoint": str(run.parent / "a" / "checkpoint-2"), "max_steps": 3}
    settings = {"num_teachers": 2, "num_students": 2, "per_device_train_batch_size": 12, "evolution_interval": 1}
    (run.parent / "more").mkdir()
    code, _, err = client(scripts.train, settings | resumed, str(run.parent / "more"))
    assert code == 0, err
    assert len((run.parent / "more/demo/history.jsonl").read_text().splitlines()) == 1
    there = {"resume_from_checkpoint": "auto", "output_dir": str(run.parent / "a"), "max_steps": 3}
    code, _, err = client(scripts.train, settings | there, str(run.parent / "more"))
    assert code == 0, err
    assert len((run.parent / "a/history.jsonl").read_text().splitlines()) == 3
    members = [load_file(run.parent / place / "student_0/adapter_model.safetensors") for place in ("a", "more/demo")]
    assert all(torch.equal(value, members[1][name]) for name, value in members[0].items())


def test_nothing_but_the_checkpoint_leaves_its_folder(client, hub, run):
    (run / "notes.txt").write_text("mine")
    (run / "tokenizer_notes.txt").write_text("mine")
    (run / "plots" / "me.png").write_bytes(b"mine")
    (run / "checkpoint-2" / ".env").write_text("SECRET=mine")
    (run / "checkpoint-2" / "link.txt").symlink_to(run / "notes.txt")
    pushed(client, run, "--to", "user/repo", "--checkpoint")
    assert not [path for path in hub.files("user/repo") if path.endswith((".env", ".txt", "me.png"))]
    assert "me.png" not in hub.card("user/repo")[1]


def test_a_checkpoint_is_pulled_with_all_its_files_or_without_pickles(client, hub, run):
    pushed(client, run / "checkpoint-1", "--to", "user/repo", "--checkpoint")
    place = str(run.parent / "whole")
    code, _, err = client(scripts.populora, "pull", "user/repo/last-checkpoint", "--checkpoint", "--output", place)
    assert code == 0, err
    assert find_defect(place, content=True) is None
    manifest = json.loads(hub.read("user/repo", "last-checkpoint/manifest.json"))
    assert manifest["files"] == json.loads((run / "checkpoint-1" / "manifest.json").read_text())["files"]
    code, _, err = client(scripts.populora, "pull", "user/repo/last-checkpoint", "--output", str(run.parent / "data"))
    assert code == 0, err
    names = {path.suffix for path in (run.parent / "data").rglob("*") if path.is_file()}
    assert not names & {".pt", ".pth", ".bin"}


def test_a_base_named_for_others_is_named_everywhere(client, hub, run):
    record = json.loads((run / "run.json").read_text()) | {"model": "models/mine", "model_on_hub": False}
    (run / "run.json").write_text(json.dumps(record))
    hub.put("models/mine", {"README.md": b"---\nlicense: llama3.1\n---\n"})  # somebody else's
    pushed(client, run, "--to", "user/local")
    data, text = hub.card("user/local")
    assert "base_model" not in data and "license" not in data and "huggingface.co/models/mine" not in text
    assert json.loads(hub.read("user/local", "student_0/adapter_config.json"))["base_model_name_or_path"] is None
    place = str(run.parent / "pulled")
    assert client(scripts.populora, "pull", "user/local", "--output", place)[0] == 0
    code, _, err = client(scripts.populora, "play", place)
    assert code == 2 and "model='./models/mine': no such folder" in err and "--base" in err
    pushed(client, run, "--to", "user/named", "--base", "user/base")
    assert hub.card("user/named")[0]["base_model"] == "user/base"
    told = json.loads(hub.read("user/named", "run.json"))
    assert (told["model"], told["model_on_hub"]) == ("user/base", True)
    pushed(client, run, "--dataset", "--to", "user/rows", "--base", "user/base")
    assert "`user/base`" in hub.card("user/rows", "dataset")[1]
    (run / "run.json").write_text(json.dumps(record | {"model": "/home/me/mine"}))
    pushed(client, run, "--dataset", "--to", "user/rows")
    text = hub.card("user/rows", "dataset")[1]
    assert "/home/me" not in text and "`mine`, a local model" in text


def test_a_branch_is_made(client, hub, run):
    pushed(client, run, "--to", "user/repo", "--revision", "dev")
    repo = hub.repos["model", "user/repo"]
    assert len(repo.commits) == 1 and "population.json" in repo.branches["dev"][-1][2]
    pushed(client, run, "--to", "user/repo", "--revision", "dev")


@pytest.mark.parametrize("readme", [b"---\nMy solver\n---\n", b"---\n- a\n---\n", b"---\na: [\n---\n", b"\xff\xfe"])
def test_a_card_that_cannot_be_read_is_written_anew(client, hub, run, readme):
    hub.put("user/repo", {"README.md": readme})
    code, _, err = client(scripts.populora, "push", str(run), "--to", "user/repo")
    assert code == 0 and "in the card of user/repo cannot be read, so nothing of it is kept" in err
    assert hub.card("user/repo")[0]["library_name"] == "peft"


def test_a_checkpoint_of_a_run_is_pushed_like_the_run(client, hub, run):
    pushed(client, run / "checkpoint-1", "--to", "user/repo")
    weights = (run / "checkpoint-1/student_0/adapter_model.safetensors").read_bytes()
    assert hub.read("user/repo", "student_0/adapter_model.safetensors") == weights
    assert {"history.jsonl", "run.json"} <= hub.files("user/repo")
    _, text = hub.card("user/repo")
    assert "After 1 round with" in text and "![" not in text


def test_a_base_that_is_not_on_the_hub(client, hub, run, tiny_model):
    pushed(client, run, "--to", "user/repo", "--base", tiny_model)
    data, text = hub.card("user/repo")
    assert "base_model" not in data and "base_model_relation" not in data
    assert "a local model that is not on the Hub" in text and str(Path(tiny_model).parent) not in text
    assert json.loads(hub.read("user/repo", "student_0/adapter_config.json"))["base_model_name_or_path"] is None
    tensors, _ = client(scripts.run_card, text, str(Path(tiny_model).parent))  # where the base's folder is
    assert len(tensors) == 28


def test_pushing_twice_changes_nothing(client, hub, run):
    pushed(client, run, "--to", "user/repo")
    before = len(hub.titles("user/repo"))
    pushed(client, run, "--to", "user/repo")
    assert len(hub.titles("user/repo")) == before
