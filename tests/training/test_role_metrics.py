"""What the log of a population holds: headline numbers per role in self-play, TRL's own on a dataset."""

import numpy as np
import pytest
from datasets import Dataset

from tests.tiny import lora, tiny_model, tiny_tokenizer
from tests.training.conftest import hash_reward
from trl_populora.training import PopulationSelfPlayTrainer


MIXED = ("reward", "reward_std", "frac_reward_zero_std", "rewards/self_play_reward/mean", "rewards/hash_reward/mean")


@pytest.mark.slow
def test_no_number_averages_both_sides_of_the_game(make_trainer):
    totals = []
    trainer = make_trainer(max_steps=2)  # with a reward function of the user's
    finish = trainer.source.finish

    def record(rows, metrics):
        finish(rows, metrics)
        totals.append(rows.rewards)

    trainer.source.finish = record
    trainer.train()
    rounds = [logs for logs in trainer.state.log_history if "round" in logs]
    assert len(rounds) == len(totals) == 2
    for logs, total in zip(rounds, totals, strict=True):
        assert not set(logs) & set(MIXED)
        teachers, students = total[:4], total[4:]  # two teachers and two students, groups of two
        assert logs["teachers/reward"] == pytest.approx(float(np.mean(teachers)))
        assert logs["students/reward_std"] == pytest.approx(float(np.std(students, ddof=1)))
        flat = np.mean([a == b for a, b in students.reshape(-1, 2)])
        assert logs["students/zero_std_groups"] == pytest.approx(flat)
        own, everybody = logs["teachers/rewards/hash_reward/mean"], logs["students/rewards/hash_reward/mean"]
        assert own != everybody
        assert logs["teachers/rewards/self_play_reward/mean"] + own == pytest.approx(logs["teachers/reward"])
        assert logs["completions/mean_length"] > 0  # what is no reward stays TRL's


def test_a_function_that_is_alone_needs_no_numbers_of_its_own(make_trainer):
    trainer = make_trainer(rewards=None, max_steps=1)
    trainer.train()
    (logs,) = [logs for logs in trainer.state.log_history if "round" in logs]
    assert logs["teachers/reward"] == -1 and not [name for name in logs if "rewards/" in name]
    assert logs["teachers/zero_std_groups"] == 1
    assert logs["fill_rate"] == 1 and "solve_rate" not in logs  # a random base proposes nothing valid


def test_a_dataset_keeps_the_numbers_of_trl(config):
    trainer = PopulationSelfPlayTrainer(
        tiny_model(),
        hash_reward,
        config(num_teachers=0, num_students=2, max_steps=1),
        train_dataset=Dataset.from_dict({"prompt": ["a", "b", "c", "d"]}),
        processing_class=tiny_tokenizer(),
        peft_config=lora(),
    )
    trainer.train()
    (logs,) = [logs for logs in trainer.state.log_history if "round" in logs]
    assert logs["reward"] == pytest.approx(logs["rewards/hash_reward/mean"]) == pytest.approx(logs["students/reward"])
    assert "frac_reward_zero_std" in logs and "students/zero_std_groups" not in logs


@pytest.mark.slow
def test_weights_are_measured_every_so_many_rounds(make_trainer):
    summaries = []
    trainer = make_trainer(max_steps=4, weight_metrics_interval=2, on_round=summaries.append)
    trainer.train()
    assert [bool(summary.cosines) for summary in summaries] == [False, True, False, True]
    last = [logs for logs in trainer.state.log_history if "round" in logs][-1]
    for name in trainer.population:
        assert last[f"weights/delta_norm/{name}"] > 0 and 1 <= last[f"weights/effective_rank/{name}"] <= 4
    assert -1 <= last["teachers/weights/cosine_min"] <= last["teachers/weights/cosine_max"] <= 1
    assert "students/rating/dispersion" in last
    never = make_trainer(max_steps=1, weight_metrics_interval=0)
    never.train()
    assert not [name for logs in never.state.log_history for name in logs if "delta_norm" in name]
