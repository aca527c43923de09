"""Probes along a run: what is asked, recorded and logged; that resuming neither repeats nor loses any of it; and that
a run with them is bit for bit the run without."""

import json
import os
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback
from transformers.integrations.integration_utils import rewrite_logs

from tests.generation.engine_double import EngineDouble, base_model
from tests.tiny import lora, tiny_model, tiny_tokenizer
from tests.training.conftest import Altered, hash_reward
from tests.training.test_resume import files, outcome, timeless
from tests.training.victim import plausible
from trl_populora.evaluation import Question
from trl_populora.evaluation.benchmarks import Benchmark, chat
from trl_populora.evaluation.grading import Grade, Grader
from trl_populora.evaluation.results import COLUMNS
from trl_populora.executor import Job, Status
from trl_populora.generation import EngineSampler, TransformersSampler
from trl_populora.generation.sampler import unchanged_random_states
from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer


PROBED = dict(eval_strategy="steps", eval_steps=2, probe_kwargs={"exams": ["held_out[:4]"], "founders": 1})
ONE_TYPE = {**PROBED, "task_types": ["code_o"]}  # for whole runs: three types take three times as long
PROMPTS = Dataset.from_dict({"prompt": [f"say {word}" for word in "one two three four five six".split()]})


class Lengths(Grader):
    """Solved if the completion has at least as many characters as the reference says; asks the sandbox to count."""

    description = "Long answers."

    def judge(self, completions, references, run):
        jobs = [
            Job(f"def f(x):\n    return {len(text)} >= x", ((int(least),),))
            for text, least in zip(completions, references)
        ]
        told = [one.status is Status.OK and one.values[0].value for one in run(jobs)]
        return [Grade("solved" if right else "wrong", text) for right, text in zip(told, completions)]


LONG = Benchmark(
    id="long",
    title="Long answers",
    file="long.jsonl",
    hub="nobody/long",
    columns=("least",),
    question=lambda record, place: Question(f"long/{place}", chat(f"say {place}"), json.dumps(record["least"])),
    grader=Lengths,
    gold=lambda record: "x" * record["least"],
    max_completion_length=4,
)


def lines(folder):
    with open(os.path.join(folder, "probes.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def answers(folder, step):
    return pyarrow.parquet.read_table(os.path.join(folder, "probes", f"step_{step:06d}.parquet")).to_pylist()


def clockless(records):
    return [{k: v for k, v in one.items() if k not in ("seconds", "elapsed", "probing")} for one in records]


def play_plausibly(trainer):
    """Texts that make tasks and sometimes solve them; nothing is refused for its length."""
    trainer.source.sampler = Altered(trainer.source.sampler, plausible)
    trainer.source.self_play.lengths = None
    return trainer


def let_one_know(trainer, *known):
    """From now on, student_1 gives right answers to the tasks of these types (of all if none is named), and all others
    nothing."""
    types = trainer.source.task_types
    (exam,) = trainer.probes.exams
    tasks = [types[r["type"]].read_task(r) for r in (json.loads(one.reference) for one in exam.questions)]
    gold = {
        json.dumps(one.prompt): types[task.type].solve_completion(task)
        for one, task in zip(exam.questions, tasks)
        if task.type in (known or types)
    }
    sampler = trainer.source.sampler

    class Knowing(Altered):
        def __call__(self, prompts, members, **kwargs):
            drawn = sampler(prompts, members, **kwargs)
            texts = [gold.get(json.dumps(p), "") if m == "student_1" else "" for p, m in zip(prompts, members)]
            return [one._replace(text=text) for one, text in zip(drawn, texts, strict=True)]

    trainer.source.sampler = Knowing(sampler, None)


def asked(trainer):
    """Adapters of the rows of every call of the sampler, collected as they are drawn."""
    calls = []

    def note(drawn, members):
        calls.append(list(members))
        return drawn

    trainer.source.sampler = Altered(trainer.source.sampler, note)
    return calls


# A run with probes is the run without -----------------------------------------------------------------------------


def engine(folder):
    def make(population, tokenizer, accelerator, args):
        return EngineSampler.from_args(
            population, tokenizer, accelerator, args, engine=EngineDouble(), adapter_dir=str(folder)
        )

    return make


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(
            dict(max_steps=3, eval_steps=1, evolution_interval=1, hall_of_fame_probability=0.7, logging_steps=3),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            dict(max_steps=4, num_iterations=2, beta=0.05, evolution_kwargs={"mutate_temperature": True}),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            dict(
                max_steps=2, shared_member=True, num_teachers=1, num_students=1, per_device_train_batch_size=3, top_k=9
            ),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["champions", "iterations", "single agent"],
)
def test_probing_changes_nothing(make_trainer, extra):
    def run(probed):
        extras = {k: v for k, v in extra.items() if probed or k != "eval_steps"}
        trainer = play_plausibly(make_trainer(**(ONE_TYPE if probed else {"task_types": ["code_o"]}) | extras))
        trainer.train()
        told = outcome(trainer)
        told["logs"] = [log for log in told["logs"] if not any(name.startswith("eval_") for name in log)]
        states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        return told, files(trainer.args.output_dir), states, trainer.model.training

    assert run(True) == run(False)


@pytest.mark.slow
def test_probing_changes_nothing_where_an_engine_draws(make_trainer, tmp_path):
    def run(probed):
        trainer = make_trainer(
            sampler=engine(tmp_path / "adapters"), model=base_model(), max_completion_length=4, max_prompt_tokens=240,
            **(PROBED | {"probe_kwargs": {"exams": ["held_out_easy[:3]"], "founders": 1}} if probed else {}),
        )  # fmt: skip
        trainer.train()
        told = outcome(trainer)
        told["logs"] = [log for log in told["logs"] if not any(name.startswith("eval_") for name in log)]
        return told

    assert run(True) == run(False)


@pytest.mark.slow
def test_the_sampler_is_as_before(make_trainer):
    trainer = make_trainer(**PROBED, top_k=7, temperature=0.5)
    settings = {k: v for k, v in vars(trainer.source.sampler).items() if isinstance(v, (int, float, type(None)))}
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        base = trainer.model(ids).logits
    trainer.train()
    with torch.no_grad():
        assert torch.equal(trainer.model(ids).logits, base)  # nobody's adapter is in the way
    assert settings == {k: vars(trainer.source.sampler)[k] for k in settings} and settings["top_k"] == 7


# What is asked, recorded and logged -------------------------------------------------------------------------------


@pytest.mark.slow
def test_everybody_is_asked_at_the_start_and_at_every_evaluation_the_base_once(make_trainer):
    records = []
    trainer = make_trainer(**PROBED | {"probe_kwargs": {"exams": ["held_out[:4]"], "founders": 0, "teachers": True}})
    trainer.on_probe = records.append
    calls = asked(trainer)
    trainer.train()
    folder = trainer.args.output_dir
    assert [one["step"] for one in lines(folder)] == [0, 2] and lines(folder) == records
    assert [one["round"] for one in records] == [0, 2]
    assert sum(call.count(None) for call in calls) == 4  # questions; asked at step 0 and not again
    exam = records[1]["exams"]["held_out[:4]"]
    assert list(exam["players"]) == ["teacher_0", "teacher_1", "student_0", "student_1", "base"]
    assert exam["players"]["base"] == records[0]["exams"]["held_out[:4]"]["players"]["base"]
    assert set(exam["groups"]) == {"code_o", "code_i", "code_f"} and exam["questions"] == 4
    assert 0 < records[1]["probing"] < records[1]["elapsed"]
    first, last = answers(folder, 0), answers(folder, 2)
    assert list(first[0]) == list(COLUMNS) and len(first) == 5 * 4 and len(last) == 4 * 4
    assert {row["version"] for row in first} == {exam["version"]}


@pytest.mark.slow
def test_names_as_trackers_get_them(make_trainer):
    trainer = play_plausibly(make_trainer(**PROBED))
    trainer.train()
    log = next(log for log in trainer.state.log_history if log["step"] == 2 and "eval_held_out_4/mean" in log)
    names = set(rewrite_logs(log))
    assert {"eval/held_out_4/student_0", "eval/held_out_4/base", "eval/held_out_4/code_o/mean"} <= names
    assert {"eval/founders/valid/teacher_1", "eval/founders/solved/student_0", "eval/probe_seconds"} <= names
    students = [log[f"eval_held_out_4/student_{i}"] for i in range(2)]
    assert log["eval_held_out_4/mean"] == pytest.approx(sum(students) / 2)


@pytest.mark.slow
def test_shares_are_those_of_the_answers(make_trainer):
    """A sampler that knows the right answers scores 1, and the base, which does not, 0."""
    trainer = make_trainer(**PROBED | {"probe_kwargs": {"exams": ["held_out_easy[:6]"], "founders": 0}})
    let_one_know(trainer)
    told = trainer.evaluate()
    assert told["eval_held_out_easy_6/student_1"] == 1 and told["eval_held_out_easy_6/base"] == 0
    assert told["eval_held_out_easy_6/mean"] == 0.5 and told["eval_held_out_easy_6/code_f/mean"] == 0.5


@pytest.mark.slow
def test_the_base_is_asked_again_with_another_chat_template(make_trainer):
    trainer = make_trainer(**ONE_TYPE)
    calls, tokenizer = asked(trainer), trainer.processing_class
    for template in (tokenizer.chat_template, "Mended: " + tokenizer.chat_template):
        tokenizer.chat_template = template
        for wanted in (True, False):
            calls.clear()
            trainer.evaluate()
            assert any(None in call for call in calls) is wanted


@pytest.mark.slow
def test_a_grader_that_fails_scores_nobody_and_the_base_is_asked_again(make_trainer):
    trainer = make_trainer(**PROBED | {"probe_kwargs": {"exams": ["held_out[:4]"], "founders": 0}})
    (exam,) = trainer.probes.exams
    judge, calls = exam.grader, asked(trainer)

    def broken(completions, references, run):
        raise OSError("the grader's service is down")

    def failing(run):
        grader = judge(run)
        grader.judge = broken
        return grader

    object.__setattr__(exam, "grader", failing)
    assert not any("accuracy" in name or name.endswith(("/mean", "/base")) for name in trainer.evaluate())
    object.__setattr__(exam, "grader", judge)
    told = trainer.evaluate()
    assert told["eval_held_out_4/base"] == 0 and "eval_held_out_4/mean" in told
    trainer.evaluate()
    assert sum(call.count(None) for call in calls) == 8  # four questions, in two of three probes


@pytest.mark.slow
def test_a_user_evaluates_a_run_that_is_not_probed(make_trainer):
    trainer = make_trainer(probe_kwargs={"exams": ["held_out[:3]"]})
    before = trainer.evaluate(metric_key_prefix="test")
    assert {"test_held_out_3/student_0", "test_held_out_3/base"} <= set(before)
    trainer.train()
    assert "eval_held_out_3/student_1" in trainer.evaluate()
    assert not os.path.exists(os.path.join(trainer.args.output_dir, "probes.jsonl"))
    assert not any("held_out" in name for log in trainer.state.log_history[:-1] for name in log)


@pytest.mark.slow
def test_an_evaluation_after_an_interrupt_is_not_part_of_the_record(make_trainer):
    shown = []

    class Interrupt(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            raise KeyboardInterrupt

    trainer = make_trainer(**PROBED, callbacks=[Interrupt()])
    trainer.on_probe = shown.append
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.evaluate()
    assert [record["step"] for record in shown] == [0] and lines(trainer.args.output_dir) == shown


@pytest.mark.slow
def test_it_waits_for_what_is_logged_of_training(make_trainer):
    """An evaluation between two logs does not cut the first one short."""

    def logs(**extra):
        trainer = make_trainer(max_steps=4, logging_steps=4, task_types=["code_o"], **extra)
        trainer.train()
        return [log for log in timeless(trainer.state.log_history) if "loss" in log]

    assert logs(eval_strategy="steps", eval_steps=2, probe_kwargs=PROBED["probe_kwargs"]) == logs()


# Resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # test_resume.py resumes others
@pytest.mark.parametrize(
    "extra",
    [{}, {"num_iterations": 2, "max_steps": 8, "save_steps": 4, "eval_steps": 4}],
    ids=["plain", "iterations"],
)
def test_resume_neither_repeats_nor_loses_anything(make_trainer, extra):
    settings = ONE_TYPE | dict(max_steps=4, save_strategy="steps", save_steps=2, evolution_interval=1) | extra
    whole = play_plausibly(make_trainer(**settings))
    whole.train()
    folder = whole.args.output_dir
    steps = [0, settings["eval_steps"], settings["max_steps"]]
    wanted, tables = clockless(lines(folder)), [answers(folder, step) for step in steps]
    assert [one["step"] for one in wanted] == steps and wanted[0]["founders"]["tasks"] > 0
    assert any(one["founders"] != wanted[0]["founders"] for one in wanted[1:])

    again = play_plausibly(make_trainer(noise=0.5, **settings))  # other weights: these are not the founders
    calls = asked(again)
    again.train(resume_from_checkpoint=os.path.join(folder, f"checkpoint-{settings['save_steps']}"))
    assert clockless(lines(folder)) == wanted
    assert not any(None in call for call in calls)
    now = [answers(folder, step) for step in steps]
    assert [[row | {"seconds": 0} for row in table] for table in now] == [
        [row | {"seconds": 0} for row in table] for table in tables
    ]
    assert outcome(again) == outcome(whole)
    assert again.probes.state_dict()["seconds"] > again.probes.last["seconds"]


@pytest.mark.slow
def test_a_run_begun_again_keeps_nothing_of_the_old_one(make_trainer):
    trainer = make_trainer(**ONE_TYPE)
    trainer.train()
    again = make_trainer(**ONE_TYPE, overwrite_output_dir=True)
    again.train()
    assert [one["step"] for one in lines(again.args.output_dir)] == [0, 2]


@pytest.mark.slow
def test_probes_may_begin_at_a_resume(make_trainer):
    trainer = make_trainer(save_strategy="steps", save_steps=2, task_types=["code_o"])
    trainer.train()
    again = make_trainer(max_steps=4, **ONE_TYPE)
    again.train(resume_from_checkpoint="auto")
    (record,) = lines(again.args.output_dir)
    assert record["step"] == 4 and record["founders"] is None
    assert record["exams"]["held_out[:4]"]["players"]["base"]["accuracy"] is not None


# On a dataset -----------------------------------------------------------------------------------------------------


@pytest.fixture
def make_on_dataset(config, tmp_path):
    (tmp_path / "long.jsonl").write_text("".join(json.dumps({"least": least}) + "\n" for least in (0, 1, 1000)))
    trainers = []

    def make(*, eval_dataset=None, **overrides):
        settings = dict(num_teachers=0, num_students=2, num_generations=2, per_device_train_batch_size=4, max_steps=2)
        probes = {"exams": ["tests.training.test_probes:LONG"], "data": str(tmp_path)}
        settings |= dict(eval_strategy="steps", eval_steps=2, probe_kwargs=probes, per_device_eval_batch_size=4)
        trainer = PopulationSelfPlayTrainer(
            tiny_model(), hash_reward, config(**settings | overrides), train_dataset=PROMPTS,
            eval_dataset=eval_dataset, processing_class=tiny_tokenizer(), peft_config=lora(),
        )  # fmt: skip
        trainers.append(trainer)
        return trainer

    yield make
    for trainer in trainers:
        trainer.close()


@pytest.mark.slow
@pytest.mark.parametrize("eval_dataset", [None, PROMPTS.select(range(2)), {"a": PROMPTS.select(range(2))}])
def test_exams_come_on_top_of_the_evaluation_on_a_dataset(make_on_dataset, eval_dataset):
    trainer = make_on_dataset(eval_dataset=eval_dataset)
    trainer.train()
    logs = trainer.state.log_history
    exams = [log for log in logs if "eval_long/mean" in log]
    assert [log["step"] for log in exams] == [0, 2] and exams[1]["eval_long/base"] == pytest.approx(2 / 3)
    rewards = [log["step"] for log in logs if {"eval_reward", "eval_a_reward"} & set(log)]
    assert rewards == ([] if eval_dataset is None else [2])
    assert len(answers(trainer.args.output_dir, 2)) == 2 * 3


@pytest.mark.slow
def test_a_dataset_without_exams_is_evaluated_as_before(make_on_dataset):
    trainer = make_on_dataset(eval_dataset=PROMPTS.select(range(2)), probe_kwargs=None)
    trainer.train()
    assert not os.path.exists(os.path.join(trainer.args.output_dir, "probes.jsonl"))
    with pytest.raises(ValueError, match="eval_dataset"):
        make_on_dataset(probe_kwargs=None)


# Refusals, before anything is trained -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(eval_steps=3, num_iterations=2, max_steps=4), "eval_steps=3.* is not a multiple of num_iterations=2"),
        (dict(eval_strategy="epoch"), "eval_strategy='epoch' without a dataset"),
        (dict(probe_kwargs={"founders": -1}), "probe_kwargs: founders=-1"),
        (dict(probe_kwargs={"max_completion_length": 0}), "probe_kwargs: max_completion_length=0"),
        (dict(probe_kwargs={"exams": ["held_out", "held_out"]}), "names an exam twice"),
        (dict(probe_kwargs={"exam": ["held_out"]}), "Did you mean 'exams'"),
    ],
)
def test_settings_that_make_no_probe(config, settings, message):
    with pytest.raises(ValueError, match=message):
        config(**PROBED | settings)


def test_a_probe_is_not_taken_every_round_unless_that_is_asked(config):
    assert config(eval_strategy="steps").eval_steps == 20
    assert config(eval_strategy="steps", num_iterations=2, save_steps=2).eval_steps == 40
    assert config(eval_strategy="steps", eval_steps=1).eval_steps == 1


@pytest.mark.parametrize(
    "probes, message",
    [
        ({"exams": ["held_in"]}, "probe_kwargs.exams: exam 'held_in' is unknown"),
        ({"exams": ["gsm8k"], "data": "/nowhere"}, "probe_kwargs.exams: gsm8k: /nowhere/gsm8k.jsonl cannot be read"),
        ({"exams": ["tasks:/nowhere"]}, "probe_kwargs.exams: the tasks in /nowhere cannot be read"),
        ({"exams": [], "founders": 0}, "there is nothing to evaluate with"),
    ],
)
def test_exams_that_cannot_be_asked(make_trainer, probes, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(**PROBED | {"probe_kwargs": probes})


@pytest.mark.slow
def test_an_exam_that_does_not_fit_into_the_engine(make_trainer, tmp_path):
    """The double takes 256 tokens."""
    settings = dict(sampler=engine(tmp_path), model=base_model(), max_completion_length=4, max_prompt_tokens=240)
    probes = {"exams": ["held_out"], "founders": 0, "max_completion_length": 250}
    with pytest.raises(ValueError, match=r"the longest prompt of 'held_out' has \d+ tokens and an answer up to 250"):
        make_trainer(**settings, **PROBED | {"probe_kwargs": probes})


def test_an_exam_needs_a_chat_template(config, tmp_path):
    (tmp_path / "long.jsonl").write_text('{"least": 1}\n')
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    probes = {"exams": ["tests.training.test_probes:LONG"], "data": str(tmp_path)}
    shape = dict(num_teachers=0, num_students=2, num_generations=2, per_device_train_batch_size=4)
    args = config(**shape, **PROBED | {"probe_kwargs": probes})
    with pytest.raises(ValueError, match="the prompts of 'long' cannot be rendered"):
        PopulationSelfPlayTrainer(
            tiny_model(), hash_reward, args, train_dataset=PROMPTS, processing_class=tokenizer, peft_config=lora()
        )


def test_self_play_takes_no_dataset_to_evaluate_on(make_trainer):
    with pytest.raises(ValueError, match="name exams in probe_kwargs"):
        make_trainer(per_device_eval_batch_size=2).evaluate(PROMPTS)


def test_settings_are_left_as_they_were_given(config):
    args = config(**PROBED, num_generations=3, num_teachers=2, num_students=2, per_device_train_batch_size=6)
    assert isinstance(args, PopulationSelfPlayConfig) and args.probes.founders == 1 and args.is_probed
    assert args.probe_kwargs["exams"] == ["held_out[:4]"] and args.probe_kwargs["teachers"] is False


def test_the_clock_of_a_resumed_run_goes_on(make_trainer, tmp_path):
    trainer = make_trainer(**PROBED | {"probe_kwargs": {"exams": ["held_out[:1]"], "founders": 0}})
    probes = trainer.probes
    probes.load(str(tmp_path), {"elapsed": 100.0, "seconds": 10.0})
    probes.begin(step=2)
    kept = probes.keep({"step": 2, "seconds": 1.0})
    assert 100 <= kept["elapsed"] < 110 and kept["probing"] == 11.0
    assert probes.state_dict()["elapsed"] >= kept["elapsed"] and probes.state_dict()["seconds"] == 11.0


def test_the_first_probe_costs_what_the_founders_tasks_cost(make_trainer, monkeypatch):
    trainer = make_trainer(**PROBED | {"probe_kwargs": {"exams": ["held_out[:1]"], "founders": 0}})
    clock = [1.0]
    monkeypatch.setattr("trl_populora.training.probes.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    clock[0] = 100.0
    alone, _ = trainer.probes.measure(step=0, round=0)  # `evaluate` before `train`
    assert alone["seconds"] == 0.0
    trainer.probes.founders = SimpleNamespace(start=lambda examiner: clock.__setitem__(0, 105.0), started=False)
    trainer.probes.begin(step=0)
    clock[0] = 200.0
    first, _ = trainer.probes.measure(step=0, round=0)
    later, _ = trainer.probes.measure(step=2, round=1)
    assert (first["seconds"], later["seconds"]) == (5.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("length, own, most", [(3, 5, 3), (None, 5, 5), (None, None, 8)])
def test_answers_are_as_long_as_the_probes_or_else_the_exam_allow(make_trainer, length, own, most):
    """The run's own are of 8 tokens."""
    probes = {"exams": ["held_out[:3]"], "founders": 0, "max_completion_length": length}
    trainer = make_trainer(**PROBED | {"probe_kwargs": probes})
    object.__setattr__(trainer.probes.exams[0], "max_completion_length", own)
    _, rows = trainer.probes.measure(step=0, round=0)
    assert {row["player"] for row in rows} == {"student_0", "student_1", "base"}
    assert max(row["tokens"] for row in rows) == most


def test_random_states_are_as_they_were():
    def draw():
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    first = draw()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    with pytest.raises(RuntimeError), unchanged_random_states():
        draw()
        raise RuntimeError
    assert draw() == first


def test_the_mean_of_a_group_is_that_of_its_questions(make_trainer):
    """One student knows the answers to tasks of one type."""
    trainer = make_trainer(**PROBED | {"probe_kwargs": {"exams": ["held_out_easy[:6]"], "founders": 0}})
    let_one_know(trainer, "code_f")
    told = trainer.evaluate()
    means = {name: told[f"eval_held_out_easy_6/{name}mean"] for name in ("", "code_o/", "code_f/")}
    assert means == {"": pytest.approx(1 / 6), "code_o/": 0.0, "code_f/": 0.5}


@pytest.mark.slow
def test_exams_are_answered_greedily(make_trainer):
    """Whatever the temperature of the run; its sampler has that again afterwards."""
    trainer = make_trainer(**PROBED | {"probe_kwargs": {"exams": ["held_out[:4]"], "founders": 1}}, temperature=0.9)
    trainer.probes.begin(step=0)
    _, rows = trainer.probes.measure(step=0, round=0)
    population, sampler = trainer.population, trainer.source.sampler
    greedy = TransformersSampler(population, sampler.tokenizer, max_completion_length=8, temperature=0.0)
    (exam,) = trainer.probes.exams
    for player in ("student_0", "student_1", "base"):
        member = None if player == "base" else player
        drawn = greedy([one.prompt for one in exam.questions], [member] * 4, seed=7, streams=[3, 2, 1, 0])
        own = [row["completion"] for row in rows if row["player"] == player and row["exam"] == exam.name]
        assert own == [one.text for one in drawn]
    assert sampler.temperature == 0.9 and sampler.max_completion_length == 8


@pytest.mark.slow
def test_the_round_of_a_probe_counts_rounds_and_not_steps(make_trainer):
    records = []
    trainer = make_trainer(
        **PROBED | {"probe_kwargs": {"exams": ["held_out[:1]"], "founders": 0}}, num_iterations=2, max_steps=4
    )
    trainer.on_probe = records.append
    trainer.train()
    assert [(one["step"], one["round"]) for one in records] == [(0, 0), (2, 1), (4, 2)]


def test_a_single_agent_is_the_one_that_solves(make_trainer):
    probes = {"exams": ["held_out[:2]"], "founders": 0}
    shape = dict(num_teachers=1, num_students=1, shared_member=True, per_device_train_batch_size=3)
    trainer = make_trainer(**PROBED | {"probe_kwargs": probes} | shape)
    record, _ = trainer.probes.measure(step=0, round=0)
    exam = record["exams"]["held_out[:2]"]
    assert list(exam["players"]) == ["agent_0", "base"]
    assert exam["mean"] == exam["players"]["agent_0"]["accuracy"] is not None


def test_the_base_is_asked_again_if_the_sandbox_failed_on_its_answers(make_trainer):
    probes = {"exams": ["held_out[:2]"], "founders": 0}
    trainer = make_trainer(**PROBED | {"probe_kwargs": probes, "task_types": ["code_i"]})
    asked, examiner = [], trainer.probes.examiner

    def change(drawn, members):
        asked.extend(members)
        return [one._replace(text="```input\n1\n```") for one in drawn]

    trainer.source.sampler = Altered(trainer.source.sampler, change)
    run = examiner.run
    examiner.run = lambda jobs: [replace(one, status=Status.INFRA_ERROR, values=()) for one in run(jobs)]
    record, _ = trainer.probes.measure(step=0, round=0)
    assert record["exams"]["held_out[:2]"]["mean"] is None
    examiner.run = run
    trainer.probes.measure(step=2, round=1)
    trainer.probes.measure(step=4, round=2)
    assert asked.count(None) == 4


def test_one_answer_that_breaks_the_grader_fails_alone(make_trainer):
    trainer = make_trainer(**PROBED | {"probe_kwargs": {"exams": ["held_out[:4]"], "founders": 0}})
    (exam,) = trainer.probes.exams
    make = exam.grader

    def fragile(run):
        grader = make(run)
        judge = grader.judge

        def breaks(completions, references, run):
            if "boom" in completions:
                raise OSError
            return judge(completions, references, run)

        grader.judge = breaks
        return grader

    def change(drawn, members):
        first = next((i for i, member in enumerate(members) if member == "student_0"), None)
        return [one._replace(text="boom" if i == first else "") for i, one in enumerate(drawn)]

    object.__setattr__(exam, "grader", fragile)
    trainer.source.sampler = Altered(trainer.source.sampler, change)
    record, rows = trainer.probes.measure(step=0, round=0)
    told = record["exams"]["held_out[:4]"]
    assert [row["verdict"] for row in rows].count("failed") == 1
    assert told["players"]["student_0"]["groups"] == dict.fromkeys(told["groups"], 0.0)
    assert told["players"]["student_0"]["well_formed"] is not None


@pytest.mark.slow
def test_the_base_is_asked_again_if_answers_may_be_longer(make_trainer):
    def probed(length, **changes):
        probes = {"exams": ["held_out[:4]"], "founders": 0, "max_completion_length": length}
        return make_trainer(**PROBED | {"probe_kwargs": probes, "save_strategy": "steps", "save_steps": 2} | changes)

    first = probed(4)
    first.train()
    again = probed(8, max_steps=4)
    calls = asked(again)
    again.train(resume_from_checkpoint=os.path.join(first.args.output_dir, "checkpoint-2"))
    assert sum(call.count(None) for call in calls) == 4
