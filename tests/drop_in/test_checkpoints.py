"""Files: checkpoints, resuming, cards, evaluation by hand; also of one class by the other."""

import random
import shutil

import pytest
from transformers import TrainerCallback
from trl import GRPOTrainer

from tests.drop_in.pairs import CLASSES, assert_equal, plain, prompts, run, settings
from tests.tiny import lora


OURS, THEIRS = CLASSES


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == 2
        return control


def arguments(folders, *, peft: bool = False, **chosen) -> dict:
    return plain(folders) | dict(args=settings(**chosen), peft_config=lora() if peft else None)


SAVING = dict(save_strategy="steps", save_steps=2, max_steps=4, gradient_accumulation_steps=2, beta=0.05)


slow = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize(
    "maker, peft",
    [(OURS, True), *(one for one in [(OURS, False), (THEIRS, False), (THEIRS, True)])],
    ids=["ours-lora", "ours-full", "theirs-full", "theirs-lora"],
)
def test_resume(maker, peft, pair, folders, tmp_path, monkeypatch):
    """A checkpoint of either class is resumed by both to the same end."""
    (tmp_path / "whole").mkdir()
    monkeypatch.chdir(tmp_path / "whole")
    run(maker, lambda: arguments(folders, peft=peft, **SAVING), GRPOTrainer.train)

    def resume(trainer):
        shutil.copytree(tmp_path / "whole" / "run" / "checkpoint-2", "run/checkpoint-2")
        trainer.train(resume_from_checkpoint=True)

    ours, _ = pair(lambda: arguments(folders, peft=peft, **SAVING), resume)
    assert [log.get("step") for log in ours.logs] == [1, 2, 3, 4, 4]  # the first two from the checkpoint


@pytest.mark.slow
@pytest.mark.parametrize("peft", [False, True], ids=["full", "lora"])
def test_best_model(peft, pair, folders):
    chosen = dict(eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1, save_total_limit=1)
    chosen |= dict(load_best_model_at_end=True, metric_for_best_model="eval_reward", greater_is_better=True)
    ours, _ = pair(lambda: arguments(folders, peft=peft, **chosen) | dict(eval_dataset=prompts()), learns=False)
    assert ours.state["best_metric"] is not None


@pytest.mark.slow
def test_adaptive_entropy_is_kept(pair, folders):
    chosen = dict(
        use_adaptive_entropy=True, entropy_coef=0.1, save_strategy="steps", save_steps=1, save_only_model=True
    )
    ours, _ = pair(lambda: arguments(folders, **chosen))
    assert any(path.endswith("entropy_ctrl_state.json") for path in ours.files)


def test_calls_by_hand(pair, folders):
    """Train, evaluate, save, write a card, train on."""

    def act(trainer):
        trainer.train()
        trainer.evaluate()
        trainer.evaluate(prompts().select([0, 1]), metric_key_prefix="other")
        trainer.save_model("saved")
        trainer.save_state()
        trainer.train()

    ours, _ = pair(lambda: arguments(folders) | dict(eval_dataset=prompts()), act)
    assert "saved/model.safetensors" in ours.files


@pytest.mark.slow
def test_evaluation_before_training(pair, folders):
    ours, _ = pair(lambda: arguments(folders) | dict(eval_dataset=prompts()), GRPOTrainer.evaluate, learns=False)
    assert not ours.moved and ours.logs[0]["eval_reward"] != 0


@pytest.mark.slow
def test_stopped_by_a_callback(pair, folders):
    ours, _ = pair(lambda: arguments(folders, max_steps=5) | dict(callbacks=[Stop()]))
    assert ours.state["global_step"] == 2


@pytest.mark.slow
def test_the_comparison_sees_a_difference(folders, tmp_path, monkeypatch):
    """One random number more, or a gradient changed in its last bits: told apart."""

    class Draws(GRPOTrainer):
        def training_step(self, *args):
            random.random()
            return super().training_step(*args)

    class Scales(GRPOTrainer):
        def _compute_loss(self, model, inputs):
            return super()._compute_loss(model, inputs) * (1 + 2**-20)

    monkeypatch.chdir(tmp_path)
    reference = run(GRPOTrainer, lambda: arguments(folders), GRPOTrainer.train)
    assert_equal(run(GRPOTrainer, lambda: arguments(folders), GRPOTrainer.train), reference)
    for changed, what in ((Draws, "random numbers"), (Scales, "loss of entry 0")):
        with pytest.raises(AssertionError, match=what):
            assert_equal(run(changed, lambda: arguments(folders), GRPOTrainer.train), reference)
