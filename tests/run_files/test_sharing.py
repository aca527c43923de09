"""What sharing relies on: files that stay as they are, and names that mean something elsewhere."""

import json
import os

import pytest

from trl_populora.run_files.checkpoint import FORMAT_VERSION
from trl_populora.run_files.files import kept, write_file, write_json
from trl_populora.run_files.layout import left_by_a_run, uploads
from trl_populora.run_files.round_table import COLUMNS
from trl_populora.run_files.run import hub_id, open_run
from trl_populora.run_files.run_folder import RunFolder


@pytest.fixture(params=["links", "copies"])
def file_system(request, monkeypatch):
    if request.param == "copies":

        def refuse(source, target):
            raise OSError("no hard links here")

        monkeypatch.setattr(os, "link", refuse)


def test_kept_files_stay_as_they_were(file_system, tmp_path):
    paths = [str(tmp_path / name / "weights") for name in ("a", "b")]
    for path in paths:
        write_file(path, f"old {path}")
    with kept(paths, str(tmp_path)) as found:
        write_file(paths[0], "new")
        os.remove(paths[1])
        assert uploads(str(tmp_path)) == left_by_a_run(str(tmp_path)) != []
        for path in paths:
            with open(found[path]) as file:
                assert file.read() == f"old {path}"
    assert uploads(str(tmp_path)) == []


def test_a_run_that_goes_on_is_no_longer_a_finished_one(tmp_path):
    write_file(tmp_path / "population.json", "{}")
    for _ in range(2):
        RunFolder(str(tmp_path)).reopen()
        assert not (tmp_path / "population.json").exists()


@pytest.mark.parametrize("name", ["population.json", "history.jsonl", "probes.jsonl", "checkpoint-2/manifest.json"])
def test_results_are_not_written_over_unasked(tmp_path, name):
    """Members are results, too, where there is no history: of a warm start, or a copy of a finished run."""
    (tmp_path / "plots").mkdir()  # somebody's own
    here = RunFolder(str(tmp_path))
    here.start(overwrite=False)
    here.check_resume("elsewhere/checkpoint-1", overwrite=False)
    write_file(tmp_path / name, record := '{"round": 0, "step": 0}')
    with pytest.raises(ValueError, match="already holds a run .*overwrite_output_dir=true"):
        here.start(overwrite=False)
    with pytest.raises(ValueError, match="holds another run"):
        here.check_resume("elsewhere/checkpoint-1", overwrite=False)
    here.check_resume(str(tmp_path / "checkpoint-2"), overwrite=False)
    here.check_resume("elsewhere/checkpoint-1", overwrite=True)
    assert (tmp_path / name).read_text() == record


@pytest.mark.parametrize("name", ["history.jsonl", "probes.jsonl"])
def test_a_damaged_record_is_refused_before_anything_is_removed(tmp_path, name):
    write_file(tmp_path / name, b"\0" * 100 + b'\n{"round": 0, "step": 0}\n')  # as after a power cut
    with pytest.raises(ValueError, match=f"{name}, line 1, cannot be read .* Restore the line or remove it"):
        RunFolder(str(tmp_path)).check_resume(str(tmp_path / "checkpoint-2"), overwrite=True)
    RunFolder(str(tmp_path)).check_resume("elsewhere/checkpoint-1", overwrite=True)  # which discards it


def test_what_a_kill_has_left_of_an_upload_goes_with_the_next_run(tmp_path):
    write_file(tmp_path / "weights", "here")
    with kept([str(tmp_path / "weights")], str(tmp_path)):
        RunFolder(str(tmp_path)).start(overwrite=True)
        assert uploads(str(tmp_path)) == []
    assert (tmp_path / "weights").read_text() == "here"


def test_names_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "local").mkdir(parents=True)
    for name in ("org/model", "gpt2", "HuggingFaceTB/SmolLM2-135M-Instruct"):
        assert hub_id(name) == name
    for name in ("tiny", "org/local", "/models/mine", "./mine", "~/mine", "a/b/c", "prompts.jsonl", "data/x.parquet"):
        assert hub_id(name) is None, name


def test_where_a_checkpoints_record_is(tmp_path):
    row = {"id": "student_0", "role": "student", "version": 0, "operator": "founder", "parents": []}
    table = {"format": 1, "num_teachers": 0, "num_students": 1, "shared_member": False, "members": [row]}
    for folder in (tmp_path / "run", tmp_path / "run" / "checkpoint-2", tmp_path / "alone"):
        write_json(folder / "population.json", table)
    write_file(tmp_path / "run" / "history.jsonl", "")
    assert open_run(str(tmp_path / "run" / "checkpoint-2"), base="b").record == str(tmp_path / "run")
    for name in ("run", "alone"):
        assert open_run(str(tmp_path / name), base="b").record == str(tmp_path / name)


def played(here, rounds):
    """Two steps a round, a probe before each and one at the end, a checkpoint after each, a birth in each."""
    for n in range(rounds + 1):
        here.append_probe({"step": 2 * n}, [{"question": "1"}], {"question": str})
    for n in range(rounds):
        here.append_round(n, {"round": n}, [dict.fromkeys(COLUMNS) | {"round": n, "step": 2 * n, "member": "agent_0"}])
        here.append_events([{"step": 2 * n + 2}])
        write_file(
            f"{here.path}/checkpoint-{2 * n + 2}/manifest.json", json.dumps({"format": FORMAT_VERSION, "files": {}})
        )


def left(folder):
    """What is in the files of lines, and the names of all others."""
    lines = {
        name: [next(iter(json.loads(line).values())) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("history", "probes", "lineage")
        if (folder / f"{name}.jsonl").exists()
    }
    return lines, sorted(path.name for path in (*folder.rglob("*.parquet"), *folder.glob("[cp]*[!l]")))


def test_a_rewound_run_has_what_it_had_at_that_step(tmp_path):
    then, now = RunFolder(str(tmp_path / "then")), RunFolder(str(tmp_path / "now"))
    for here, rounds in ((then, 2), (now, 5)):
        here.start(overwrite=False)
        played(here, rounds)
    write_file(tmp_path / "now" / "history.jsonl.saving", "half a line")
    now.rewind(4, 2, [{"step": 2}, {"step": 4}])
    assert left(tmp_path / "now") == left(tmp_path / "then")
    assert left(tmp_path / "then")[0] == {"history": [0, 1], "probes": [0, 2, 4], "lineage": [2, 4]}
    assert not (tmp_path / "now" / "history.jsonl.saving").exists()
    now.append_round(2, {"round": 2}, [])
    now.rewind(0, 0, [])
    lines, files = left(tmp_path / "now")
    assert lines == {"history": [], "probes": [], "lineage": []} and files == ["probes"]


def test_a_run_that_is_overwritten_leaves_nothing(tmp_path):
    """By a new run, or by one that goes on from a checkpoint elsewhere, in which the round would be its own."""
    for elsewhere in (False, True):
        here = RunFolder(str(tmp_path))
        played(here, 3)
        write_file(tmp_path / "population.json", "{}")
        write_file(tmp_path / "notes.txt", "somebody's own")
        here.is_anothers = elsewhere
        here.rewind(4, 2, []) if elsewhere else here.start(overwrite=True)
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"] and not here.is_anothers
