"""Games against the founders: what they mean, that they cost no more than they must, and that they leave nothing."""

import os
from dataclasses import replace

import pytest
import torch

from tests.tiny import perturb
from tests.training.conftest import Altered
from tests.training.victim import plausible
from trl_populora.executor import Status
from trl_populora.training.founders import Founders


PROBED = dict(eval_strategy="steps", eval_steps=2, probe_kwargs={"exams": [], "founders": 2}, task_types=["code_o"])
TASK = "```python\ndef f(x, new={}):\n    return [x, 0]\n```\n```input\n0\n```"


def scripted(trainer, right):
    """Teachers write tasks whose answer is [0, 0]; who gives it is told by `right(adapter)`."""

    def change(drawn, members):
        def text(one, member):
            if member.startswith("teacher") and member != "teacher_1":
                return TASK.format(list(one.ids))
            return "```output\n[0, 0]\n```" if right(member) else "```output\n[1, 1]\n```"

        return [one._replace(text=text(one, member)) for one, member in zip(drawn, members, strict=True)]

    trainer.source.sampler = Altered(trainer.source.sampler, change)
    trainer.source.self_play.lengths = None


@pytest.mark.slow
def test_what_the_shares_mean(make_trainer):
    """Founders, who play as a guest, solve nothing; student_0 of today solves everything; teacher_1 writes nothing."""
    records = []
    trainer = make_trainer(**PROBED)
    trainer.on_probe = records.append
    scripted(trainer, lambda member: member == "student_0")
    trainer.train()
    assert [one["step"] for one in records] == [0, 2]
    for record in records:
        games = record["founders"]
        assert games["tasks"] == 2 and games["founders"] == ["student_0", "student_1"]
        assert games["students"] == {"student_0": {"solved": 1.0}, "student_1": {"solved": 0.0}}
        assert games["teachers"]["teacher_0"] == {
            "proposals": 2, "valid": 1.0, "tasks": 2, "unsolved": 1.0, "unsolved_now": 0.5
        }  # fmt: skip
        assert games["teachers"]["teacher_1"] == {
            "proposals": 2, "valid": 0.0, "tasks": 0, "unsolved": None, "unsolved_now": None
        }  # fmt: skip


@pytest.mark.slow
def test_the_table_has_what_the_shares_are_made_of(make_trainer):
    trainer = make_trainer(**PROBED)
    scripted(trainer, lambda member: member == "student_0")
    trainer.probes.begin(step=0)
    record, rows = trainer.probes.measure(step=0, round=0)
    games, answers = record["founders"], [row for row in rows if row["exam"] == "proposals"]
    assert games["authors"]["teacher_1"] == []
    assert sorted(games["authors"]["teacher_0"]) == sorted({row["question"] for row in answers})
    for kind, then in (("unsolved", True), ("unsolved_now", False)):
        lost = [row["verdict"] != "solved" for row in answers if row["player"].endswith("@0") == then]
        assert games["teachers"]["teacher_0"][kind] == sum(lost) / len(lost)


@pytest.mark.slow
def test_equal_founders_play_as_one(make_trainer):
    """Fresh adapters do nothing, whatever their A; after a warm start all of a role have one's weights."""
    trainer = make_trainer(noise=0, **PROBED)
    asked = []
    founders, examiner = trainer.probes.founders, trainer.probes.examiner
    trainer.source.sampler = Altered(trainer.source.sampler, lambda drawn, members: asked.extend(members) or drawn)
    founders.start(examiner)
    assert list(founders.students) == ["student_0"] and asked == ["teacher_0"] * 2
    population = trainer.population
    perturb(population, 0.1)
    population.write("student_1", population.factors("student_0"))
    founders.start(examiner)
    assert list(founders.students) == ["student_0"] and asked[2:] == ["teacher_0"] * 2 + ["teacher_1"] * 2


def test_founders_that_differ_in_one_number_play_both(make_trainer):
    """B is zero elsewhere, as in adapters that were trained in some layers only."""
    trainer = make_trainer(noise=0, **PROBED)
    factors = trainer.population.factors("student_1")
    next(iter(factors.values())).B.data[0, 0] = 0.1
    trainer.probes.founders.start(trainer.probes.examiner)
    assert list(trainer.probes.founders.students) == ["student_0", "student_1"]


@pytest.mark.slow
def test_founders_stay_as_they_were(make_trainer):
    trainer = make_trainer(**PROBED, save_strategy="steps", save_steps=2, max_completion_length=8)
    trainer.source.sampler = Altered(trainer.source.sampler, plausible)
    trainer.source.self_play.lengths = None
    began = {
        name: [p.detach().clone() for p in trainer.population.parameters(name)] for name in ("student_0", "student_1")
    }
    trainer.train()
    founders = trainer.probes.founders
    for name, weights in began.items():
        kept = [X for factor in founders.students[name].values() for X in (factor.A, factor.B)]
        assert all(torch.equal(mine, then) for mine, then in zip(kept, weights, strict=True))
        assert any(not torch.equal(p, w) for p, w in zip(trainer.population.parameters(name), weights))
    guest = trainer.population.guests[-1]
    assert not any(factor.B.any() for factor in trainer.population.factors(guest).values())
    folder = os.path.join(trainer.args.output_dir, "checkpoint-2", "founders")
    assert sorted(os.listdir(folder)) == ["student_0.safetensors", "student_1.safetensors"]

    other = make_trainer(noise=0.7, **PROBED)
    other._load_from_checkpoint(os.path.dirname(folder))
    assert other.probes.founders.tasks == founders.tasks and founders.tasks
    for name, factors in other.probes.founders.students.items():
        for path, factor in factors.items():
            assert torch.equal(factor.B, founders.students[name][path].B)


@pytest.mark.slow
def test_founders_answer_with_the_weights_that_they_had(make_trainer):
    trainer = make_trainer(**PROBED)
    scripted(trainer, lambda member: True)
    trainer.probes.begin(step=0)
    founders, population, used = trainer.probes.founders, trainer.population, []
    perturb(population, 0.1)  # members have learned since
    guest = population.guests[-1]

    def note(drawn, members):
        if set(members) == {guest}:
            used.append([X.clone() for factor in population.factors(guest).values() for X in (factor.A, factor.B)])
        return drawn

    trainer.source.sampler = Altered(trainer.source.sampler, note)
    trainer.probes.measure(step=2, round=1)
    assert len(used) == len(founders.students) == 2
    for weights, factors in zip(used, founders.students.values(), strict=True):
        then = [X for factor in factors.values() for X in (factor.A, factor.B)]
        assert all(torch.equal(mine, own) for mine, own in zip(weights, then, strict=True))


@pytest.mark.slow
def test_prompts_are_a_function_of_the_seed(make_trainer):
    def prompts(**settings):
        source = make_trainer(**PROBED | settings).source
        return [request.prompt for request in Founders(source, prompts=3).requests]

    assert prompts() == prompts() and len(prompts()) == 3
    assert prompts() != prompts(seed=1)


@pytest.mark.slow
def test_nothing_enters_the_game(make_trainer):
    trainer = make_trainer(**PROBED)
    scripted(trainer, lambda member: True)
    before = trainer.source.state_dict(), trainer.ratings.state_dict()
    trainer.probes.begin(step=0)
    record, rows = trainer.probes.measure(step=0, round=0)
    assert (trainer.source.state_dict(), trainer.ratings.state_dict()) == before
    assert not trainer.source.execution_counts
    assert record["founders"]["tasks"] == 2 and {row["exam"] for row in rows} == {"founders", "proposals"}
    assert {row["player"] for row in rows} == {"student_0", "student_1", "student_0@0", "student_1@0"}


@pytest.mark.slow
@pytest.mark.parametrize("prompts, guests", [(0, ()), (1, ("guest_0",))])
def test_a_guest_is_there_only_for_founders(make_trainer, prompts, guests):
    trainer = make_trainer(**PROBED | {"probe_kwargs": {"exams": ["held_out[:1]"], "founders": prompts}})
    assert trainer.population.guests == guests


def two_authors(trainer):
    """Every answer of today is [0, 0], which solves the tasks of teacher_0 alone; founders answer [1, 1]."""

    def change(drawn, members):
        def text(one, member):
            if member.startswith("teacher"):
                task = TASK.format(list(one.ids))
                return task if member == "teacher_0" else task.replace("[x, 0]", "[x + 1, 1]")
            return "```output\n[0, 0]\n```" if member.startswith("student") else "```output\n[1, 1]\n```"

        return [one._replace(text=text(one, member)) for one, member in zip(drawn, members, strict=True)]

    trainer.source.sampler = Altered(trainer.source.sampler, change)
    trainer.source.self_play.lengths = None


@pytest.mark.slow
def test_a_teacher_is_judged_by_its_own_tasks(make_trainer):
    trainer = make_trainer(**PROBED)
    two_authors(trainer)
    trainer.probes.begin(step=0)
    record, rows = trainer.probes.measure(step=0, round=0)
    games = record["founders"]
    lost = {name: (told["unsolved"], told["unsolved_now"]) for name, told in games["teachers"].items()}
    assert lost == {"teacher_0": (1.0, 0.0), "teacher_1": (0.0, 1.0)}
    assert games["students"] == {name: {"solved": 0.5} for name in ("student_0", "student_1")}
    assert {row["version"] for row in rows if row["exam"] == "founders"} == {games["version"]}


@pytest.mark.slow
def test_the_tasks_of_the_run_are_no_duplicates_in_these_games(make_trainer):
    """The buffer grows with the run. A teacher that writes the tasks of the start again has as many valid ones."""
    trainer = make_trainer(**PROBED)
    scripted(trainer, lambda member: True)
    trainer.probes.begin(step=0)
    first, _ = trainer.probes.measure(step=0, round=0)
    requests = [request.prompt for request in trainer.probes.founders.requests]
    for task in trainer.probes.founders.tasks:
        trainer.source.buffer.add(task)
    again, _ = trainer.probes.measure(step=2, round=1)
    assert again["founders"] == first["founders"] and first["founders"]["teachers"]["teacher_0"]["valid"] == 1.0
    assert [request.prompt for request in trainer.probes.founders.requests] == requests


@pytest.mark.slow
def test_what_the_sandbox_fails_to_run_counts_for_nobody(make_trainer):
    """One of the two proposals of teacher_0."""
    trainer = make_trainer(**PROBED)
    scripted(trainer, lambda member: True)
    trainer.probes.begin(step=0)
    examiner, calls = trainer.probes.examiner, []
    run = examiner.run

    def failing(jobs):
        calls.append(len(jobs))
        return [
            replace(one, status=Status.INFRA_ERROR, values=()) if i == 0 else one for i, one in enumerate(run(jobs))
        ]

    examiner.run = failing
    told = trainer.probes.measure(step=0, round=0)[0]["founders"]["teachers"]["teacher_0"]
    assert told["proposals"] == 1 and told["valid"] == 1.0 and told["tasks"] == 1


def test_equal_weights_at_other_temperatures_are_others(make_trainer):
    trainer = make_trainer(noise=0, **PROBED)
    population = trainer.population
    factors = population.factors("student_1")
    population.replace("student_1", factors, operator="clone", parents=["student_1"], step=0, temperature=0.5)
    trainer.probes.founders.start(trainer.probes.examiner)
    assert list(trainer.probes.founders.students) == ["student_0", "student_1"]


@pytest.mark.slow
def test_answers_that_the_sandbox_cannot_judge_do_not_count(make_trainer):
    trainer = make_trainer(**PROBED | {"task_types": ["code_i"]})
    scripted(trainer, lambda member: True)
    trainer.probes.begin(step=0)
    trainer.source.sampler = Altered(
        trainer.source.sampler, lambda drawn, members: [one._replace(text="```input\n1\n```") for one in drawn]
    )
    examiner, calls = trainer.probes.examiner, []
    run = examiner.run

    def failing(jobs):
        calls.append(len(jobs))
        return [replace(one, status=Status.INFRA_ERROR, values=()) for one in run(jobs)]

    examiner.run = failing
    games = trainer.probes.measure(step=0, round=0)[0]["founders"]
    assert calls and games["tasks"] == 2
    assert games["students"] == dict.fromkeys(("student_0", "student_1"), {"solved": None})


@pytest.mark.slow
def test_a_founder_writes_with_the_random_numbers_of_its_place(make_trainer):
    """Of two equal founders one writes; the third writes at the start what it writes in the first games."""
    trainer = make_trainer(num_teachers=3, num_students=3, per_device_train_batch_size=6, **PROBED)
    population = trainer.population
    population.write("teacher_1", population.factors("teacher_0"))
    scripted(trainer, lambda member: True)
    trainer.probes.begin(step=0)
    authors = trainer.probes.measure(step=0, round=0)[0]["founders"]["authors"]
    tasks = {task.id for task in trainer.probes.founders.tasks}
    assert tasks == {*authors["teacher_0"], *authors["teacher_2"]} and len(tasks) == 4


def test_each_prompt_shows_other_tasks(make_trainer):
    source = make_trainer(**PROBED).source
    prompts = [str(request.prompt) for request in Founders(source, prompts=3).requests]
    assert len(set(prompts)) == 3


@pytest.mark.slow
def test_an_engine_has_the_weights_of_the_founder_that_answers(make_trainer):
    """An engine draws with the weights of the last `sync`."""
    trainer = make_trainer(**PROBED)
    scripted(trainer, lambda member: True)
    trainer.probes.begin(step=0)
    population, guest, used = trainer.population, trainer.population.guests[-1], []
    perturb(population, 0.1)

    class Engine(Altered):
        def sync(self):
            self.loaded = [f.B.detach().clone() for f in population.factors(guest).values()]
            self.sampler.sync()

    engine = Engine(
        trainer.source.sampler,
        lambda drawn, members: used.append(engine.loaded) or drawn if guest in members else drawn,
    )
    trainer.source.sampler = engine
    trainer.probes.measure(step=2, round=1)
    founders = [[f.B for f in factors.values()] for factors in trainer.probes.founders.students.values()]
    assert len(used) == 2
    for mine, own in zip(used, founders, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, own, strict=True))


@pytest.mark.slow
def test_the_version_is_that_of_the_founders_tasks(make_trainer):
    """Teachers of today write other tasks, in an exam of its own."""
    trainer = make_trainer(**PROBED)
    scripted(trainer, lambda member: True)
    trainer.probes.begin(step=0)
    first, _ = trainer.probes.measure(step=0, round=0)
    perturb(trainer.population, 0.3, seed=1)
    record, rows = trainer.probes.measure(step=2, round=1)
    assert record["founders"]["authors"] != first["founders"]["authors"]
    assert record["founders"]["version"] == first["founders"]["version"]
    assert {row["version"] for row in rows if row["exam"] == "founders"} == {first["founders"]["version"]}
