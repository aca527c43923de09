"""Tasks of exams never enter a run: not as seeds, not as proposals, whether the run is probed or not."""

import json
from dataclasses import replace

import pytest

from tests.training.conftest import Altered
from trl_populora.evaluation import exam_keys, held_out_tasks, reserved_keys
from trl_populora.evaluation.held_out import task_exam
from trl_populora.tasks import make_task_types


@pytest.fixture(scope="module")
def reserved():
    return reserved_keys(make_task_types(kwargs={"code_f": {"num_inputs": 4}}))


def keys_in(buffer):
    return {types.key(task.payload) for name, types in buffer.types.items() for task in buffer.tasks(name)}


@pytest.mark.slow
def test_buffers_start_without_the_tasks_of_exams(reserved, make_trainer, tmp_path):
    """As many as were asked for, also where some of the first are asked elsewhere."""
    plain = make_trainer().source
    assert plain.buffer.reserved >= reserved and not reserved & keys_in(plain.buffer)
    taken = [task for name in plain.task_types for task in plain.buffer.tasks(name)[:3]]
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(task.to_json()) + "\n" for task in taken))
    probes = {"exams": [f"tasks:{path}"], "founders": 0}
    probed = make_trainer(eval_strategy="steps", eval_steps=2, probe_kwargs=probes).source
    keys = {plain.task_types[task.type].key(task.payload) for task in taken}
    assert len(keys) == 9 and not (keys | reserved) & keys_in(probed.buffer)
    for name in plain.task_types:
        tasks = probed.buffer.tasks(name)
        assert len(tasks) == 8 and tasks[:5] == plain.buffer.tasks(name)[3:]
    unprobed = make_trainer(probe_kwargs=probes).source
    assert keys <= keys_in(unprobed.buffer)


def my_tasks():
    return make_task_types(["code_o"])["code_o"].seeds(3, seed=1, families=["add"])


def my_exam():
    """An exam of a user's: easy tasks, as those that the run starts with."""
    return task_exam("mine", my_tasks(), make_task_types(["code_o"]))


def test_tasks_of_reserved_exams_stay_out(make_trainer, tmp_path):
    settings = {"task_types": ["code_o", "code_i"], "seed_families": ["add"]}
    mine = f"{my_exam.__module__}:my_exam"
    source = make_trainer(reserved_exams=[mine, "gsm8k"], **settings).source  # a benchmark's data are not even read
    keys = exam_keys([mine], source.task_types)
    assert len(keys) == 9  # 3 programs with inputs, each a task of both types, and as pairs
    assert keys <= source.buffer.reserved and not keys & keys_in(source.buffer)
    assert not keys & make_trainer(**settings).source.buffer.reserved
    keys = exam_keys([mine], make_task_types(["code_i"]))  # the exam's own type is not in play
    assert keys & set(make_task_types()["code_i"].shown_keys(my_tasks()[0].payload))


def no_tasks():
    return replace(my_exam(), name="plain", of_tasks=False)


def test_a_reserved_exam_without_tasks_is_told(make_trainer, caplog):
    with caplog.at_level("WARNING"):
        make_trainer(reserved_exams=[f"{__name__}:no_tasks"])
    assert "no_tasks has no tasks, so nothing is kept out" in caplog.text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gsm", "reserved_exams: exam 'gsm' is unknown"),
        ("tasks:nowhere.jsonl", "reserved_exams: the tasks in nowhere"),
    ],
)
def test_a_wrong_reserved_exam_is_told_at_construction(make_trainer, name, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(reserved_exams=[name])


def test_families_whose_tasks_are_all_reserved(make_trainer, monkeypatch):
    from trl_populora.training import first_tasks

    class All(frozenset):
        def __contains__(self, key):
            return True

        def __or__(self, other):
            return self

    monkeypatch.setattr(first_tasks, "reserved_keys", lambda types: All())
    monkeypatch.setattr(first_tasks, "TaskBuffer", keep_reserved(first_tasks.TaskBuffer))
    with pytest.raises(ValueError, match="all code_o tasks of these families are reserved for exams"):
        make_trainer(seed_families=["add"])


def keep_reserved(buffer_class):
    def make(*args, reserved, **kwargs):
        buffer = buffer_class(*args, **kwargs)
        buffer.reserved = reserved
        return buffer

    return make


@pytest.mark.slow
def test_a_proposal_of_a_held_out_task_is_refused(make_trainer):
    rounds = []
    trainer = make_trainer(task_types=["code_o"], on_round=lambda _: rounds.append(trainer.source.played.record))
    kind = trainer.source.task_types["code_o"]
    task = next(one for one in held_out_tasks(kind, "held_out_easy"))

    def change(drawn, members):
        text = kind.propose_completion(task)
        return [one._replace(text=text if m.startswith("teacher") else "") for one, m in zip(drawn, members)]

    trainer.source.sampler = Altered(trainer.source.sampler, change)
    trainer.source.self_play.lengths = None
    trainer.train()
    reasons = [one.refusal.reason for record in rounds for one in record.proposals]
    assert reasons == ["held_out"] * 8
    assert kind.key(task.payload) not in keys_in(trainer.source.buffer)
