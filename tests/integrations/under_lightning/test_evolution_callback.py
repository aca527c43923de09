"""The callback: when it evolves and by what, what a child starts with, and that a resumed run is exact."""

import json
import math

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, GradientAccumulationScheduler, ModelCheckpoint

from tests.drawn_examples import FULL
from tests.integrations.under_lightning import toys
from tests.tiny import tiny_population
from trl_populora.evolution import replay
from trl_populora.integrations.lightning import EvolutionCallback, PopulationModule, causal_lm_loss


OF_THE_TRAINER = ("val_check_interval", "accumulate_grad_batches", "max_steps", "min_steps", "min_epochs")


def fit(
    folder, *, students=4, epochs=4, samples=6, callbacks=(), ckpt_path=None, schedule=None, sized=True, **settings
):
    """Three batches in each epoch; returns the population, the callback and the trainer."""
    members = toys.population(students)
    trainer_settings = {key: settings.pop(key) for key in OF_THE_TRAINER if key in settings}
    evolution = EvolutionCallback("val_loss", **({"operators": ("gaussian", "layerwise")} | settings))
    fitting = toys.trainer(folder, max_epochs=epochs, callbacks=[evolution, *callbacks], **trainer_settings)
    train, val = toys.loader(samples, members), toys.loader(3, members, seed=1, shuffle=False)
    train = train if sized else Endless(train)
    module = toys.module(members, schedule=schedule)
    fitting.fit(module, train, val, ckpt_path=ckpt_path)
    return members, evolution, fitting


class Endless:
    """A loader that does not say how many batches it has."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


class Recorder(lightning.Callback):
    """What each validation found, before evolution; and the weights then and afterwards."""

    def __init__(self, members=None):
        self.seen = []

    def on_validation_epoch_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            self.seen.append({"step": trainer.global_step, "before": toys.weights(pl_module.population)})

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            metrics = {k: float(v) for k, v in trainer.callback_metrics.items()}
            optimizer = trainer.optimizers[0]
            moments = {n: [p in optimizer.state for p in own] for n, own in pl_module.adapters.items()}
            self.seen[-1] |= {"metrics": metrics, "after": toys.weights(pl_module.population), "moments": moments}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_worst_makes_room_for_a_child_of_the_best(tmp_path, mode):
    recorder = Recorder()
    members, evolution, _ = fit(tmp_path, mode=mode, operators=("clone",), callbacks=[recorder])
    events = list(evolution.lineage)
    assert [event.step for event in events] == [3, 6, 9]  # each epoch but the last
    sign = -1 if mode == "min" else 1
    for event, record in zip(events, recorder.seen):
        values = {name: sign * record["metrics"][f"val_loss/{name}"] for name in members}
        assert event.slot == min(values, key=values.get)
        assert event.parents[0][0] == max(values, key=values.get)
        assert event.fitness == values
        assert toys.equal({"": record["after"][event.slot]}, {"": record["before"][event.parents[0][0]]})
        assert record["moments"] == {name: [name != event.slot] * len(own) for name, own in record["before"].items()}
    assert sum(member.version for member in members.values()) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"interval": 2}, [6]),
        ({"unit": "validations", "interval": 3, "val_check_interval": 1}, [3, 6, 9]),
        ({"unit": "validations", "interval": 2, "val_check_interval": 1}, [2, 4, 6, 8, 10]),
        ({"unit": "epochs", "interval": 1, "val_check_interval": 2}, [5, 8, 11]),  # no validation ends an epoch
    ],
)
def test_interval_counts_epochs_or_validations(tmp_path, settings, steps):
    _, evolution, _ = fit(tmp_path, **settings)
    assert [event.step for event in evolution.lineage] == steps


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"sized": False}, [3, 6]),
        ({"sized": False, "max_steps": 1000}, [3, 6]),
        ({"sized": False, "max_steps": 6}, [3]),
        ({"callbacks": [GradientAccumulationScheduler({0: 2, 1: 1})]}, [2, 5]),
        ({"callbacks": [GradientAccumulationScheduler({0: 1, 2: 3})], "epochs": 4}, [3, 6, 7]),
    ],
    ids=["no length", "no length, many steps", "no length, few steps", "accumulates less", "accumulates more"],
)
def test_all_epochs_but_the_last_end_in_evolution(tmp_path, settings, steps):
    _, evolution, _ = fit(tmp_path, **({"epochs": 3} | settings))
    assert [event.step for event in evolution.lineage] == steps


@pytest.mark.parametrize(
    ("least", "steps", "end"),
    [({"min_epochs": 4}, [3, 6, 9], 12), ({"min_steps": 10}, [3, 6, 9], 10), ({}, [3], 6)],
)
def test_a_stop_counts_once_lightning_heeds_it(tmp_path, least, steps, end):
    class Stop(lightning.Callback):
        def on_train_batch_end(self, trainer, *args):
            trainer.should_stop = trainer.should_stop or trainer.global_step == 6

    _, evolution, fitting = fit(tmp_path, epochs=5, callbacks=[Stop()], **least)
    assert [event.step for event in evolution.lineage] == steps and fitting.global_step == end


def test_two_validations_at_one_optimizer_step_evolve_once(tmp_path):
    settings = {"unit": "validations", "val_check_interval": 1, "accumulate_grad_batches": 3}
    _, evolution, _ = fit(tmp_path, epochs=3, callbacks=[saving(tmp_path, save_on_train_epoch_end=True)], **settings)
    assert [event.step for event in evolution.lineage] == [1, 2]
    _, resumed, _ = fit(tmp_path / "resumed", epochs=3, ckpt_path=str(tmp_path / "step=1.ckpt"), **settings)
    assert list(resumed.lineage) == list(evolution.lineage)


def with_scheduler(make):
    class Scheduled(PopulationModule):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": make(optimizer), "interval": "step"}}

    return Scheduled


def one_cycle(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=9, cycle_momentum=False)


def cyclic(optimizer):
    return torch.optim.lr_scheduler.CyclicLR(optimizer, 1e-3, 1e-2, cycle_momentum=False)


def test_a_child_with_the_rate_of_its_slot_stays_on_the_schedule(tmp_path):
    rates = []

    class Rates(with_scheduler(one_cycle)):
        def on_before_optimizer_step(self, optimizer):
            super().on_before_optimizer_step(optimizer)
            rates.append({group["lr"] for group in optimizer.param_groups})

    members = toys.population(2)
    evolution = EvolutionCallback("val_loss", operators=("gaussian",))
    fitting = toys.trainer(tmp_path, max_epochs=3, callbacks=[evolution])
    fitting.fit(Rates(members, causal_lm_loss), toys.loader(4, members), toys.loader(2, members))
    assert [event.step for event in evolution.lineage] == [2, 4] and [len(own) for own in rates] == [1] * 6


@pytest.mark.slow
def test_a_child_starts_at_its_own_learning_rate_at_the_schedules_place(tmp_path):
    def schedule(step):
        return 1 / (1 + step)

    members, evolution, fitting = fit(tmp_path, mutate_learning_rate=True, operators=("clone",), schedule=schedule)
    assert {event.learning_rate for event in evolution.lineage} - {1e-2, None}
    for group in fitting.optimizers[0].param_groups:
        rate = members[group["name"]].learning_rate
        assert group["initial_lr"] == rate and group["lr"] == pytest.approx(rate * schedule(12))


@pytest.mark.slow
def test_a_child_trains_like_a_run_that_starts_with_it(tmp_path):
    """Moments dropped for real: from the event on, a fresh optimizer gives the same weights."""
    recorder = Recorder()
    members, evolution, _ = fit(tmp_path, epochs=2, operators=("clone",), callbacks=[recorder])
    (event,) = evolution.lineage
    fresh = toys.population(4)
    for name, own in recorder.seen[0]["after"].items():
        for parameter, value in zip(fresh.parameters(name), own, strict=True):
            parameter.data.copy_(value)
    train = toys.loader(6, fresh)
    fitting = toys.trainer(tmp_path, max_epochs=1)
    module = toys.module(fresh)
    module.on_train_epoch_start = lambda: train.set_epoch(1)  # the second epoch's order
    fitting.fit(module, train)
    assert toys.equal({"": toys.weights(fresh)[event.slot]}, {"": toys.weights(members)[event.slot]})
    other = next(name for name in members if name != event.slot)
    assert not toys.equal({"": toys.weights(fresh)[other]}, {"": toys.weights(members)[other]})


@pytest.mark.slow
def test_another_run_with_the_same_callback_counts_anew(tmp_path):
    members = toys.population(3)
    evolution = EvolutionCallback("val_loss", operators=("gaussian",))
    for _ in range(2):
        fitting = toys.trainer(tmp_path, max_epochs=3, callbacks=[evolution])
        fitting.fit(toys.module(members), toys.loader(4, members), toys.loader(2, members))
    assert [event.step for event in evolution.lineage] == [2, 4, 2, 4]


# Checkpoints, lineage, replay ---------------------------------------------------------------------------------------


def saving(folder, **settings):
    return ModelCheckpoint(folder, filename="{step}", save_top_k=-1, **settings)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.sized
@pytest.mark.parametrize(
    ("when", "steps", "unit"),
    [
        slow({"every_n_epochs": 1, "save_on_train_epoch_end": False}, (3, 6), "epochs"),
        slow({"every_n_train_steps": 1}, (1, 2, 4, 5), "epochs"),
        slow({"every_n_epochs": 1, "save_on_train_epoch_end": True}, (3, 6), "epochs"),
        slow({"monitor": "val_loss", "save_on_train_epoch_end": False}, (1, 3, 4, 8), "validations"),
    ],
    ids=["after validation", "inside epochs", "after epochs", "after every batch"],
)
def test_a_resumed_run_is_the_run_never_stopped(tmp_path, when, steps, unit):
    settings = {"mutate_learning_rate": True, "unit": unit, "schedule": lambda step: 1 / (1 + step)}
    if unit == "validations":
        settings |= {"interval": 2, "val_check_interval": 1, "islands": 2, "migration_interval": 2}
    members, evolution, fitting = fit(tmp_path / "whole", callbacks=[saving(tmp_path, **when)], **settings)
    assert len(evolution.lineage) >= 3
    for step in steps if FULL else steps[::2]:
        path = str(tmp_path / f"step={step}.ckpt")
        assert any(event.step > step for event in evolution.lineage)
        again, resumed, after = fit(tmp_path / f"from {step}", ckpt_path=path, **settings)
        assert toys.equal(toys.weights(members), toys.weights(again)), step
        assert list(resumed.lineage) == list(evolution.lineage), step
        assert dict(members) == dict(again), step
        assert str(after.optimizers[0].state_dict()) == str(fitting.optimizers[0].state_dict()), step
        assert after.callback_metrics == fitting.callback_metrics, step


@pytest.mark.slow
def test_a_checkpoint_that_lightning_cannot_go_on_from_exactly_is_warned_of(tmp_path):
    """Written after the last batch of an epoch, before its validation."""
    with pytest.warns(UserWarning, match="step 3 is written before the validation that is due there") as caught:
        fit(tmp_path, epochs=1, callbacks=[saving(tmp_path, every_n_train_steps=1)])
    assert sum("is due there" in str(warning.message) for warning in caught) == 1


@pytest.mark.slow
def test_dropout_in_the_base_is_resumed_exactly(tmp_path):
    def run(folder, ckpt_path=None):
        torch.manual_seed(5 if ckpt_path is None else 6)
        members = toys.population(2)
        members.base_model.config.attention_dropout = 0.5
        for part in members.model.modules():
            if hasattr(part, "attention_dropout"):
                part.attention_dropout = 0.5
        members.model.train()
        fitting = toys.trainer(folder, max_epochs=2, callbacks=[saving(tmp_path, every_n_train_steps=1)])
        torch.manual_seed(5 if ckpt_path is None else 6)
        fitting.fit(toys.module(members), toys.loader(6, members), ckpt_path=ckpt_path)
        return toys.weights(members)

    whole = run(tmp_path / "a")
    assert toys.equal(whole, run(tmp_path / "b", str(tmp_path / "step=2.ckpt")))
    assert not toys.equal(whole, toys.weights(fit(tmp_path / "c", students=2, epochs=2)[0]))


@pytest.mark.slow
def test_children_are_made_again_from_checkpoints(tmp_path):
    members, evolution, _ = fit(
        tmp_path, callbacks=[saving(tmp_path, every_n_epochs=1)], lineage_file=tmp_path / "lineage.jsonl"
    )
    lines = (tmp_path / "lineage.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == json.loads(json.dumps([e.to_json() for e in evolution.lineage]))
    for event in evolution.lineage:
        loaded = toys.population(4, noise=0.0)
        path = tmp_path / f"step={event.step}.ckpt"
        PopulationModule.load_from_checkpoint(path, population=loaded, loss=causal_lm_loss)
        loaded.save(tmp_path / f"at {event.step}")
        child = replay(event, [tmp_path / f"at {event.step}"])
        for path, factor in loaded.factors(event.slot).items():
            assert torch.equal(child[path].A, factor.A) and torch.equal(child[path].B, factor.B)


@pytest.mark.slow
def test_the_lineage_file_is_that_of_the_run(tmp_path):
    path = tmp_path / "lineage.jsonl"
    fit(tmp_path / "a", callbacks=[saving(tmp_path, every_n_epochs=1)], lineage_file=path)
    whole = path.read_text()
    with pytest.raises(ValueError, match="holds the lineage of another run"):
        fit(tmp_path / "b", lineage_file=path)
    fit(tmp_path / "c", lineage_file=path, ckpt_path=str(tmp_path / "step=6.ckpt"))
    other = tmp_path / "other.jsonl"
    fit(tmp_path / "d", lineage_file=other, seed=9)
    before = other.read_bytes()
    with pytest.raises(ValueError, match="other.jsonl holds the lineage of another run"):
        fit(tmp_path / "e", lineage_file=other, ckpt_path=str(tmp_path / "step=6.ckpt"))
    assert before and other.read_bytes() == before
    assert path.read_text() == whole and len(whole.splitlines()) == 3


# Members that diverge -----------------------------------------------------------------------------------------------


class Diverged(PopulationModule):
    def log_rows(self, metric, values, members, counts=None):
        values = torch.tensor([math.nan if name == "student_2" else float(v) for name, v in zip(members, values)])
        super().log_rows(metric, values, members, counts)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:val_loss of")
@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_member_whose_metric_is_not_finite_is_the_worst(tmp_path, mode):
    members = toys.population(3)
    path = tmp_path / "lineage.jsonl"
    evolution = EvolutionCallback("val_loss", mode=mode, operators=("gaussian",), lineage_file=path)
    fitting = toys.trainer(tmp_path, max_epochs=2, callbacks=[evolution])
    fitting.fit(Diverged(members, causal_lm_loss), toys.loader(4, members), toys.loader(2, members))
    assert [event.slot for event in evolution.lineage] == ["student_2"]
    assert json.loads(path.read_text(), parse_constant=pytest.fail)["rating_before"] == [None, 0.0]


@pytest.mark.filterwarnings("ignore:val_loss of")
def test_nobody_is_replaced_where_the_diverged_would_have_to_breed(tmp_path):
    members = toys.population(3)
    with torch.no_grad():
        for name in list(members)[1:]:
            members.parameters(name)[1].fill_(math.nan)
    evolution = EvolutionCallback("val_loss", operators=("average",))
    fitting = toys.trainer(tmp_path, max_epochs=2, callbacks=[evolution])
    with pytest.warns(UserWarning, match="Nobody was replaced at step 2: .*not finite"):
        fitting.fit(toys.module(members), toys.loader(4, members), toys.loader(2, members))
    assert not len(evolution.lineage)


@pytest.mark.filterwarnings("ignore:val_loss of")
def test_a_diverged_member_does_not_stop_the_run_at_its_replacement(tmp_path):
    members = toys.population(3)
    with torch.no_grad():
        members.parameters("student_1")[1].fill_(math.nan)
    evolution = EvolutionCallback("val_loss", operators=("gaussian",))
    fitting = toys.trainer(tmp_path, max_epochs=2, callbacks=[evolution, EarlyStopping("val_loss", patience=9)])
    fitting.fit(toys.module(members), toys.loader(4, members), toys.loader(2, members))
    assert [event.slot for event in evolution.lineage] == ["student_1"] and fitting.global_step == 4
    assert math.isfinite(fitting.callback_metrics["val_loss/student_1"])


class Scores(PopulationModule):
    """Members score their number. After the first epoch, there are no rows of one of them."""

    lost = ""

    def validation_step(self, batch, batch_idx):
        names = [name for name in self.population if name != self.lost or not self.trainer.current_epoch]
        self.log_rows("score", torch.tensor([float(name[-1]) for name in names]), names)


def fit_without_rows_of(lost, folder):
    members = toys.population(3)
    evolution = EvolutionCallback("score", mode="max", operators=("gaussian",))
    module = Scores(members, causal_lm_loss)
    module.lost = lost
    fitting = toys.trainer(folder, max_epochs=4, callbacks=[evolution])
    try:
        fitting.fit(module, toys.loader(4, members), toys.loader(2, members))
    finally:
        assert {event.slot for event in evolution.lineage} == {"student_0"}
    return evolution


def test_a_child_is_not_measured_by_its_predecessors_metric(tmp_path):
    with pytest.raises(ValueError, match="student_0 has been replaced, and no score/student_0 has been logged"):
        fit_without_rows_of("student_0", tmp_path)


def test_a_member_that_was_not_replaced_keeps_its_latest_metric(tmp_path):
    evolution = fit_without_rows_of("student_2", tmp_path)
    assert [event.step for event in evolution.lineage] == [2, 4, 6]


# Refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"metric": ""}, "metric is the name of a logged metric"),
        ({"mode": "least"}, "mode must be 'min' if a smaller val_loss is better.*'least'"),
        ({"unit": "steps"}, "unit is one of .*'steps'"),
        ({"interval": 0}, "interval.*at least 1"),
        ({"fraction": 0.9}, "fraction"),
        ({"operators": ("gausian",)}, "Did you mean 'gaussian'"),
    ],
)
def test_bad_settings_are_refused_at_construction(bad, message):
    with pytest.raises(ValueError, match=message):
        EvolutionCallback(**({"metric": "val_loss"} | bad))


def test_a_metric_that_nobody_logs_is_refused_before_training(tmp_path):
    members = toys.population(2)
    fitting = toys.trainer(tmp_path, max_epochs=1, callbacks=[EvolutionCallback("val_los")])
    with pytest.raises(ValueError, match=r"No val_los/student_0.*Metrics logged by member: \['val_loss'\]"):
        fitting.fit(toys.module(members), toys.loader(4, members), toys.loader(2, members))
    assert fitting.global_step == 0


def test_a_member_without_validation_rows_is_named(tmp_path):
    members = toys.population(2)
    fitting = toys.trainer(tmp_path, max_epochs=1, callbacks=[EvolutionCallback("val_loss")])
    with pytest.raises(ValueError, match="No val_loss/student_1 has been logged"):
        fitting.fit(toys.module(members), toys.loader(4, members), toys.loader(2, ["student_0"]))


@pytest.mark.parametrize(
    ("members", "settings", "message"),
    [
        ((1, 1), {}, "evolution needs at least two members of a role"),
        ((0, 3), {"islands": 2}, "island"),
    ],
)
def test_populations_that_cannot_evolve_are_refused(tmp_path, members, settings, message):
    members = tiny_population(*members)
    fitting = toys.trainer(tmp_path, max_epochs=1, callbacks=[EvolutionCallback("val_loss", **settings)])
    with pytest.raises(ValueError, match=message):
        fitting.fit(toys.module(members), toys.loader(4, members), toys.loader(2, members))


def test_learning_rates_that_no_optimizer_would_get_are_refused(tmp_path):
    """The lineage would name rates that nobody trains with."""

    class OneGroup(PopulationModule):
        def configure_optimizers(self):
            return torch.optim.Adam([p for name in self.population for p in self.population.parameters(name)], lr=1e-3)

    members = toys.population(2)
    evolution = EvolutionCallback("val_loss", mutate_learning_rate=True)
    fitting = toys.trainer(tmp_path, max_epochs=1, callbacks=[evolution])
    with pytest.raises(ValueError, match="there is none for student_0, student_1. Leave configure_optimizers out"):
        fitting.fit(OneGroup(members, causal_lm_loss), toys.loader(4, members), toys.loader(2, members))


@pytest.mark.parametrize(("make", "name"), [(one_cycle, "OneCycleLR"), (cyclic, "CyclicLR")])
def test_schedulers_that_do_not_follow_mutated_rates_are_refused(tmp_path, make, name):
    members = toys.population(2)
    evolution = EvolutionCallback("val_loss", mutate_learning_rate=True)
    fitting = toys.trainer(tmp_path, max_epochs=1, callbacks=[evolution])
    with pytest.raises(ValueError, match=f"does not work with {name}, .*max_lr.*Use schedule="):
        fitting.fit(with_scheduler(make)(members, causal_lm_loss), toys.loader(4, members), toys.loader(2, members))


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork", "ddp_notebook"])
def test_strategies_whose_processes_take_the_lineage_with_them_are_refused(tmp_path, strategy):
    fitting = toys.trainer(tmp_path, devices=2, strategy=strategy)
    with pytest.raises(ValueError, match=r"by '(spawn|fork)', as ddp_spawn.*Use strategy='ddp'"):
        EvolutionCallback("val_loss").setup(fitting, toys.module(toys.population(2)), "fit")


def test_other_modules_and_runs_without_validation_are_refused(tmp_path):
    from lightning.pytorch.demos.boring_classes import BoringModel

    with pytest.raises(ValueError, match="needs a PopulationModule, got BoringModel"):
        toys.trainer(tmp_path, max_epochs=1, callbacks=[EvolutionCallback("val_loss")]).fit(BoringModel())
    members = toys.population(2)
    with pytest.raises(ValueError, match="Without validation there is no val_loss"):
        toys.trainer(tmp_path, max_epochs=1, callbacks=[EvolutionCallback("val_loss")]).fit(
            toys.module(members), toys.loader(4, members)
        )
