"""What was pushed comes back as a folder that every command opens, and that a run can start from."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file, save

from tests.hub import scripts
from tests.hub.loopback import Blob
from trl_populora.evolution import Lineage
from trl_populora.hub.pulling import Reference
from trl_populora.run_files.run import open_run


pytestmark = pytest.mark.slow


@pytest.fixture
def shared(client, hub, run):
    """The run as `user/repo`."""
    code, _, err = client(scripts.populora, "push", str(run), "--to", "user/repo")
    assert code == 0, err
    return hub


def pulled(client, source, folder):
    code, out, err = client(scripts.populora, "pull", source, "--output", str(folder))
    assert code == 0, err
    return out


def refused(client, source, folder):
    code, _, err = client(scripts.populora, "pull", source, "--output", str(folder))
    assert code == 2 and err.startswith("populora: error: "), err
    return err


def test_a_population_comes_back(client, shared, run, tmp_path):
    folder = tmp_path / "pulled"
    commit = shared.repos["model", "user/repo"].commits[-1][0]
    assert pulled(client, "user/repo", folder) == f"{folder}: user/repo@{commit}\n"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == shared.files("user/repo")
    assert all(shared.read("user/repo", path) == (folder / path).read_bytes() for path in files)
    opened = open_run(str(folder))
    assert opened.base == "user/base" and opened.members == open_run(str(run)).members
    code, out, err = client(scripts.populora, "report", str(folder), "--no-plots")
    assert code == 0 and "2 rounds" in out, err


def test_an_older_commit_and_one_member(client, shared, run, tmp_path):
    first = shared.repos["model", "user/repo"].commits[-1][0]
    weights = shared.read("user/repo", "student_1/adapter_model.safetensors")
    shutil.copytree(run / "checkpoint-1" / "student_0", run / "student_1", dirs_exist_ok=True)
    assert client(scripts.populora, "push", str(run), "--to", "user/repo")[0] == 0
    pulled(client, f"user/repo@{first}/student_1", tmp_path / "one")
    assert {path.name for path in (tmp_path / "one").iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    assert (tmp_path / "one" / "adapter_model.safetensors").read_bytes() == weights
    assert shared.read("user/repo", "student_1/adapter_model.safetensors") != weights


def test_what_cannot_be_pulled(client, shared, run, tmp_path):
    assert f"'{run}' is not empty" in refused(client, "user/repo", run)
    assert "there is no such repository" in refused(client, "user/nothing", tmp_path / "a")
    assert "there is no such repository" in refused(client, "user/repo@0123456", tmp_path / "a")
    assert "user/repo[@revision][/folder]" in refused(client, "../elsewhere", tmp_path / "a")
    assert "user/base holds neither a population nor an adapter" in refused(client, "user/base", tmp_path / "a")
    files = {path: blob.content for path, blob in shared.repos["model", "user/repo"].files.items()}
    shared.put("user/torn", {path: c for path, c in files.items() if path != "student_1/adapter_model.safetensors"})
    assert "user/torn/student_1 has no adapter_model.safetensors" in refused(client, "user/torn", tmp_path / "a")
    shared.put("user/garbage", files | {"student_1/adapter_model.safetensors": b"garbage"})
    assert "user/garbage/student_1/adapter_model.safetensors is damaged" in refused(
        client, "user/garbage", tmp_path / "a"
    )
    table = json.loads(files["population.json"])
    shared.put("user/none", files | {"population.json": json.dumps(table | {"members": []}).encode()})
    assert "user/none/population.json is damaged (it lists no members)" in refused(client, "user/none", tmp_path / "a")
    table["members"][0]["id"] = "../../away"
    shared.put("user/evil", files | {"population.json": json.dumps(table).encode()})
    assert "invalid names: ['../../away']" in refused(client, "user/evil", tmp_path / "a")
    shared.failures = [("GET", "/api/models/user/repo")] * 9
    assert "the Hub cannot be reached" in refused(client, "user/repo", tmp_path / "a")
    assert not (tmp_path / "a").exists()


SIZE = {"num_teachers": 2, "num_students": 2, "per_device_train_batch_size": 12, "max_steps": 1, "plots": False}


def test_a_run_starts_from_a_shared_population(client, shared, run, tmp_path):
    commit = shared.repos["model", "user/repo"].commits[-1][0]
    still = {"initial_adapters": "user/repo", "learning_rate": 1e-30}
    code, _, err = client(scripts.train, SIZE | still, str(tmp_path / "again"))
    assert code == 0, err
    folder = tmp_path / "again" / "demo"
    table = {row["id"]: row for row in json.loads((run / "population.json").read_text())["members"]}
    for name in table:
        now, before = (load_file(place / name / "adapter_model.safetensors") for place in (folder, run))
        assert all(torch.equal(now[key], before[key]) for key in before)
    lineage = Lineage(folder / "lineage.jsonl")
    origins = {event.slot: event.parents for event in lineage}
    assert origins == {name: ((f"user/repo@{commit}/{name}", row["version"]),) for name, row in table.items()}
    assert lineage.founders("student_1") == {f"user/repo@{commit}/student_1"}
    tree = lineage.family_tree(list(table))
    assert f"user/repo@{commit}/student_1@{table['student_1']['version']}  from elsewhere" in tree
    assert "  student_1@0 *  step 0, import" in tree
    now = {row["id"]: row for row in json.loads((folder / "population.json").read_text())["members"]}
    assert now["student_1"]["parents"] == [f"user/repo@{commit}/student_1@{table['student_1']['version']}"]


def test_a_run_starts_from_adapters_of_the_hub_and_of_folders(client, shared, run, tmp_path):
    sources = {"teacher": "user/repo/teacher_1", "student_0": "user/repo", "student_1": str(run / "student_0")}
    changes = SIZE | {"initial_adapters": sources, "learning_rate": 1e-30}
    code, _, err = client(scripts.train, changes, str(tmp_path / "again"))
    assert code == 0, err
    told = {"teacher_0": "teacher_1", "teacher_1": "teacher_1", "student_0": "student_0", "student_1": "student_0"}
    for name, source in told.items():
        now = load_file(tmp_path / "again/demo" / name / "adapter_model.safetensors")
        assert all(torch.equal(now[key], value) for key, value in load_file(
            run / source / "adapter_model.safetensors").items())  # fmt: skip


def test_what_a_killed_pull_has_left_is_in_nobodys_way(client, shared, tmp_path):
    (tmp_path / "pulled" / ".saving" / "student_0").mkdir(parents=True)
    pulled(client, "user/repo", tmp_path / "pulled")
    assert not (tmp_path / "pulled" / ".saving").exists()


def test_one_adapter_for_all_keeps_its_version(client, shared, run, tmp_path):
    table = json.loads((run / "population.json").read_text())["members"]
    child = next(row for row in table if row["version"])
    for source in (str(run / child["id"]), f"user/repo/{child['id']}"):
        folder = str(tmp_path / source.replace("/", "_"))
        code, _, err = client(scripts.train, SIZE | {"initial_adapters": source, "max_steps": 1}, folder)
        assert code == 0, err
        event = json.loads(Path(folder, "demo/lineage.jsonl").read_text().splitlines()[0])
        assert event["parents"][0][0].endswith(child["id"]) and event["parents"][0][1] == child["version"]


def test_a_start_that_does_not_fit(client, shared, tmp_path):
    def refusal(sources, **changes):
        code, _, err = client(scripts.train, SIZE | {"initial_adapters": sources} | changes, str(tmp_path / "new"))
        assert code == 2, err
        return err

    words = "has rank 2, this population 3. Its own settings are lora_r: 2, lora_alpha: 4"
    assert words in refusal("user/repo", lora_r=3)
    assert "there is no such repository" in refusal("user/nothing")
    assert "is neither a population nor an adapter" in refusal("user/base")
    assert not (tmp_path / "new" / "demo" / "history.jsonl").exists()


def test_a_member_is_exported(client, hub, run, tmp_path):
    code, _, err = client(
        scripts.populora, "export", str(run), "--member", "student_0", "--output", str(tmp_path / "one")
    )
    assert code == 0, err
    one = tmp_path / "one"
    weights = (run / "student_0" / "adapter_model.safetensors").read_bytes()
    assert (one / "adapter_model.safetensors").read_bytes() == weights
    tensors, logits = client(scripts.run_card, (one / "README.md").read_text(), str(one))
    assert len(tensors) == 28
    code, _, err = client(
        scripts.populora, "export", str(run), "--member", "student_0", "--output", str(tmp_path / "whole"), "--merge"
    )
    assert code == 0, err
    merged = client(scripts.logits_of, str(tmp_path / "whole"))
    torch.testing.assert_close(torch.tensor(merged), torch.tensor(logits), rtol=1e-4, atol=1e-5)
    base = client(scripts.logits_of, "user/base")
    assert not torch.allclose(torch.tensor(merged), torch.tensor(base), rtol=1e-4, atol=1e-5)
    argv = ["export", str(run), "--member", "student_0", "--output"]
    code, _, err = client(scripts.populora, *argv, str(tmp_path / "whole"))
    assert code == 2 and "is not empty" in err
    code, _, err = client(scripts.populora, *argv, "/proc/no")
    assert code == 2 and "--output='/proc/no' cannot be written" in err
    argv[3] = "student_7"
    code, _, err = client(scripts.populora, *argv, str(tmp_path / "no"))
    assert code == 2 and "has no member 'student_7'; choose from" in err and not (tmp_path / "no").exists()


def test_a_base_of_a_revision_stays_that_one(client, hub, base_files, tmp_path):
    main = load(base_files["model.safetensors"])
    main = {"model.safetensors": save({name: 2 * own for name, own in main.items()}, {"format": "pt"})}
    hub.put("user/moved", {"config.json": base_files["config.json"]} | main)  # and no tokenizer
    repo = hub.repos["model", "user/moved"]
    repo.branches["v1"] = []
    named = repo.commit("v1", {name: Blob(content, lfs=False) for name, content in base_files.items()}, "v1")
    changes = {"model_name_or_path": "user/moved", "model_init_kwargs": {"revision": "v1"}, "plots": False}
    code, _, err = client(scripts.train, changes | {"final_exams": ["held_out_easy[:2]"]}, str(tmp_path))
    assert code == 0, err
    run, whole = str(tmp_path / "demo"), str(tmp_path / "whole")
    scores = json.loads((tmp_path / "demo" / "evaluation" / "evaluation.json").read_text())
    for argv in (
        ["evaluate", run, "--exams", "held_out_easy[:2]", "--output", str(tmp_path / "again")],
        ["export", run, "--member", "student_0", "--output", whole, "--merge"],
        ["push", run, "--to", "user/repo"],
    ):
        code, _, err = client(scripts.populora, *argv)
        assert code == 0, err
    again = json.loads((tmp_path / "again" / "evaluation.json").read_text())
    assert again["weights"] == scores["weights"]
    shared = json.loads(hub.read("user/repo", "evaluation/evaluation.json"))
    assert shared == scores | {"runs": {"": "demo"}}  # and no path
    _, logits = client(scripts.run_card, hub.card("user/repo")[1])
    torch.testing.assert_close(
        torch.tensor(client(scripts.logits_of, whole)), torch.tensor(logits), rtol=1e-4, atol=1e-5
    )
    assert client(scripts.run_card, (tmp_path / "demo" / "README.md").read_text(), run)[1] == logits
    assert json.loads(hub.read("user/repo", "student_0/adapter_config.json"))["revision"] == named


@pytest.mark.parametrize(
    ("text", "revision", "folder"),
    [
        ("user/repo", None, ""),
        ("hf://user/repo@main/student_0/", "main", "student_0"),
        ("user/repo@feature%2Fx/student_0", "feature/x", "student_0"),
        ("user/repo@refs/pr/3/student_0", "refs/pr/3", "student_0"),
    ],
)
def test_a_reference_is_read_as_it_is_written(text, revision, folder):
    found = Reference.parse(text)
    assert found == ("user/repo", revision, folder)
    assert str(found) == text.removeprefix("hf://").rstrip("/") and Reference.parse(str(found)) == found


def test_the_base_is_that_of_the_commit_with_which_the_run_was_trained(client, hub, run, base_files, tmp_path):
    name = "model.safetensors"
    other = save({key: value + 1 for key, value in load(base_files[name]).items()}, metadata={"format": "pt"})
    repo = hub.repos["model", "user/base"]
    repo.commit("other weights", repo.files | {name: Blob(other, lfs=True)})
    found = []
    for options in ((), ("--base", "user/base")):
        output = str(tmp_path / f"whole_{len(found)}")
        options = ("--member", "student_0", "--output", output, "--merge", *options)
        code, _, err = client(scripts.populora, "export", str(run), *options)
        assert code == 0, err
        found.append(load_file(f"{output}/{name}")["model.norm.weight"])
    trained_on = load(base_files[name])["model.norm.weight"]
    assert torch.equal(found[0], trained_on) and torch.equal(found[1], trained_on + 1)
