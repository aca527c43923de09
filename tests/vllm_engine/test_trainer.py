"""The trainer on a real engine: whole rounds, new weights after every step, importance sampling near one."""

import pytest
from datasets import Dataset

from tests import tiny
from tests.training.conftest import hash_reward
from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer


def train(teachers, engine_model, tokenizer, folder, prepare=lambda trainer: None, *, sampler=None, **settings):
    """Three rounds; the logged differences between the engine's log-probabilities and the trainer's."""
    game = {
        "prompt_style": "compact",
        "num_references": 1,
        "task_kwargs": {"code_f": {"num_inputs": 4}},
        "seed_tasks": 8,
    }
    game = game if teachers else {}
    args = PopulationSelfPlayConfig(
        output_dir=str(folder), num_teachers=teachers, num_students=2, num_generations=2,
        per_device_train_batch_size=4, max_completion_length=8, max_steps=3, learning_rate=1e-2,
        evolution_interval=2, executor_kwargs={"workers": 1}, use_cpu=True, bf16=False, save_strategy="no",
        report_to="none", disable_tqdm=True,
        **({"use_vllm": True, "vllm_max_model_length": 1024, "vllm_max_loras": 2} | game | settings),
    )  # fmt: skip
    trainer = PopulationSelfPlayTrainer(
        engine_model,
        hash_reward,
        args,
        train_dataset=None if teachers else Dataset.from_dict({"prompt": ["one", "two", "three", "four"]}),
        processing_class=tokenizer,
        peft_config=tiny.lora(),
        sampler=sampler,
    )
    tiny.perturb(trainer.population, 0.1)
    prepare(trainer)
    try:
        trainer.train()
    finally:
        trainer.close()
    return trainer, [log for log in trainer.state.log_history if "sampling/sampling_logp_difference/max" in log]


@pytest.mark.parametrize("teachers", [2, 0], ids=["self-play", "dataset"])
def test_the_engine_follows_the_trainer(teachers, engine_model, tokenizer, tmp_path):
    trainer, logs = train(teachers, engine_model, tokenizer, tmp_path)
    assert len(logs) == 3 and len(trainer.lineage) == (2 if teachers else 1)
    for log in logs:
        assert log["sampling/sampling_logp_difference/max"] < 1e-2
        assert log["sampling/importance_sampling_ratio/mean"] == pytest.approx(1.0, abs=1e-2)
    assert set(trainer.source.sampler.liveness) == set(trainer.population)


def test_weights_that_stay_behind_would_be_seen(engine_model, tokenizer, tmp_path):
    """The same run without bringing new weights: the differences grow far beyond what is allowed above."""

    def forget(trainer):
        sync, calls = trainer.source.sampler.sync, []
        trainer.source.sampler.sync = lambda: calls or calls.append(sync())

    _, logs = train(2, engine_model, tokenizer, tmp_path, forget)
    assert logs[0]["sampling/sampling_logp_difference/max"] < 1e-2 < logs[1]["sampling/sampling_logp_difference/max"]
