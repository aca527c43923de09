"""Invariant 6: a run resumed from a checkpoint is the run that was never stopped, bit for bit."""

import json
import os

import pytest

from tests.training.test_isolation import member_state


SETTINGS = dict(max_steps=4, save_strategy="steps", save_steps=2, evolution_interval=2, lr_scheduler_type="linear")


def outcome(trainer):
    return {
        "members": {name: member_state(trainer, name) for name in trainer.population},
        "table": [member.to_json() for member in trainer.population.values()],
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
