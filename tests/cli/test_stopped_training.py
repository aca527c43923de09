"""Ctrl-C at any time of a run: status 130, and one line that says what is saved and how to go on."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import write_recipe
from trl_populora import cli, reporting, train
from trl_populora.command import populora
from trl_populora.population import Population
from trl_populora.reporting import LiveView, read_history
from trl_populora.self_play import SelfPlay
from trl_populora.training import PopulationSelfPlayTrainer


ROOT = Path(__file__).resolve().parents[2]
AUTO = ("--resume_from_checkpoint", "auto")
NO_CHECKPOINT = "Stopped. There is no checkpoint yet, so the run can only start from the beginning: repeat the command"
SETTINGS_OF_CHECKPOINTS = "To get checkpoints, set `save_strategy: steps` and `save_steps`."


@pytest.fixture
def stop(monkeypatch):
    """`stop(owner, name, at=1)`: the `at`-th call of a function is where Ctrl-C arrives."""

    def arm(owner, name, at=1):
        real, calls = getattr(owner, name), []

        def call(*args, **kwargs):
            calls.append(1)
            if len(calls) == at:
                raise KeyboardInterrupt
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    return arm


@pytest.fixture
def said(capfd):
    """The lines of a run that are about its end."""

    def lines() -> list[str]:
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return [line for line in (out + err).splitlines() if line.startswith(("Stopped", "populora: error: "))]

    return lines


def rounds(folder) -> list[int]:
    return [summary.round for summary in read_history(folder)]


@pytest.mark.slow
def test_in_a_round_with_a_checkpoint(recipe, stop, said, tmp_path):
    command = recipe(save_strategy="steps", save_steps=1)
    stop(SelfPlay, "play", at=2)
    assert train.main(command) == 130
    checkpoint = tmp_path / "run" / "checkpoint-1"
    assert said() == [f"Stopped. To go on from {checkpoint}, repeat the command with `{shlex.join(AUTO)}`."]
    assert train.main([*command, *AUTO]) == 0
    assert rounds(tmp_path / "run") == [0, 1]


@pytest.mark.slow
def test_in_a_round_without_a_checkpoint(recipe, stop, said, tmp_path, capfd):
    command = recipe()
    stop(SelfPlay, "play", at=2)
    assert train.main(command) == 130
    assert said() == [f"{NO_CHECKPOINT} with `{shlex.join(AUTO)}`. {SETTINGS_OF_CHECKPOINTS}"]
    assert rounds(tmp_path / "run") == [0]
    assert train.main(command) == 2  # so the option is needed
    assert "already holds a run" in capfd.readouterr().err
    assert train.main([*command, *AUTO]) == 0
    assert rounds(tmp_path / "run") == [0, 1]


def test_in_the_first_round(recipe, stop, said, tmp_path):
    stop(SelfPlay, "play")
    assert train.main(recipe(save_strategy="steps", save_steps=2)) == 130
    assert said() == [f"{NO_CHECKPOINT}. To get one earlier, set a smaller `save_steps`."]
    assert not (tmp_path / "run").exists()


def test_the_option_is_named_only_if_it_is_needed(recipe, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "history.jsonl").write_text("")
    for changes in ({"resume_from_checkpoint": "auto"}, {"overwrite_output_dir": True}):
        _, args = train.parse(recipe(**changes))
        assert train.prepare_output(args) is None  # the command starts as it is
        assert train.told_when_stopped(args) == f"{NO_CHECKPOINT}. {SETTINGS_OF_CHECKPOINTS}"


@pytest.mark.slow
def test_a_run_from_a_checkpoint_elsewhere_starts_there_again(recipe, stop, said, tmp_path):
    command = recipe(save_strategy="steps", save_steps=1, max_steps=1)
    assert train.main(command) == 0
    checkpoint = str(tmp_path / "run" / "checkpoint-1")
    command = recipe(resume_from_checkpoint=checkpoint, output_dir=str(tmp_path / "other"), max_steps=3)
    stop(SelfPlay, "play", at=2)
    assert train.main(command) == 130
    overwrite = ("--overwrite_output_dir", "true")
    assert said() == [
        f"Stopped. There is no new checkpoint. To go on from {checkpoint} again, repeat the command with "
        f"`{shlex.join(overwrite)}`."
    ]
    assert train.main(command) == 2
    assert train.main([*command, *overwrite]) == 0


@pytest.fixture
def earlier_run(tmp_path):
    """A folder with what another run has left, and a function that lists what is there."""
    (tmp_path / "run" / "checkpoint-2").mkdir(parents=True)
    for name in ("run.json", "history.jsonl"):
        (tmp_path / "run" / name).write_text("")
    return lambda: sorted(path.name for path in (tmp_path / "run").iterdir())


@pytest.mark.slow
def test_in_the_warm_start(recipe, stop, said, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    stop(LiveView, "warm_start", at=2)  # the first call is before Lightning's own training
    assert train.main(recipe(warm_start_steps=2, warm_start_rows=1)) == 130
    assert said() == [train.NOT_BEGUN]
    assert not (tmp_path / "run").exists() and signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_what_ends_the_warm_start_costs_no_earlier_run(recipe, stop, said, earlier_run):
    before = earlier_run()
    command = recipe(overwrite_output_dir=True, warm_start_steps=2, warm_start_rows=1)
    assert train.main([*command, "--warm_start_learning_rate", "1e30"]) == 1
    (told,) = said()
    assert told.startswith("populora: error: The warm start has diverged") and earlier_run() == before
    stop(train, "warm_up")
    assert train.main(command) == 130
    assert said() == [train.NOT_BEGUN] and earlier_run() == before


@pytest.mark.parametrize("name", ["parse", "build"])
def test_before_the_first_round(recipe, stop, said, tmp_path, name):
    stop(train, name)
    assert train.main(recipe()) == 130
    assert said() == ["populora: error: stopped before the first round; nothing was saved"]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_while_the_adapters_are_saved(recipe, stop, said, tmp_path):
    command = recipe(save_strategy="steps", save_steps=1, max_steps=1)
    stop(Population, "save", at=2)  # the first is the checkpoint's
    assert train.main(command) == 130
    checkpoint = tmp_path / "run" / "checkpoint-1"
    assert said() == [f"Stopped. To go on from {checkpoint}, repeat the command with `{shlex.join(AUTO)}`."]
    assert train.main([*command, *AUTO]) == 0
    assert (tmp_path / "run" / "student_0" / "adapter_model.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes, place, rest",
    [
        ({"plots": True}, (reporting, "save_plots"), ["report", "FOLDER"]),
        (
            {"final_exams": ["held_out"], "final_exams_limit": 1},
            (train, "take_final_exams"),
            ["evaluate", "FOLDER", "--exams", "held_out", "--limit", "1"],
        ),
        (
            {"push_to_hub": True, "hub_revision": "mine"},
            (PopulationSelfPlayTrainer, "push_to_hub"),
            ["push", "FOLDER", "--revision", "mine"],
        ),
        ({}, (PopulationSelfPlayTrainer, "close"), None),
    ],
)
def test_after_the_adapters_are_saved(recipe, stop, said, tmp_path, monkeypatch, changes, place, rest):
    monkeypatch.setattr(PopulationSelfPlayTrainer, "init_hf_repo", lambda self: None)
    stop(*place)
    assert train.main(recipe(max_steps=1, **changes)) == 130
    folder = str(tmp_path / "run")
    command = [folder if word == "FOLDER" else word for word in rest or ()]
    told = f" To do what is missing: `{populora()} {shlex.join(command)}`." if rest else ""
    assert said() == [f"Stopped. Training is over, and the adapters are saved in {folder}.{told}"]
    if rest and rest[0] != "push":
        assert cli.main([*command, *(["--no-plots", "--no-page"] if rest[0] == "report" else [])]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "place, told",
    [
        (
            (reporting, "save_plots"),
            "not all results could be written: {error}. Training is over, and the adapters are ",
        ),
        ((PopulationSelfPlayTrainer, "save_model"), "training ended, but the adapters could not be saved to "),
    ],
)
def test_a_full_disk_after_the_last_round(recipe, said, tmp_path, monkeypatch, place, told):
    error = OSError(28, "No space left on device")

    def full(*args, **kwargs):
        raise error

    monkeypatch.setattr(*place, full)
    assert train.main(recipe(max_steps=1, plots=True)) == 1
    folder = tmp_path / "run"
    rest = f"saved in {folder}. To do what is missing: `{populora()} report {folder}`."
    end = rest if place[1] == "save_plots" else f"{folder}: {error}. There is no checkpoint."
    assert said() == [f"populora: error: {told.format(error=error)}{end}"]
    assert (folder / "student_0" / "adapter_model.safetensors").is_file() == (place[1] == "save_plots")


@pytest.mark.slow
def test_a_real_signal(tmp_path, tiny_model):
    command = write_recipe(tmp_path, tiny_model, max_steps=1000, save_strategy="steps", save_steps=1)
    with subprocess.Popen(
        [sys.executable, "-m", "trl_populora.train", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    ) as process:
        assert process.stdout is not None
        lines, sent = [], False
        for line in process.stdout:
            lines.append(line)
            if line.startswith("round 2/") and not sent:  # rich repeats a line that it was writing
                process.send_signal(signal.SIGINT)
                sent = True
    assert process.returncode == 130, "".join(lines)
    assert not any("Traceback" in line for line in lines)
    assert lines[-1].startswith(f"Stopped. To go on from {tmp_path / 'run' / 'checkpoint-'}")
