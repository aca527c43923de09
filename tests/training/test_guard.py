"""A member whose numbers overflow is set back and reported; the others never notice."""

import json
import math
import os

import pytest
import torch

from tests.tiny import perturb, tiny_population
from tests.training.test_isolation import member_state
from trl_populora.evolution import OPERATORS, Operator
from trl_populora.reporting import read_history
from trl_populora.training.guard import PATIENCE, Guard


class Poison:
    """Makes a member's weights NaN in some steps, between sampling and learning."""

    def __init__(self, name, steps):
        self.name, self.steps = name, set(steps)

    def into(self, trainer):
        loss = trainer._compute_loss

        def poisoned(model, inputs):
            if trainer.state.global_step in self.steps:
                self.steps.remove(trainer.state.global_step)
                with torch.no_grad():
                    trainer.population.parameters(self.name)[1].fill_(math.nan)
            return loss(model, inputs)

        trainer._compute_loss = poisoned


def train(make_trainer, poison=None, **settings):
    rounds = []
    trainer = make_trainer(
        on_round=rounds.append,
        **(dict(max_steps=4, rewards=lambda completions, player, **_: own_reward(completions, player)) | settings),
    )
    if poison:
        poison.into(trainer)
    trainer.train()
    return trainer, rounds


def own_reward(completions, player):
    return [len(set(c[0]["content"])) / 4 for c in completions]


@pytest.mark.slow
def test_others_go_on_bit_for_bit(make_trainer):
    well, _ = train(make_trainer, max_steps=2)
    sick, rounds = train(make_trainer, Poison("student_1", {1}), max_steps=2)
    same = {name for name in well.population if member_state(well, name) == member_state(sick, name)}
    assert same == {"teacher_0", "teacher_1", "student_0"}
    assert all(torch.isfinite(p).all() for p in sick.population.parameters("student_1"))
    (alarm,) = [alarm for summary in rounds for alarm in summary.alarms if "student_1" in alarm]
    assert "reset to" in alarm and alarm in rounds[1].alarms
    summary = {m.name: m for m in rounds[1].members}["student_1"]
    assert summary.grad_norm is None and {m.name: m for m in rounds[0].members}["student_1"].grad_norm is not None


@pytest.mark.slow
def test_frozen_after_three_rounds_until_replaced(make_trainer):
    trainer, rounds = train(make_trainer, Poison("student_1", range(PATIENCE)), max_steps=6, evolution_interval=5)
    assert any("frozen" in alarm for alarm in rounds[PATIENCE - 1].alarms)
    for summary in rounds[PATIENCE:5]:  # nothing is wrong with the weights any more
        assert {m.name: m for m in summary.members}["student_1"].grad_norm is None
    replaced = {event.slot for event in trainer.lineage}
    assert replaced and trainer.guard.frozen("student_1") == ("student_1" not in replaced)


@pytest.mark.slow
def test_a_script_is_told_of_alarms_when_they_begin(make_trainer, caplog):
    trainer = make_trainer(max_steps=4, rewards=lambda completions, player, **_: own_reward(completions, player))
    Poison("student_1", {1, 2}).into(trainer)
    trainer.train()
    told = [list(summary.alarms) for summary in read_history(trainer.args.output_dir)]
    begun = [(n, alarm) for n, own in enumerate(told) for alarm in own if not n or alarm not in told[n - 1]]
    assert any("student_1" in alarm for _, alarm in begun)
    logged = [record.getMessage() for record in caplog.records if record.getMessage().startswith("round ")]
    assert logged == [f"round {n + 1}: {alarm}" for n, alarm in begun]


@pytest.mark.slow
def test_what_is_saved_and_logged_is_finite_and_resumes(make_trainer):
    settings = dict(max_steps=4, save_strategy="steps", save_steps=2)
    whole, _ = train(make_trainer, Poison("teacher_0", {1, 3}), **settings)
    state = {name: member_state(whole, name) for name in whole.population}
    again = make_trainer(rewards=lambda completions, player, **_: own_reward(completions, player), **settings)
    Poison("teacher_0", {3}).into(again)
    again.train(resume_from_checkpoint=os.path.join(whole.args.output_dir, "checkpoint-2"))
    assert {name: member_state(again, name) for name in again.population} == state
    with open(os.path.join(whole.args.output_dir, "history.jsonl")) as file:
        for line in file:
            json.loads(line, parse_constant=lambda value: pytest.fail(f"{value} in the history"))


def test_a_child_that_is_not_finite_replaces_nobody_and_the_run_goes_on(make_trainer, monkeypatch):
    def overflowing(parents, rng):
        rank = len(next(iter(parents[0].values())).A)
        scale = 1.0 if rank == 16 else math.inf  # not on the small adapters of rank 16 on which it is tried
        return {path: factor._replace(B=factor.B * scale) for path, factor in parents[0].items()}

    monkeypatch.setitem(OPERATORS, "clone", Operator(overflowing, 1))
    settings = dict(max_steps=2, evolution_interval=1, evolution_kwargs={"operators": ["clone"]})
    trainer, rounds = train(make_trainer, **settings)
    assert trainer.state.global_step == 2 and not len(trainer.lineage)
    (alarm,) = [alarm for alarm in rounds[0].alarms if "replaced" in alarm]
    assert alarm.startswith("nobody was replaced: The child of") and "'clone' is not finite" in alarm


def test_guard_alone():
    population = tiny_population()
    guard = Guard(population)
    guard.remember()
    before = [p.clone() for p in population.parameters("student_0")]
    with torch.no_grad():
        population.parameters("student_0")[0].fill_(math.inf)
    assert guard.inspect() == ["student_0"] and guard.inspect() == []
    assert all(torch.equal(a, b) for a, b in zip(before, population.parameters("student_0"), strict=True))
    (alarm,) = guard.end_round()
    assert "student_0: weights that are not finite" in alarm and guard.strikes == {"student_0": 1}
    well = dict.fromkeys(population, 1.0)
    norms = well | {"teacher_1": math.nan}
    for _ in range(PATIENCE):  # several optimizer steps of one round count once
        assert guard.hold_back(norms) == ["teacher_1"]
    assert guard.hold_back(well) == ["teacher_1"], "no step in the rest of the round"
    guard.end_round()
    assert guard.strikes == {"teacher_1": 1}
    assert guard.hold_back(well) == [] and guard.end_round() == () and not guard.strikes
    for _ in range(PATIENCE):
        assert guard.hold_back(norms) == ["teacher_1"]
        alarms = guard.end_round()
    assert len(alarms) == 2 and "frozen after 3" in alarms[1]
    assert guard.hold_back(well) == ["teacher_1"], "frozen, whatever its gradient"
    guard.born("teacher_1")
    assert guard.hold_back(well) == [] and guard.end_round() == ()


def test_a_child_is_not_blamed_for_its_predecessor():
    """Struck and replaced in the same round: the child is remembered as it was born, and counts no strike."""
    population = tiny_population()
    guard = Guard(population)
    guard.remember()
    guard.hold_back(dict.fromkeys(population, 1.0) | {"student_0": math.nan})
    population.write("student_0", population.factors("student_1"))
    guard.born("student_0")
    guard.end_round()
    assert not guard.strikes
    with torch.no_grad():
        population.parameters("student_0")[1].fill_(math.inf)
    assert guard.inspect() == ["student_0"]
    pairs = zip(population.parameters("student_0"), population.parameters("student_1"), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_birth_remembers_the_child_alone():
    """A resumed run would set the others back to the weights of the checkpoint, too."""
    population = tiny_population()
    guard = Guard(population)
    guard.remember()
    before = [p.clone() for p in population.parameters("student_1")]
    with torch.no_grad():
        for p in population.parameters("student_1"):
            p.add_(1.0)  # it has learned since
        guard.born("student_0")
        population.parameters("student_1")[0].fill_(math.inf)
    assert guard.inspect() == ["student_1"]
    assert all(torch.equal(a, b) for a, b in zip(before, population.parameters("student_1"), strict=True))


def test_an_infinite_gradient_is_held_back():
    population = tiny_population()
    guard = Guard(population)
    guard.remember()
    assert guard.hold_back(dict.fromkeys(population, 1.0) | {"student_1": math.inf}) == ["student_1"]
    (alarm,) = guard.end_round()
    assert alarm == "student_1: gradient norm inf; reset to its last stored weights"


def test_failures_and_weights_are_those_of_the_checkpoint():
    """A member that was about to be frozen is frozen after a resume, too; it is set back to what was loaded."""
    population = tiny_population()
    guard = Guard(population)
    guard.remember()
    norms = dict.fromkeys(population, 1.0) | {"student_1": math.nan}
    for _ in range(PATIENCE - 1):
        guard.hold_back(norms)
        guard.end_round()
    state = json.loads(json.dumps(guard.state_dict()))
    perturb(population, 0.3, seed=1)  # as if these weights had been loaded
    loaded = [p.clone() for p in population.parameters("student_1")]
    again = Guard(population)
    again.load_state_dict(state)
    with torch.no_grad():
        population.parameters("student_1")[0].add_(1.0)
    again.hold_back(norms)
    assert all(torch.equal(a, b) for a, b in zip(loaded, population.parameters("student_1"), strict=True))
    assert "frozen after 3" in again.end_round()[-1] and again.frozen("student_1")
