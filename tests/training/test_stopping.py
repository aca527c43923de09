"""SIGTERM during training: the run ends after its round with a checkpoint, and goes on as if it had never stopped."""

import os
import signal
import threading

import pytest
from transformers import TrainerCallback

from tests.training.test_resume import files, outcome
from trl_populora.training import stopping


SETTINGS = dict(max_steps=4, evolution_interval=2, lr_scheduler_type="linear", overwrite_output_dir=False)


class Sends(TrainerCallback):
    """Sends this process SIGTERM when an optimizer step begins."""

    def __init__(self, step, times=1):
        self.step, self.times = step, times

    def on_step_begin(self, args, state, control, **kwargs):
        for _ in range(self.times if state.global_step == self.step else 0):
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def terminated():
    """The SIGTERMs that reached the handler which was there before."""
    caught = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    handler = signal.getsignal(signal.SIGTERM)
    yield caught
    assert signal.getsignal(signal.SIGTERM) is handler, "the handler is not put back"
    signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "extra, end",
    [
        ({}, 2),
        ({"num_iterations": 2, "evolution_interval": 1, "save_strategy": "steps", "save_steps": 4}, 2),
    ],
    ids=["plain", "in the middle of a round"],
)
def test_a_stopped_run_goes_on_as_if_it_had_not(make_trainer, tmp_path, terminated, caplog, extra, end):
    whole = make_trainer(**SETTINGS | extra, output_dir=str(tmp_path / "whole"))
    whole.train()
    assert not whole.stopping.stopped

    first = make_trainer(**SETTINGS | extra, callbacks=[Sends(step=end - 1 if not extra else 0)])
    first.train(resume_from_checkpoint="auto")
    folder = first.args.output_dir
    assert first.stopping.stopped and first.stopping.saved and first.state.global_step == end
    said = [record.getMessage() for record in caplog.records if "SIGTERM" in record.getMessage()]
    assert said == [f"Stopped by SIGTERM after step {end}. resume_from_checkpoint=auto goes on from "
                    f"{os.path.join(folder, f'checkpoint-{end}')}."]  # fmt: skip

    again = make_trainer(noise=0.5, **SETTINGS | extra)  # other weights: all must come from the checkpoint
    again.train(resume_from_checkpoint="auto")
    assert not again.stopping.stopped and not terminated
    assert outcome(again) == outcome(whole)
    assert files(folder) == files(whole.args.output_dir)


def test_in_the_last_round_it_changes_nothing(make_trainer, terminated):
    trainer = make_trainer(max_steps=2, callbacks=[Sends(step=1)])
    trainer.train()
    assert trainer.state.global_step == 2 and not trainer.stopping.stopped and not trainer.stopping.saved


class Upload:
    """One that begins with the round, and during which SIGTERM comes."""

    def is_done(self):
        return False

    def wait_until_done(self):
        os.kill(os.getpid(), signal.SIGTERM)


class Uploads(TrainerCallback):
    def __init__(self):
        self.trainer = None

    def on_step_begin(self, args, state, control, **kwargs):
        self.trainer.push_in_progress = Upload()


def test_what_waits_for_an_upload_has_said_so_and_ends_at_once(make_trainer, terminated, caplog, monkeypatch):
    monkeypatch.setattr(stopping, "SAME_SECONDS", 0.0)
    uploads = Uploads()
    for step, last in ((None, 1), (0, 2)):
        caplog.clear()
        uploads.trainer = make_trainer(
            max_steps=last, callbacks=[uploads, Sends(step=step)], overwrite_output_dir=True
        )
        uploads.trainer.train()
        assert uploads.trainer.stopping.stopped == (step == 0)
        said = [record.getMessage() for record in caplog.records if "SIGTERM" in record.getMessage()]
        assert [text.endswith("The process ends when its upload has ended.") for text in said] == [True] * (step == 0)
    assert terminated == [signal.SIGTERM] * 2  # the first after the last round, the second again


@pytest.mark.slow
@pytest.mark.parametrize("apart, ends", [(0.0, True), (60.0, False)])
def test_a_second_one_ends_at_once_unless_it_is_the_same(make_trainer, terminated, monkeypatch, apart, ends):
    monkeypatch.setattr(stopping, "SAME_SECONDS", apart)
    trainer = make_trainer(max_steps=2, callbacks=[Sends(step=0, times=2)])
    trainer.train()
    assert terminated == ([signal.SIGTERM] if ends else [])


@pytest.mark.slow
def test_what_cannot_be_saved_is_said(make_trainer, terminated, caplog, monkeypatch):
    trainer = make_trainer(max_steps=2, callbacks=[Sends(step=0)])
    monkeypatch.setattr(trainer.folder, "flush", lambda: (_ for _ in ()).throw(OSError("the disk is full")))
    trainer.train()
    assert trainer.stopping.stopped and not trainer.stopping.saved
    assert "the disk is full" in caplog.text and "goes on from the beginning" in caplog.text


@pytest.mark.slow
def test_another_thread_trains_without_it(make_trainer):
    trainer = make_trainer(max_steps=1)
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=trainer.train)
    thread.start()
    thread.join()
    assert trainer.state.global_step == 1 and signal.getsignal(signal.SIGTERM) is before
