"""Past champions as frozen opponents, islands and mutated temperatures, in the trainer."""

import os

import pytest
import torch

from tests.training.conftest import build_trainer, make_config
from tests.training.test_isolation import member_state
from tests.training.test_resume import files, outcome
from trl_populora.evolution import HallOfFame


SETTINGS = dict(max_steps=6, evolution_interval=1, num_teachers=2, num_students=2, hall_of_fame_probability=0.7)
SETTINGS["loss_type"] = "grpo"  # a loss by tokens leaves out rows without an advantage


def watch(trainer):
    """Members whose rows the loss sees, call by call, and the guests' weights after every round."""
    seen, weights = [], []
    loss, begin = trainer._compute_loss, trainer.source.begin

    def compute_loss(model, inputs):
        seen.append(inputs["member_ids"].tolist())
        return loss(model, inputs)

    def begin_round(*args, **kwargs):
        result = begin(*args, **kwargs)
        population = trainer.population
        weights.append([p.detach().clone() for guest in population.guests for p in population.parameters(guest)])
        return result

    trainer._compute_loss, trainer.source.begin = compute_loss, begin_round
    return seen, weights


def note_admissions(trainer):
    """Names of the guests, as they are admitted; each with the weights of a champion."""
    admitted = []
    admit = trainer.population.admit

    def remember(guest, factors, **kwargs):
        admit(guest, factors, **kwargs)
        kept = [champion.factors for champion in trainer.source.hall]
        own = trainer.population.factors(guest)
        is_champion = any(all(torch.equal(own[path].B, one[path].B) for path in own) for one in kept)
        admitted.append(guest if is_champion else f"{guest} of unknown weights")

    trainer.population.admit = remember
    return admitted


@pytest.fixture(scope="module")
def champions(tmp_path_factory):
    """A run with guests: its trainer, its rounds, and what was seen of it."""
    rounds = []
    config = make_config(tmp_path_factory.mktemp("champions"), **SETTINGS)
    trainer = build_trainer(config, on_round=lambda _: rounds.append(trainer.source.played))
    (seen, weights), admitted = watch(trainer), note_admissions(trainer)
    trainer.train()
    trainer.close()
    return trainer, rounds, seen, weights, admitted


@pytest.mark.slow
def test_members_learn_from_their_own_rows_only(champions):
    trainer, rounds, seen, weights, _ = champions
    population = trainer.population
    assert not set(population.guests) & set(population) and len(population.guests) == 2
    assert any(played.record.guest_attempts or played.record.guest_proposals for played in rounds)
    for played in rounds:
        assert len(played.rows) == trainer.args.rows_per_round
        assert {row.player for row in played.rows} == set(population)
    counts = torch.tensor([i for batch in seen for i in batch]).bincount()
    # two proposals of each teacher and four attempts of each student, in each of the six rounds
    assert counts.tolist() == [12, 12, 24, 24]
    guests = [p for guest in population.guests for p in population.parameters(guest)]
    assert all(not p.requires_grad and p.grad is None for p in guests)
    assert all(torch.equal(p, kept) for p, kept in zip(guests, weights[-1]))
    in_groups = {id(p) for group in trainer.optimizer.param_groups for p in group["params"]}
    assert not in_groups & {id(p) for p in guests}


@pytest.mark.slow
def test_guests_are_the_champions_of_the_time(champions):
    trainer, *_, admitted = champions
    assert admitted == ["guest_0", "guest_1"] * 5  # none before the first champions
    assert [c.step for c in trainer.source.hall.of("student")] == [1, 2, 3, 4, 5]  # nobody is replaced at the end


@pytest.mark.slow
def test_resume_is_exact_with_a_hall_of_fame(make_trainer):
    settings = SETTINGS | dict(
        save_strategy="steps",
        save_steps=3,
        evolution_kwargs={"mutate_temperature": True, "operators": ["gaussian", "layerwise"]},
        hall_of_fame_size=2,
        beta=0.05,
    )
    whole = make_trainer(**settings)
    whole.train()
    wanted, wanted_files = outcome(whole), files(whole.args.output_dir)
    champions = [(c.title, c.step) for c in whole.source.hall]
    assert {member.temperature for member in whole.population.values()} != {1.0}
    again = make_trainer(noise=0.5, **settings)
    again.train(resume_from_checkpoint=os.path.join(whole.args.output_dir, "checkpoint-3"))
    assert outcome(again) == wanted and files(again.args.output_dir) == wanted_files
    assert [(c.title, c.step) for c in again.source.hall] == champions
    saved = HallOfFame.load(os.path.join(whole.args.output_dir, "checkpoint-3", "hall_of_fame"))
    assert [c.step for c in saved.of("teacher")] == [1, 3]


@pytest.mark.slow
def test_off_means_no_guests_and_the_run_it_always_was(make_trainer):
    plain = make_trainer(max_steps=3, evolution_interval=1)
    plain.train()
    assert plain.population.guests == () and plain.source.hall is None
    # guests that never play change nobody
    idle = make_trainer(max_steps=3, evolution_interval=1, hall_of_fame_probability=1e-12)
    idle.train()
    assert idle.population.guests == ("guest_0", "guest_1")
    for name in plain.population:
        assert member_state(plain, name) == member_state(idle, name)
    plain.save_model()
    assert not [name for name in os.listdir(plain.args.output_dir) if "guest" in name or "hall" in name]
    idle.save_model()
    assert not [name for name in os.listdir(idle.args.output_dir) if "guest" in name]


@pytest.mark.slow
def test_islands_and_migration_in_a_run(make_trainer):
    trainer = make_trainer(
        max_steps=5,
        evolution_interval=1,
        num_teachers=1,
        num_students=4,
        prompts_per_teacher=4,
        evolution_kwargs={"islands": 2, "migration_interval": 2},
    )
    trainer.train()
    kinds = [(event.step, event.kind, event.slot) for event in trainer.lineage]
    assert [kind for _, kind, _ in kinds] == ["replacement"] * 2 + ["migration"] * 2 + ["replacement"] * 2 + [
        "migration"
    ] * 2
    for event in trainer.lineage:
        homes = {int(name[-1]) // 2 for name, _ in event.parents}
        own = int(event.slot[-1]) // 2
        assert homes == ({own} if event.kind == "replacement" else {1 - own})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"hall_of_fame_probability": 1.5}, "hall_of_fame_probability=1.5"),
        ({"hall_of_fame_probability": 1.0}, "below 1: games with champions are not rated"),
        ({"hall_of_fame_probability": 0.5}, "needs self-play and evolution"),
        ({"hall_of_fame_size": 1}, "hall_of_fame_size=1"),
        ({"evolution_interval": 1, "evolution_kwargs": {"islands": 2}}, "islands=2 does not divide 2 members"),
        ({"evolution_interval": 1, "evolution_kwargs": {"islands": 0}}, "islands and migration_interval"),
    ],
)
def test_settings_that_do_not_fit_are_refused(config, settings, text):
    with pytest.raises(ValueError, match=text):
        config(**settings)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [{}, {"teacher_reward": "solvable", "solvable_rounds": 1}])
def test_a_run_from_the_start_in_the_same_trainer_has_no_champions_or_rows_of_the_last_one(make_trainer, kept):
    trainer = make_trainer(**SETTINGS | {"max_steps": 2} | kept)
    trainer.train()
    trainer.source.self_play.late.load_state_dict(trainer.source.state_dict()["late"], trainer.source.task_types)
    trainer.train()
    assert {champion.step for champion in trainer.source.hall} <= {1, 2}
    assert all(row["round"] < 2 for row in trainer.source.state_dict()["late"])
