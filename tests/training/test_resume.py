"""Invariant 6: a run resumed from a checkpoint is the run that was never stopped, bit for bit."""

import json
import os

import pytest
from transformers import TrainerCallback

from tests.processes import taken
from tests.training.test_isolation import member_state
from trl_populora.run_files.files import write_json


SETTINGS = dict(max_steps=4, save_strategy="steps", save_steps=2, evolution_interval=2, lr_scheduler_type="linear")


def outcome(trainer):
    return {
        "members": {name: member_state(trainer, name) for name in trainer.population},
        "table": [member.to_json() for member in trainer.population.values()],
        "ratings": trainer.source.ratings.state_dict(),
        "source": trainer.source.state_dict(),
        "lineage": [event.to_json() for event in trainer.lineage],
        "rates": [group["lr"] for group in trainer.optimizer.param_groups],
        "logs": timeless(trainer.state.log_history),
    }


def timeless(history):
    """Logged metrics without clocks; Trainer's closing `train_loss` is the mean of the steps of one call."""
    clocks = ("time", "runtime", "seconds", "per_second", "train_loss")
    return [{k: v for k, v in log.items() if not any(clock in k for clock in clocks)} for log in history]


def files(folder):
    with open(os.path.join(folder, "history.jsonl")) as file:
        history = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in file]
    path = os.path.join(folder, "lineage.jsonl")
    lineage = ""
    if os.path.exists(path):
        with open(path) as file:
            lineage = file.read()
    return history, lineage, sorted(os.listdir(os.path.join(folder, "rounds")))


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param({}, marks=pytest.mark.slow),  # the next has all of it
        {"num_iterations": 2, "evolution_interval": 1, "beta": 0.05},
        pytest.param({"teacher_reward": "solvable", "solvable_rounds": 1}, marks=pytest.mark.slow),
    ],
    ids=["plain", "iterations", "late rewards"],
)
def test_resume_is_exact(make_trainer, extra):
    whole = make_trainer(**SETTINGS | extra)
    whole.train()
    wanted, wanted_files = outcome(whole), files(whole.args.output_dir)
    assert wanted["lineage"], "the run must contain an evolution step before and after the checkpoint"

    again = make_trainer(noise=0.5, **SETTINGS | extra)  # other weights: all must come from the checkpoint
    again.train(resume_from_checkpoint=os.path.join(whole.args.output_dir, "checkpoint-2"))
    assert outcome(again) == wanted
    assert files(again.args.output_dir) == wanted_files


def record_of(trainer):
    with open(os.path.join(trainer.args.output_dir, "run.json")) as file:
        return json.load(file)


@pytest.mark.slow
def test_a_resume_with_other_settings_is_told_and_recorded(make_trainer, caplog):
    settings = SETTINGS | {"lr_scheduler_type": "constant", "evolution_interval": 0}
    folder = make_trainer(**settings).args.output_dir
    make_trainer(**settings).train()
    assert record_of(make_trainer(**settings))["resumed"] == []
    changes = {"learning_rate": 1e-6, "seed": 99, "max_grad_norm": 0.5, "logging_first_step": True}
    changes |= {"task_kwargs": {"code_f": {"num_inputs": 5}}, "resume_from_checkpoint": "auto"}
    trainer = make_trainer(**settings | changes)
    trainer.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-2"))
    changed = {"max_grad_norm": [1.0, 0.5], "seed": [42, 99], "task_kwargs.code_f.num_inputs": [4, 5]}
    record = record_of(trainer)
    assert record["resumed"] == [{"step": 2, "changed": changed}]
    assert record["settings"]["seed"] == 99 and record["other_settings"]["max_grad_norm"] == 0.5
    rates = {member.learning_rate for member in trainer.population.values()}
    assert record["settings"]["learning_rate"] == trainer.args.learning_rate == 1e-2 and rates == {1e-2}
    warning = next(text for text in caplog.messages if "other settings" in text)
    assert "From step 2 on" in warning and "seed 42 -> 99" in warning and "max_grad_norm 1.0 -> 0.5" in warning
    assert "no effect: learning_rate 0.01 -> 1e-06." in warning and "logging" not in warning
    trainer.train(resume_from_checkpoint="auto")  # as in a notebook after Ctrl-C: nobody has changed a setting since

    caplog.clear()  # later: kept; and from an earlier step: the change at step 2 is undone and made again
    make_trainer(**settings | changes | {"max_steps": 6}).train(resume_from_checkpoint="auto")
    later = {"step": 4, "changed": {"max_steps": [4, 6]}}
    assert record_of(trainer)["resumed"] == [*record["resumed"], later]
    make_trainer(**settings | {"seed": 7}).train(resume_from_checkpoint=os.path.join(folder, "checkpoint-2"))
    assert record_of(trainer)["resumed"] == [{"step": 2, "changed": {"seed": [42, 7]}}]


@pytest.mark.slow
def test_another_commit_of_the_base_is_told_and_recorded(make_trainer, caplog):
    settings = SETTINGS | {"evolution_interval": 0}
    for commit, checkpoint in (("a", None), ("b", "checkpoint-2")):
        trainer = make_trainer(**settings)
        trainer.base_revision = commit
        trainer.train(resume_from_checkpoint=checkpoint and os.path.join(trainer.args.output_dir, checkpoint))
    assert record_of(trainer)["resumed"] == [{"step": 2, "changed": {"revision": ["a", "b"]}}]
    assert any('other settings than before: revision "a" -> "b"' in text for text in caplog.messages)


@pytest.mark.slow
def test_a_change_that_a_resume_from_before_undoes_is_no_change(make_trainer):
    settings = SETTINGS | {"lr_scheduler_type": "constant", "evolution_interval": 0}
    folder = make_trainer(**settings).args.output_dir
    make_trainer(**settings).train()
    later = settings | {"resize_on_resume": True, "learning_rate": 1e-3, "max_steps": 6}
    make_trainer(**later).train(resume_from_checkpoint="auto")  # new members would learn at this rate
    trainer = make_trainer(**settings)
    trainer.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-2"))
    record = record_of(trainer)
    assert record["resumed"] == [] and record["settings"]["learning_rate"] == trainer.args.learning_rate == 1e-2


@pytest.mark.slow
def test_a_record_by_another_hand_changes_no_rate(make_trainer):
    settings = SETTINGS | {"lr_scheduler_type": "constant", "evolution_interval": 0, "max_steps": 2}
    first = make_trainer(**settings)
    first.train()
    place, record = os.path.join(first.args.output_dir, "run.json"), record_of(first)
    write_json(place, {**record, "settings": 5})
    again = make_trainer(**settings | {"max_steps": 4})
    with pytest.raises(ValueError, match="run.json is damaged .settings is 5"):
        again.check_checkpoint("auto")  # before anything is trained
    del record["settings"]["learning_rate"]  # whose default is GRPO's, and not the run's
    write_json(place, record)
    again.train(resume_from_checkpoint="auto")
    rates = {member.learning_rate for member in again.population.values()}
    assert again.args.learning_rate == record_of(again)["settings"]["learning_rate"] == 1e-2 and rates == {1e-2}


@pytest.mark.slow
def test_a_resume_without_changes_says_nothing_of_settings(make_trainer, caplog):
    make_trainer(**SETTINGS).train()
    trainer = make_trainer(**SETTINGS)
    trainer.train(resume_from_checkpoint=os.path.join(trainer.args.output_dir, "checkpoint-2"))
    assert "settings" not in caplog.text and record_of(trainer)["resumed"] == []
    again = make_trainer(**SETTINGS)
    again.train(resume_from_checkpoint="auto")
    assert "Nothing to do" in caplog.text and "is already at step 4" in caplog.text


@pytest.mark.slow
def test_another_runs_finished_checkpoint_is_refused_and_nothing_is_touched(make_trainer, tmp_path):
    """Its weights would lie beside the record of the run that was here, or beside none."""
    settings = SETTINGS | {"max_steps": 1, "save_steps": 1, "evolution_interval": 0}
    first = make_trainer(**settings)
    first.train()
    checkpoint = os.path.join(first.args.output_dir, "checkpoint-1")
    used = make_trainer(**settings | {"output_dir": str(tmp_path / "used")})
    used.train()
    before = {path: path.read_bytes() for path in (tmp_path / "used").rglob("*") if path.is_file()}
    for name in ("used", "fresh"):
        again = make_trainer(**settings | {"output_dir": str(tmp_path / name), "overwrite_output_dir": True})
        with pytest.raises(ValueError, match="is another run's, at step 1, and this run ends at step 1"):
            again.train(resume_from_checkpoint=checkpoint)
    assert {path: path.read_bytes() for path in (tmp_path / "used").rglob("*") if path.is_file()} == before
    assert not list((tmp_path / "fresh").rglob("history.jsonl"))


@pytest.mark.slow
def test_a_finished_run_is_not_cut_back_while_another_trains_there(make_trainer):
    settings = dict(max_steps=2, save_strategy="steps", save_steps=1)
    make_trainer(**settings).train()
    again = make_trainer(**settings | dict(max_steps=1))
    before = files(again.args.output_dir)
    with taken(again.args.output_dir), pytest.raises(ValueError, match="another run trains there"):
        again.train(resume_from_checkpoint="auto")
    assert files(again.args.output_dir) == before


@pytest.mark.slow
def test_a_second_training_says_that_it_goes_on(make_trainer, caplog):
    """A resume without a checkpoint promises a start from the beginning, which only a new trainer gives."""
    trainer = make_trainer(max_steps=1)
    trainer.train()
    with pytest.raises(ValueError, match="holds no checkpoint, and this trainer has trained already.*new trainer"):
        trainer.train(resume_from_checkpoint="auto")
    assert "trained already" not in caplog.text
    trainer.train()
    assert "This trainer has trained already: its members, ratings and task buffers stay" in caplog.text


@pytest.mark.slow
def test_ages_count_from_the_second_training_on(make_trainer):
    """And what failed in a round that was interrupted is forgotten with its rows."""
    trainer = make_trainer(max_steps=3, evolution_interval=1)
    trainer.train()
    assert any(member.born_step for member in trainer.population.values())
    trainer.guard._struck.add("student_0")
    seen = []

    class Look(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            seen.append(([member.born_step for member in trainer.population.values()], trainer.guard.failing))

    trainer.add_callback(Look())
    trainer.train()
    assert seen == [([0] * 4, set())]


@pytest.mark.slow
def test_a_training_after_nothing_was_left_to_do_is_a_second_one(make_trainer, caplog):
    settings = dict(max_steps=2, evolution_interval=1, save_strategy="steps", save_steps=2)
    make_trainer(**settings).train()
    trainer = make_trainer(**settings)
    trainer.train(resume_from_checkpoint="auto")
    assert "Nothing to do" in caplog.text and "trained already" not in caplog.text
    assert any(member.born_step for member in trainer.population.values())
    trainer.train()
    assert "This trainer has trained already" in caplog.text
    assert [event.step for event in trainer.lineage] == [1, 1, 1, 1]  # no member is too young to be replaced
