"""Checkpoints are whole or do not exist; what is torn or foreign is refused, and the one before is offered."""

import errno
import json
import os
import resource
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import TrainerCallback

from tests.tiny import lora, tiny_model
from tests.training.conftest import finished
from tests.training.test_isolation import member_state
from tests.training.test_resume import files, outcome
from trl_populora.run_files import checkpoint
from trl_populora.run_files.checkpoint import FORMAT_VERSION, find_checkpoint, find_defect, whole_checkpoints
from trl_populora.run_files.files import files_below
from trl_populora.run_files.layout import ADAPTER_FILE, MANIFEST_FILE, STAGING_FOLDER


SAVING = dict(max_steps=4, save_strategy="steps", save_steps=2)


@contextmanager
def files_no_larger_than(size):
    """What a full disk looks like to whoever writes: real errors from the kernel."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run with two checkpoints, which no test changes, and what the run left."""
    trainer = finished(tmp_path_factory.mktemp("whole"), **SAVING)
    return trainer.args.output_dir, trainer, (outcome(trainer), files(trainer.args.output_dir))


@pytest.fixture
def saved(whole, tmp_path):
    """A copy of it, where the trainers of this test write."""
    shutil.copytree(whole[0], tmp_path / "run")
    return str(tmp_path / "run")


def refusal(folder, trainer, wanted):
    with pytest.raises(ValueError) as caught:
        trainer.train(resume_from_checkpoint=os.path.join(folder, wanted))
    return str(caught.value)


def test_a_torn_checkpoint_is_refused_and_the_one_before_offered(saved, make_trainer):
    folder, trainer = saved, make_trainer(**SAVING)
    assert [os.path.basename(path) for path in whole_checkpoints(folder)] == ["checkpoint-2", "checkpoint-4"]
    path = os.path.join(folder, "checkpoint-4", "optimizer.pt")
    size = os.path.getsize(path)
    os.truncate(path, size - 1)
    text = refusal(folder, trainer, "checkpoint-4")
    assert f"optimizer.pt has {size - 1} bytes instead of {size}" in text and "checkpoint-2: resume" in text
    os.remove(os.path.join(folder, "checkpoint-4", MANIFEST_FILE))
    assert f"{MANIFEST_FILE} is missing" in refusal(folder, trainer, "checkpoint-4")
    assert find_checkpoint("auto", folder).endswith("-2")
    assert "no such folder" in refusal(folder, trainer, "checkpoint-9")
    os.remove(os.path.join(folder, "checkpoint-2", "self_play.json"))
    assert "self_play.json is missing" in refusal(folder, trainer, "checkpoint-2")
    for wanted in ("auto", True):
        with pytest.raises(ValueError, match="checkpoint-4' is not a complete .* No other one is complete"):
            find_checkpoint(wanted, folder)


@pytest.mark.parametrize(
    "name", ["optimizer.pt", "rng_state.pth", "trainer_state.json", "student_0/adapter_config.json"]
)
def test_a_damaged_checkpoint_of_the_right_size_is_refused(saved, make_trainer, caplog, name):
    path = os.path.join(saved, "checkpoint-4", name)
    size = os.path.getsize(path)
    with open(path, "wb") as file:
        file.write(bytes(size))
    before = files_below(saved)
    text = refusal(saved, make_trainer(**SAVING), "checkpoint-4")
    assert f"{name} was changed after it was saved" in text and "checkpoint-2: resume from that" in text
    assert files_below(saved) == before
    assert find_checkpoint("auto", saved).endswith("-2")
    assert f"checkpoint-4 is passed over, because it is not complete: {name} was changed" in caplog.text


def test_a_checkpoint_that_cannot_be_read_is_passed_over(saved, monkeypatch):
    def fail(path, changed):
        if path.endswith("checkpoint-4/optimizer.pt"):
            raise OSError(errno.EIO, "Input/output error")
        return before(path, changed)

    before = checkpoint._checksum
    monkeypatch.setattr(checkpoint, "_checksum", fail)
    assert find_defect(os.path.join(saved, "checkpoint-4")) is None
    told = find_defect(os.path.join(saved, "checkpoint-4"), content=True)
    assert told == "optimizer.pt cannot be read (Input/output error)"
    assert find_checkpoint("auto", saved).endswith("-2")


def test_a_foreign_checkpoint_is_refused(saved, make_trainer, tmp_path):
    assert "another base model" in refusal(saved, make_trainer(model=tiny_model(seed=5)), "checkpoint-2")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "trainer_state.json").write_text("{}")
    assert find_defect(str(tmp_path / "other")).startswith(MANIFEST_FILE)
    (tmp_path / "other" / MANIFEST_FILE).write_text('{"format": 99, "files": {}}')
    assert "format 99" in find_defect(str(tmp_path / "other"))
    (tmp_path / "other" / MANIFEST_FILE).write_text(json.dumps({"format": FORMAT_VERSION, "files": {"a": 1}}))
    assert "cannot be read" in find_defect(str(tmp_path / "other"))
    (tmp_path / "other" / MANIFEST_FILE).write_text("[")
    assert "cannot be read" in find_defect(str(tmp_path / "other"))


@pytest.mark.slow
def test_resuming_from_an_earlier_checkpoint_leaves_no_later_one(saved, make_trainer, caplog):
    """The one that was given up would otherwise be what `auto` takes, should the run be stopped again."""
    again = make_trainer(**SAVING | dict(max_steps=3))
    again.train(resume_from_checkpoint=os.path.join(saved, "checkpoint-2"))
    assert [os.path.basename(path) for path in whole_checkpoints(saved)] == ["checkpoint-2", "checkpoint-3"]
    assert "checkpoint-4 is removed" in caplog.text and not os.path.exists(os.path.join(saved, STAGING_FOLDER))


@pytest.mark.slow
def test_a_damaged_checkpoint_is_put_aside_by_the_run_that_passes_it_over(saved, make_trainer, whole, caplog):
    path = os.path.join(saved, "checkpoint-4", "optimizer.pt")
    os.truncate(path, os.path.getsize(path) - 1)
    adapter = Path("student_0", ADAPTER_FILE)
    before = (Path(saved, "checkpoint-4") / adapter).read_bytes()
    again = make_trainer(**SAVING)
    again.train(resume_from_checkpoint="auto")
    aside = os.path.join(saved, "checkpoint-4.damaged")
    assert f"checkpoint-4 is put aside as {aside}" in caplog.text and "optimizer.pt has" in caplog.text
    assert (Path(aside) / adapter).read_bytes() == before
    shutil.rmtree(aside)
    assert (outcome(again), files(saved)) == whole[2]


def test_damaged_checkpoints_go_with_the_run_that_is_overwritten(saved, make_trainer):
    aside = os.path.join(saved, "checkpoint-4.damaged")
    shutil.copytree(os.path.join(saved, "checkpoint-4"), aside)
    make_trainer(**SAVING | dict(max_steps=1)).train()
    assert not os.path.exists(aside) and len(whole_checkpoints(saved)) == 1


@pytest.mark.slow
def test_the_folder_of_another_run_is_left_alone(saved, make_trainer, tmp_path):
    other = make_trainer(**SAVING | dict(output_dir=str(tmp_path / "other"), max_steps=1))
    other.train()
    before = sorted(os.listdir(other.args.output_dir))
    again = make_trainer(**SAVING | dict(output_dir=str(tmp_path / "other"), overwrite_output_dir=False))
    assert "holds another run" in refusal(saved, again, "checkpoint-2")
    assert sorted(os.listdir(other.args.output_dir)) == before


@pytest.mark.slow
def test_adapters_of_another_scaling_are_refused_before_anything_changes(saved, make_trainer, tmp_path):
    """Also where the run that is there would be overwritten."""
    other = make_trainer(**SAVING | dict(output_dir=str(tmp_path / "other"), max_steps=1))
    other.train()
    before = sorted(os.listdir(other.args.output_dir)), files(other.args.output_dir)
    for changes in ({}, {"resize_on_resume": True}):
        again = make_trainer(peft_config=lora(lora_alpha=32), **SAVING, **changes, output_dir=str(tmp_path / "other"))
        assert "its scaling is 2, this population's 8" in refusal(saved, again, "checkpoint-2")
        assert (sorted(os.listdir(other.args.output_dir)), files(other.args.output_dir)) == before


@pytest.mark.slow
def test_what_a_run_cannot_change_on_its_way_is_refused(saved, make_trainer):
    for change, words in (
        (dict(num_students=1), "num_teachers"),
        (dict(num_iterations=2), "num_iterations=1, not 2"),
        (dict(beta=0.1), "beta=0.0, not 0.1"),
        (dict(optim="sgd"), "optim='adamw_torch', not 'sgd'"),
        (dict(task_types=["code_o"]), "task_types"),
    ):
        assert words in refusal(saved, make_trainer(**SAVING | change), "checkpoint-2")


def test_checkpoint_holds_plain_peft_folders(whole):
    folder, trainer, _ = whole
    ids = torch.randint(3, 200, (1, 6))
    for name in trainer.population:
        alone = PeftModel.from_pretrained(tiny_model(), os.path.join(folder, "checkpoint-4", name)).eval()
        trainer.population.model.eval()
        with torch.no_grad(), trainer.population.route([name]):
            torch.testing.assert_close(trainer.population.model(ids).logits, alone(ids).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_true_wants_a_checkpoint_and_auto_does_not(make_trainer):
    with pytest.raises(ValueError, match="holds no complete checkpoint"):
        make_trainer().train(resume_from_checkpoint=True)
    make_trainer(max_steps=1).train(resume_from_checkpoint="auto")


@pytest.mark.slow
def test_auto_starts_again_what_was_stopped_before_its_first_checkpoint(make_trainer):
    trainer = make_trainer(max_steps=2, overwrite_output_dir=False)
    trainer.train()
    wanted, wanted_files = outcome(trainer), files(trainer.args.output_dir)
    with pytest.raises(ValueError, match="already holds a run"):
        make_trainer(max_steps=2, overwrite_output_dir=False).train()
    again = make_trainer(max_steps=2, overwrite_output_dir=False)
    again.train(resume_from_checkpoint="auto")
    assert outcome(again) == wanted and files(again.args.output_dir) == wanted_files
    again.save_model()
    with pytest.raises(ValueError, match="already holds a run"):  # finished: nothing to go on with
        make_trainer(max_steps=2, overwrite_output_dir=False).train(resume_from_checkpoint="auto")


@pytest.mark.slow
def test_old_checkpoints_go_only_when_the_new_one_is_whole(make_trainer):
    trainer = make_trainer(**SAVING | dict(save_total_limit=1))
    trainer.train()
    assert [os.path.basename(path) for path in whole_checkpoints(trainer.args.output_dir)] == ["checkpoint-4"]
    assert not os.path.exists(os.path.join(trainer.args.output_dir, ".saving"))


@pytest.mark.slow
def test_a_full_disk_costs_a_checkpoint_and_nothing_else(whole, make_trainer, monkeypatch, caplog):
    """Files stop growing at 2 kB: adapters cannot be saved, nor rounds recorded; later all is well again."""
    kept, _, (wanted, wanted_files) = whole

    full = set()

    def limited(write):
        def attempt(*args):
            if not full:
                return write(*args)
            with files_no_larger_than(2_000):
                return write(*args)

        return attempt

    def on_round(summary):
        if summary.round == 0:
            full.add("disk")
        if summary.round == 2:
            full.clear()

    trainer = make_trainer(on_round=on_round, **SAVING)
    folder = trainer.args.output_dir
    monkeypatch.setattr(trainer.folder, "flush", limited(trainer.folder.flush))
    monkeypatch.setattr(trainer, "_save_checkpoint", limited(trainer._save_checkpoint))
    trainer.train()
    assert [os.path.basename(path) for path in whole_checkpoints(folder)] == ["checkpoint-4"]
    assert outcome(trainer) == wanted and files(folder) == wanted_files, "what could not be written came later"
    text = caplog.text
    assert "Step 2 was not saved" in text and "record of the run" in text and "the next round tries again" in text
    saved, expected = (sorted(os.listdir(os.path.join(one, "checkpoint-4"))) for one in (folder, kept))
    assert saved == expected


@pytest.mark.slow
def test_the_disk_fills_while_the_checkpoint_is_sealed(make_trainer, monkeypatch, caplog):
    real, calls = checkpoint.os.replace, []

    def replace(source, target):
        if os.path.basename(target) == "checkpoint-2":
            calls.append(target)
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(source, target)

    monkeypatch.setattr(checkpoint.os, "replace", replace)
    trainer = make_trainer(**SAVING)
    trainer.train()
    assert calls and [os.path.basename(p) for p in whole_checkpoints(trainer.args.output_dir)] == ["checkpoint-4"]
    assert "No space left on device" in caplog.text


@pytest.mark.parametrize(
    ("before", "after", "prompts"),
    [
        pytest.param((2, 2), (3, 2), 2, marks=pytest.mark.slow),
        pytest.param((2, 3), (2, 2), 3, marks=pytest.mark.slow),
        pytest.param((1, 2), (2, 4), 2, marks=pytest.mark.slow),
    ],
)
def test_a_population_of_another_size_resumes_only_when_told_to(make_trainer, before, after, prompts):
    def sized(teachers, students, **settings):
        return make_trainer(
            num_teachers=teachers, num_students=students, prompts_per_teacher=prompts, per_device_train_batch_size=12,
            lr_scheduler_type="linear", **SAVING | settings,
        )  # fmt: skip

    small = sized(*before, max_steps=2)
    small.train()
    path = os.path.join(small.args.output_dir, "checkpoint-2")
    with pytest.raises(ValueError, match="resize_on_resume=true"):
        sized(*after).train(resume_from_checkpoint=path)

    resized = sized(*after, resize_on_resume=True)
    seen = {}

    class Look(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            seen.update({name: member_state(resized, name) for name in resized.population})
            seen["skills"] = resized.ratings.state_dict()
            seen["rates"] = [group["lr"] for group in resized.optimizer.param_groups]

    resized.add_callback(Look())
    resized.train(resume_from_checkpoint=path)
    for name in resized.population:
        if name in small.population:
            assert seen[name] == member_state(small, name), "weights and moments of those who stay"
            assert resized.population[name].version == 0
            before, now = small.ratings.state_dict(), seen["skills"]
            assert now["ratings"][name] == before["ratings"][name], "no new interval: sigma stays as narrow"
            assert now["proposals"].get(name) == before["proposals"].get(name)
        else:
            (event,) = [event for event in resized.lineage if event.slot == name]
            assert (
                event.kind == "join"
                and event.operator == "clone"
                and event.step == 2
                and resized.population[name].version == 1
            )
    assert set(seen["rates"]) == {0.01 * 2 / 4}, "half of the linear schedule is over"
    assert resized.state.global_step == 4


@pytest.mark.slow
@pytest.mark.parametrize("mutates", [True, False])
def test_a_copy_has_its_parents_temperature_and_a_learning_rate_that_mutates(make_trainer, mutates):
    def sized(students, **settings):
        return make_trainer(
            num_teachers=1, num_students=students, prompts_per_teacher=2, resize_on_resume=True,
            overwrite_output_dir=False, evolution_interval=9, evolution_kwargs={"mutate_learning_rate": mutates},
            **SAVING | dict(save_steps=1) | settings,
        )  # fmt: skip

    small = sized(1, max_steps=1)
    small.population.restore(replace(small.population["student_0"], temperature=1.6, learning_rate=0.05))
    small.train()
    large = sized(2, max_steps=2)
    large.train(resume_from_checkpoint="auto")
    copy, rate = large.population["student_1"], 0.05 if mutates else large.args.learning_rate
    assert (copy.temperature, copy.learning_rate) == (1.6, rate)
    assert large.population.routing.temperatures == {"student_0": 1.6, "student_1": 1.6}
    assert [group["initial_lr"] for group in large.optimizer.param_groups] == [0.01, 0.05, rate]


@pytest.mark.slow
def test_a_slot_that_went_and_came_back_counts_its_versions_on(make_trainer):
    def sized(students, steps):
        return make_trainer(
            num_teachers=2, num_students=students, prompts_per_teacher=3, per_device_train_batch_size=12,
            resize_on_resume=True, overwrite_output_dir=False, **SAVING | dict(max_steps=steps, save_steps=1),
        )  # fmt: skip

    sized(2, 1).train()
    for students, steps in ((3, 2), (2, 3), (3, 4)):
        trainer = sized(students, steps)
        trainer.train(resume_from_checkpoint="auto")
    born = [(event.slot, event.version) for event in trainer.lineage]
    assert born == [("student_2", 1), ("student_2", 2)] and trainer.population["student_2"].version == 2
    assert "student_2@2 *" in trainer.lineage.family_tree(list(trainer.population))
