"""What a round leads to: replacement, recombination, measured weights, and what is logged of several rounds."""

import pytest
import torch

from tests.tiny import tiny_model
from trl_populora import PopulationSelfPlayConfig, PopulationSelfPlayTrainer
from trl_populora.diagnostics import round_metrics
from trl_populora.training import callbacks


def noted(monkeypatch, name):
    """Arguments of each call, which is made."""
    calls, real = [], getattr(callbacks, name)

    def note(*args, **kwargs):
        calls.append(kwargs | {"seed": kwargs["rng"].initial_seed()} if "rng" in kwargs else kwargs)
        return real(*args, **kwargs)

    monkeypatch.setattr(callbacks, name, note)
    return calls


@pytest.mark.slow
def test_replacement_steps_are_told_their_round_and_have_random_numbers_of_their_own(make_trainer, monkeypatch):
    calls, shape = noted(monkeypatch, "evolve"), dict(num_iterations=2, evolution_interval=2, max_steps=12)
    make_trainer(**shape).train()
    make_trainer(**shape, seed=7).train()
    assert [(one["step"], one["steps_per_round"], one["number"]) for one in calls] == [(4, 2, 1), (8, 2, 2)] * 2
    assert len({one["seed"] for one in calls}) == 4


@pytest.mark.slow
def test_recombination_is_told_who_failed_and_the_islands(make_trainer, monkeypatch):
    calls = noted(monkeypatch, "recombine")
    trainer = make_trainer(recombination_interval=1, recombination_roles="students", max_steps=2, evolution_interval=0)
    trainer.guard.strikes["student_1"] = 3  # frozen
    trainer.train()
    assert calls == [{"roles": ["student"], "islands": 1, "without": {"student_1"}}]


@pytest.mark.parametrize("name", ["on_round", "on_probe"])
def test_a_function_of_rounds_is_one(name):
    with pytest.raises(TypeError, match=f"{name}=3 must be a function of one argument, or None"):
        PopulationSelfPlayTrainer(tiny_model(), args=PopulationSelfPlayConfig(use_cpu=True, bf16=False), **{name: 3})


def test_weights_are_measured_after_every_so_many_rounds(make_trainer):
    rounds = []
    make_trainer(on_round=rounds.append, weight_metrics_interval=2, max_steps=5).train()
    assert [one.round for one in rounds if one.members[0].delta_norm is not None] == [1, 3]


@pytest.mark.slow
def test_what_is_counted_is_summed_over_the_rounds_of_a_log(make_trainer):
    rounds = []
    trainer = make_trainer(on_round=rounds.append, max_steps=4, logging_steps=4, recombination_interval=1)
    trainer.train()
    log = next(log for log in trainer.state.log_history if "evolution/recombined" in log)
    assert log["evolution/recombined"] == sum(len(one.recombined) for one in rounds) == 12
    assert log["round"] == 3 and log["alarms"] == sum(len(one.alarms) for one in rounds)
    fills = [one.fill_rate for one in rounds]
    assert log["fill_rate"] == pytest.approx(sum(fills) / 4)
    metrics = [round_metrics(one) for one in rounds]
    seldom = {
        name for one in metrics for name in one if "/refused/" in name or name.startswith(("executor/", "seconds/"))
    }
    seldom = {name for name in seldom if not all(name in one for one in metrics)}
    assert {"seconds/recombine"} < seldom
    for name in seldom:
        assert log[name] == pytest.approx(sum(one.get(name, 0) for one in metrics) / 4), name


@pytest.mark.slow
@pytest.mark.parametrize("interval", [0, 1])
def test_a_member_is_set_back_to_the_start_or_to_the_last_recombination(make_trainer, interval):
    """And not to the round before: a resumed run would not know those weights."""
    found = []

    def on_round(summary):
        if summary.round == 0:
            own = trainer.population.parameters("student_0")
            now = [p.detach().clone() for p in own]
            with torch.no_grad():
                own[0].fill_(torch.nan)
            assert trainer.guard.inspect() == ["student_0"]
            found.extend([now, [p.detach().clone() for p in own]])

    trainer = make_trainer(on_round=on_round, recombination_interval=interval, recombination_roles="both")
    start = [p.detach().clone() for p in trainer.population.parameters("student_0")]
    trainer.train()
    (now, after), expected = found, found[0] if interval else start
    assert all(torch.equal(a, b) for a, b in zip(after, expected, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(start, now, strict=True))
