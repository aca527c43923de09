"""Canaries: what this package relies on inside TRL, one test per private method that it overrides or calls.

A failure here after an upgrade of TRL says where to look before anything subtler goes wrong.
"""

import inspect

import pytest
import transformers
from packaging import version
from transformers import Trainer
from trl import GRPOTrainer
from trl.trainer.base_trainer import _BaseTrainer as BaseTrainer

from trl_populora.training import PopulationSelfPlayTrainer


PRIVATE = ["private"] if version.parse(transformers.__version__) >= version.parse("5.23") else []


def parameters(function):
    return list(inspect.signature(inspect.unwrap(function)).parameters)


@pytest.mark.parametrize(
    ("owner", "name", "expected"),
    [
        (GRPOTrainer, "_generate_and_score_completions", ["self", "inputs"]),
        (GRPOTrainer, "_generate", ["self", "prompts"]),
        (GRPOTrainer, "_calculate_rewards", ["self", "inputs", "prompts", "completions", "completion_ids_list"]),
        (GRPOTrainer, "_prepare_inputs", ["self", "generation_batch"]),
        (GRPOTrainer, "_compute_loss", ["self", "model", "inputs"]),
        (GRPOTrainer, "training_step", ["self", "model", "inputs", "num_items_in_batch"]),
        (GRPOTrainer, "prediction_step", ["self", "model", "inputs", "prediction_loss_only", "ignore_keys"]),
        (Trainer, "create_optimizer", ["self", "model"]),
        (Trainer, "_evaluate", ["self", "trial", "ignore_keys_for_eval", "skip_scheduler"]),
        (Trainer, "_clip_grad_norm", ["self", "model"]),
        (BaseTrainer, "create_model_card", ["self", "model_name", "dataset_name", "tags"]),
        (Trainer, "_save", ["self", "output_dir", "state_dict"]),
        (Trainer, "_load_from_checkpoint", ["self", "resume_from_checkpoint", "model"]),
        (GRPOTrainer, "_get_train_sampler", ["self", "dataset"]),
        (GRPOTrainer, "_log_completion_extra", ["self", "column", "values"]),
        (GRPOTrainer, "_save_checkpoint", ["self", "model", "trial"]),
        (GRPOTrainer, "_load_optimizer_and_scheduler", ["self", "checkpoint"]),
        (Trainer, "_get_output_dir", ["self", "trial"]),
        (Trainer, "_push_from_checkpoint", ["self", "checkpoint_folder"]),
        (Trainer, "init_hf_repo", ["self", "token", *PRIVATE]),
        (Trainer, "push_to_hub", ["self", "commit_message", "blocking", "token", "revision", *PRIVATE, "kwargs"]),
        (Trainer, "_finish_current_push", ["self"]),
        (Trainer, "train", ["self", "resume_from_checkpoint", "trial", "ignore_keys_for_eval"]),
    ],
)
def test_signature(owner, name, expected):
    assert parameters(getattr(owner, name)) == expected


def test_get_per_token_logps_and_entropies():
    names = parameters(GRPOTrainer._get_per_token_logps_and_entropies)
    assert names[:6] == ["self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size"]


def test_every_override_is_watched():
    own = {name for name in vars(PopulationSelfPlayTrainer) if callable(getattr(GRPOTrainer, name, None))}
    watched = {"_prepare_inputs", "create_model_card"}
    watched |= {
        "_get_per_token_logps_and_entropies",
        "__init__",
        "_generate_and_score_completions",
        "prediction_step",
    }
    watched |= {
        "_compute_loss",
        "training_step",
        "create_optimizer",
        "_maybe_log_save_evaluate",
        "_evaluate",
        "_clip_grad_norm",
        "_save",
        "_load_from_checkpoint",
        "_get_train_sampler",
        "_save_checkpoint",
        "_load_optimizer_and_scheduler",
        "_get_output_dir",
        "_push_from_checkpoint",
        "init_hf_repo",
        "push_to_hub",
        "train",
        "evaluate",
    }
    assert {name for name in own if not name.startswith("__") or name == "__init__"} == watched


@pytest.mark.slow
def test_output_of_a_generation_phase(make_trainer):
    trainer = make_trainer(max_steps=1)
    seen = {}
    loss = trainer._compute_loss
    trainer._compute_loss = lambda model, inputs: seen.update(inputs) or loss(model, inputs)
    trainer.train()
    assert set(seen) == {
        "prompt_ids",
        "prompt_mask",
        "completion_ids",
        "completion_mask",
        "advantages",
        "num_items_in_batch",
        "member_ids",
        "weight",
    }
    assert seen["member_ids"].shape == seen["advantages"].shape == (4,)


@pytest.mark.slow
def test_buffered_inputs_are_where_micro_batches_come_from(make_trainer):
    trainer = make_trainer(max_steps=1)
    trainer.train()
    assert len(trainer._buffered_inputs) == trainer.args.steps_per_generation == 3
    widths = [int(b["prompt_mask"].sum(1).max() + b["completion_mask"].sum(1).max()) for b in trainer._buffered_inputs]
    assert widths == sorted(widths, reverse=True)
    assert all(b["prompt_mask"][:, 0].any() and b["completion_mask"][:, -1].any() for b in trainer._buffered_inputs)


def test_evaluate_is_what_probes_replace():
    assert parameters(GRPOTrainer.evaluate) == ["self", "eval_dataset", "ignore_keys", "metric_key_prefix"]
