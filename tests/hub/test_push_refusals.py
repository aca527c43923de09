"""A push that cannot be: one sentence with the fix, exit code 2, and nothing changed on either side."""

import shutil

import pytest

from tests.hub import scripts
from trl_populora.hub.client import HubError, hub_errors


pytestmark = pytest.mark.slow


def refused(client, *argv, **rest):
    code, out, err = client(scripts.populora, "push", *map(str, argv), **rest)
    assert code == 2 and not out, out + err
    assert "Traceback" not in err
    *bars, told = err.splitlines(keepends=True)  # the client's progress bars, if it has come so far
    assert told.startswith("populora: error: ")
    return told


def test_who_may_push(client, hub, run):
    err = refused(client, run, "--to", "user/repo", token=None)
    assert "Log in with `hf auth login`, or set HF_TOKEN" in err and f"populora push {run} --to user/repo" in err
    assert "Log in with" in refused(client, run, "--to", "user/repo", token="hf_wrong")
    assert "you may not write there" in refused(client, run, "--to", "other/repo")
    hub.put("other/repo", {"README.md": b"theirs"})
    assert "Name your own repository" in refused(client, run, "--to", "other/repo")
    hub.put("other/hidden", {"README.md": b"theirs"}, private=True)
    assert "you may not write there" in refused(client, run, "--to", "other/hidden")
    assert hub.repos["model", "other/repo"].files.keys() == {"README.md"}
    assert ("model", "user/repo") not in hub.repos


def test_a_name_that_no_repository_can_have(client, hub, run):
    assert "'bad/name/x' cannot be a repository: Repo id must be" in refused(client, run, "--to", "bad/name/x")


def test_a_sentence_of_the_client_has_one_full_stop():
    with pytest.raises(HubError, match=r"It failed: Rename this file\.$"), hub_errors("It failed"):
        raise ValueError("Rename this file.")


def test_a_private_push_never_becomes_public(client, hub, run):
    hub.put("user/open", {"README.md": b"here"})
    err = refused(client, run, "--to", "user/open", "--private")
    assert "user/open is public already" in err and "--private" in err
    assert hub.repos["model", "user/open"].files.keys() == {"README.md"}


@pytest.mark.parametrize("place", ["/api/repos/create", "/preupload/", "/commit/"])
def test_the_network_goes(client, hub, run, place):
    hub.failures = [("POST", place)] * 9
    err = refused(client, run, "--to", "user/repo")
    assert "the Hub cannot be reached" in err and "To push again: " in err
    assert err.endswith(f" push {run} --to user/repo\n")
    hub.failures = []
    assert client(scripts.populora, "push", str(run), "--to", "user/repo")[0] == 0
    assert "student_0/adapter_model.safetensors" in hub.files("user/repo")
    assert not [path for path in run.iterdir() if path.name.startswith(".uploading")]


def test_what_is_no_population(client, hub, run, tmp_path):
    assert "there is no such folder" in refused(client, tmp_path / "nothing")
    assert "has no member 'student_9'; choose from teacher_0, teacher_1" in refused(
        client, run, "--member", "student_9"
    )
    (run / "student_1" / "adapter_model.safetensors").write_bytes(b"garbage")
    assert "adapter_model.safetensors is damaged" in refused(client, run)
    (run / "student_1" / "adapter_model.safetensors").unlink()
    assert "holds no adapter_model.safetensors" in refused(client, run)
    shutil.rmtree(run / "student_1")
    assert "holds no adapter_config.json" in refused(client, run, "--member", "student_1")
    table = sorted((run / "rounds").iterdir())[0]
    table.write_bytes(table.read_bytes()[:-9])
    assert f"{table} is damaged" in refused(client, run, "--dataset")
    shutil.rmtree(run / "rounds")
    assert "holds no tables of rounds" in refused(client, run, "--dataset")
    for folder in run.glob("checkpoint-*"):
        shutil.rmtree(folder)
    assert "holds no complete checkpoint" in refused(client, run, "--checkpoint")
    assert [id for _, id in hub.repos] == ["user/base"]


def test_a_run_that_was_stopped_says_what_can_be_pushed(client, hub, run):
    (run / "population.json").unlink()
    assert f"push its newest checkpoint, {run / 'checkpoint-2'}" in refused(client, run)
