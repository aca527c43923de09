"""What the terminal is told: errors in one form and at once, versions, runs, next steps; and after a failed start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import write_recipe
from tests.reporting.made_run import MadeRun
from trl_populora import cli, command, train
from trl_populora.cli import evolve
from trl_populora.run_files.files import gone_if_unused
from trl_populora.run_files.listing import find_runs
from trl_populora.run_files.run import read_table


ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "transformers", "trl", "peft", "datasets", "evaluate"}
WRONG = [
    (["trian"], "there is no command 'trian'. Did you mean 'train'? (see populora --help)"),
    (["xyz"], "there is no command 'xyz' (see populora --help)"),
    (["report", "/no/such"], "/no/such has no history.jsonl"),
    (["report", "/no/such", "--plotz"], "unrecognized arguments: --plotz"),
    (["runs", "/no/such"], "'/no/such' is not a folder"),
    (["evaluate", "/no/such"], "there is no such folder"),
    (["evaluate"], "name a run to evaluate"),
    (["play", "/no/such"], "there is no such folder"),
    (["push", "/no/such"], "there is no such folder"),
    (["export", "/no/such", "--member", "x", "--output", "/no/other"], "there is no such folder"),
    (["evolve", "/no/such", "--operator", "clone", "--output", "/no/other"], "/no/such is not a PEFT folder"),
    (["evolve", "/no/such", "--operator", "dear", "--output", "/no/other"], "Did you mean 'dare'"),
    (["warmup", "--model", "/no/such", "--output", "no/other"], "no such folder"),
    (["retention", "--config", "/no/such.yaml"], "cannot be read"),
    (["retention", "--config", "recipes/tiny/retention.yaml", "--output", "setup.cfg"], "setup.cfg is a file; name a"),
    (["train", "--config", "/no/such.yaml"], "cannot be read"),
    (["train", "--config", "recipes/tiny/4t4s.yaml", "--num_teacherz", "2"], "Did you mean '--num_teachers'"),
    (["train", "--config", "recipes/tiny/4t4s.yaml", "--max_steps", "some"], "--max_steps some must be a whole"),
    (["train", "--config", "recipes/tiny/4t4s.yaml", "--pairing", "best"], "pairing='best' is unknown. Choose from"),
    (["train", "--config", "recipes/tiny/4t4s.yaml", "--model_name_or_path", "./no"], "no such folder"),
    (["push", "/no/such", "--dry-run"], "unrecognized arguments: --dry-run (see populora push --help)"),
    (["doctor", "/no/such.yaml"], "cannot be read"),
    (["doctor", "recipes/tiny/4t4s.yaml", "--max_stepz", "2"], "Unknown option '--max_stepz'"),
]
SCRIPT = """
import contextlib, io, json, sys
from trl_populora.cli import main
told = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as stop:
            code = stop.code
    told.append([code, out.getvalue(), err.getvalue(), sorted({name.split(".")[0] for name in sys.modules})])
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told() -> list:
    """Exit code, output, errors, and the modules loaded until then, of each call in one fresh interpreter."""
    calls = json.dumps([["--version"], *(words for words, _ in WRONG)])
    done = subprocess.run([sys.executable, "-c", SCRIPT, calls], capture_output=True, text=True, cwd=ROOT, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(WRONG)), ids=lambda number: " ".join(WRONG[number][0]))
def test_a_wrong_call_is_answered_before_anything_heavy_is_imported(told, number):
    code, _, err, modules = told[1 + number]
    assert code == 2, err
    assert err.startswith("populora: error: ") and WRONG[number][1] in err and err.count("\n") == 1
    assert not HEAVY & set(modules)


@pytest.mark.slow
def test_a_wrong_call_in_a_process_of_its_own():
    command = [sys.executable, "-m", "trl_populora.cli", "report", "/no/such"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and done.stderr.startswith("populora: error: /no/such has no history.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["runs", "recipes"], ["recipes"], ["--version"], ["--help"]], ids=lambda words: " ".join(words)
)
def test_an_output_that_cannot_be_written(words):
    command = [sys.executable, "-m", "trl_populora.cli", *words]
    ours, theirs = os.pipe()
    os.close(ours)
    with open("/dev/full", "w") as full, open(theirs, "w") as nobody:
        places = {"full": {"stdout": full}, "gone": {"stdout": nobody}, "closed": {"preexec_fn": lambda: os.close(1)}}
        processes = {
            name: subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, **options)
            for name, options in places.items()
        }
        told = {name: (process.communicate()[1], process.returncode) for name, process in processes.items()}
    assert told["gone"] == told["closed"] == ("", 0)
    assert words == ["--help"] or told["full"] == ("populora: error: [Errno 28] No space left on device\n", 1)


def test_an_output_of_few_characters(tmp_path):
    (tmp_path / "é").mkdir()
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "trl_populora.cli", "runs", str(tmp_path / "é")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0 and "\\xe9" in done.stdout, done.stderr


def test_the_command_works_without_docstrings():
    done = subprocess.run(
        [sys.executable, "-OO", "-m", "trl_populora.cli", "--version"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0 and done.stdout.startswith("populora "), done.stderr


def test_a_command_that_is_one_process_is_not_started_several_times(monkeypatch, capsys):
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit):
        cli.main(["report", "/no/such"])
    assert "report is one process: start it without accelerate launch" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert cli.main(["report", "/no/such"]) == 2 and "no history.jsonl" in capsys.readouterr().err


def test_the_operators_of_the_command_are_those_of_evolution():
    from trl_populora.evolution import OPERATORS

    assert list(evolve.OPERATORS) == list(OPERATORS)


def test_versions_are_told_without_imports(told):
    code, out, _, modules = told[0]
    lines = out.splitlines()
    assert code == 0 and lines[0].startswith("populora ")
    assert {line.split()[0] for line in lines} >= {"trl", "peft", "torch"}
    assert not HEAVY & set(modules)


def test_a_failure_is_told_in_the_same_form_with_another_code(run_folder, monkeypatch, capsys):
    def fail(*_, **__):
        raise PermissionError(13, "Permission denied", "somewhere")

    monkeypatch.setattr("trl_populora.run_files.listing._run_folders", fail)
    assert cli.main(["runs", os.path.dirname(run_folder)]) == 1
    assert capsys.readouterr().err == "populora: error: [Errno 13] Permission denied: 'somewhere'\n"


@pytest.mark.parametrize("place", ["bin/python", ".venv/bin/python", "/usr/nowhere/bin/python"])
def test_the_command_is_named_so_that_it_works(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/no/such")
    monkeypatch.setattr(sys, "executable", str(tmp_path / place))
    folder = (tmp_path / place).parent
    if place.startswith("/"):
        assert command.populora() == f"{place} -m trl_populora.cli"
        return
    folder.mkdir(parents=True)
    (folder / "populora").write_text("#!/bin/sh")
    (folder / "populora").chmod(0o755)
    assert command.populora() == f"{os.path.dirname(place)}/populora"
    monkeypatch.setenv("PATH", str(folder))
    assert command.populora() == "populora"


def test_next_steps_can_be_typed(run_folder, monkeypatch):
    from trl_populora.reporting import read_history, run_summary

    monkeypatch.setattr("trl_populora.reporting.summary.populora", lambda: ".venv/bin/populora")
    text = run_summary(run_folder, read_history(run_folder), base="tiny")
    assert f"\n  .venv/bin/populora report {run_folder}  " in text and "\n  populora" not in text


def test_runs_are_listed_with_their_state(run_folder, tmp_path, capsys):
    import shutil

    shutil.copytree(run_folder, tmp_path / "runs" / "done")
    shutil.copytree(
        run_folder, tmp_path / "runs" / "more" / "killed", ignore=shutil.ignore_patterns("population.json")
    )
    killed = tmp_path / "runs" / "more" / "killed"
    shutil.copytree(f"{run_folder}/checkpoint-1", killed / "checkpoint-1", dirs_exist_ok=True)
    shutil.copytree(killed, tmp_path / "runs" / "fresh")
    for checkpoint in (tmp_path / "runs" / "fresh").glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    (tmp_path / "runs" / "fresh" / "probes.jsonl").write_text(
        "".join(
            json.dumps({"step": step, "exams": {"held_out": {"mean": mean}}}) + "\n"
            for step, mean in ((0, 0.25), (1, 0.75), (2, 0.5))
        )
    )
    os.utime(killed / "history.jsonl", (1.6e9, 1.6e9))
    os.utime(tmp_path / "runs" / "fresh" / "history.jsonl")
    (tmp_path / "runs" / "other").mkdir()
    done, fresh, stopped = find_runs(str(tmp_path / "runs"))
    assert (done.state, fresh.state, stopped.state) == ("finished", "running", "stopped")
    assert done.rounds == done.of == 2 and done.members == "2 teachers, 2 students" and done.size > 10_000
    assert (stopped.resume, fresh.resume) == (1, None) and fresh.probe == ("held_out", 0.75, 1)
    assert cli.main(["runs", str(tmp_path / "runs")]) == 0
    text = capsys.readouterr().out
    assert (
        len(text.splitlines()) == 4
        and "finished, not saved, resumable from step 1" in text
        and "held_out 75% (step 1)" in text
    )
    assert "running, 0 min ago" in text and "\x1b" not in text
    assert cli.main(["runs", str(tmp_path / "runs"), "--json"]) == 0
    assert [one["state"] for one in json.loads(capsys.readouterr().out)] == ["finished", "running", "stopped"]
    with pytest.raises(
        ValueError, match=r"does not call trainer.save_model\(\).*newest checkpoint instead: .*point-1"
    ):
        read_table(killed)
    lines = (killed / "history.jsonl").read_text().splitlines()
    (killed / "history.jsonl").write_text(lines[0] + "\n")
    os.utime(killed / "history.jsonl", (1.6e9, 1.6e9))
    assert cli.main(["runs", str(killed)]) == 0
    assert " stopped, resumable from step 1 " in capsys.readouterr().out

    record = json.loads((tmp_path / "runs" / "fresh" / "run.json").read_text())
    record["process"]["start"] -= 1  # of a process that has ended
    (tmp_path / "runs" / "fresh" / "run.json").write_text(json.dumps(record))
    assert find_runs(str(tmp_path / "runs"))[1].state == "stopped"


def test_a_damaged_run_does_not_hide_the_others(tmp_path, capsys):
    MadeRun(tmp_path / "runs" / "whole").make(2)
    for name, file in (("a", "run.json"), ("b", "history.jsonl"), ("c", "probes.jsonl")):
        path = MadeRun(tmp_path / "runs" / name).make(2).folder / file
        path.write_text("{}\n" if file != "run.json" else "{")
    *damaged, whole = find_runs(str(tmp_path / "runs"))
    assert [one.state for one in damaged] == ["damaged"] * 3 and damaged[0].size > 1000
    assert (whole.state, whole.rounds, whole.problem) == ("finished", 2, None)
    assert cli.main(["runs", str(tmp_path / "runs")]) == 0
    text = capsys.readouterr().out
    assert "run.json is damaged" in text and "history.jsonl, line 1, cannot be read" in text
    assert "probes.jsonl, line 1, cannot be read" in text and "finished" in text


REFUSED = {
    "setting": {"num_students": 0},
    "model": {"model_name_or_path": "no/such-model"},
    "no model in it": {"model_name_or_path": "{empty}"},
    "dataset": {"num_teachers": 0, "num_students": 2, "dataset_name": "/no/such.jsonl", "reward_funcs": ["x.y"]},
    "seed tasks": {"seed_families": ["no_such_family"]},
    "tracker": {"report_to": "neptune"},
    "exam": {"final_exams": ["no_such_exam"]},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_a_failed_start_leaves_no_folder(tmp_path, tiny_model, changes, capfd):
    (tmp_path / "empty").mkdir()
    changes = {key: str(tmp_path / "empty") if value == "{empty}" else value for key, value in changes.items()}
    recipe = write_recipe(tmp_path, tiny_model, **changes, output_dir=str(tmp_path / "runs" / "deep" / "run"))
    assert train.main(recipe) == 2
    assert "populora: error: " in capfd.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_start_that_breaks_off_leaves_no_folder_either(tmp_path, tiny_model, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("out of memory")

    monkeypatch.setattr("trl_populora.training.self_play_source.SelfPlaySource.begin", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        train.main(write_recipe(tmp_path, tiny_model))
    assert not (tmp_path / "run").exists()


def test_a_folder_that_was_there_or_is_used_stays(tmp_path):
    (tmp_path / "old").mkdir()
    for name, used in (("old", False), ("new", True), ("gone", False)):
        with gone_if_unused(str(tmp_path / name), lambda used=used: used):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "file").write_text("")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]
