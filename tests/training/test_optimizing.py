"""What Trainer builds only when training begins is tried before, so that a wrong setting costs no earlier run."""

import os

import pytest
import torch
from datasets import Dataset

from tests.training.conftest import build_trainer, finished
from trl_populora.run_files.checkpoint import whole_checkpoints
from trl_populora.training import PopulationSelfPlayConfig
from trl_populora.training import trainer as training


REFUSED = [
    ({"lr_scheduler_type": "warmup_stable_decay"}, "lr_scheduler_type='warmup_stable_decay'.*num_decay_steps"),
    ({"optim": "lomo"}, "optim='lomo'.*(lomo-optim|its own groups)"),
    ({"optim": "schedule_free_adamw"}, "optim='schedule_free_adamw'.*schedulefree"),
    ({"adam_beta2": 1.0}, "optim='adamw_torch.*adam_beta2=1.0.*Invalid beta parameter"),
    ({"optim_args": "abc"}, "optim='adamw.*optim_args='abc' cannot be used"),
    (
        {"lr_scheduler_type": "polynomial", "learning_rate": 1e-8},
        "lr_scheduler_type='polynomial'.*learning_rate=1e-08",
    ),
    (
        {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"power": float("nan")}},
        "the learning rate of step 1 would be nan",
    ),
    (
        {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"abc": 1}},
        "gradient_checkpointing_kwargs={.*'abc': 1}.*unexpected keyword",
    ),
    ({"use_liger_kernel": True}, "use_liger_kernel=true needs liger-kernel"),
    ({"accelerator_config": {"dispatch_batches": True}}, "accelerator_config with dispatch_batches=true"),
    ({"accelerator_config": {"split_batches": True}}, "accelerator_config with split_batches=true: each process"),
    (
        {"accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 2}}},
        "accelerator_config with num_steps: a round is one optimizer step",
    ),
    ({"vllm_importance_sampling_mode": "token"}, "vllm_importance_sampling_mode='token' is unknown"),
    ({"save_on_each_node": True}, "save_on_each_node=True would write"),
    ({"label_smoothing_factor": 0.5}, "label_smoothing_factor=0.5 would be ignored"),
    ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy='group_by_length' would be ignored"),
    ({"include_num_input_tokens_seen": "yes"}, "include_num_input_tokens_seen='yes' is unknown"),
    ({"vllm_mode": "colocated", "use_vllm": True}, "vllm_mode='colocated' is unknown. Did you mean 'colocate'"),
    ({"num_teachers": 0, "hall_of_fame_size": 5}, "hall_of_fame_size=5 without self-play"),
]
if "activation_checkpointing" in PopulationSelfPlayConfig.__dataclass_fields__:  # from transformers 5.23 on
    REFUSED += [
        ({"activation_checkpointing": True, "activation_checkpointing_kwargs": {name: value}}, f"TRL loses {name}")
        for name, value in {"every_n_layers": 2, "offload": True}.items()
    ]


@pytest.mark.parametrize("settings, words", REFUSED, ids=lambda one: "-".join(one) if isinstance(one, dict) else "")
def test_what_cannot_be_built_is_refused_at_construction(make_trainer, settings, words):
    with pytest.raises(ValueError, match=words):
        make_trainer(**settings)


@pytest.mark.parametrize("name, value", [("MIXED_PRECISION", "fp16"), ("DYNAMO_BACKEND", "INDUCTOR")])
def test_what_the_launcher_adds_is_refused_as_a_setting_is(make_trainer, monkeypatch, name, value):
    monkeypatch.setenv(f"ACCELERATE_{name}", value)
    with pytest.raises(ValueError, match=f"the launcher's {name.lower()}: {value}, which"):
        make_trainer()


@pytest.mark.slow
def test_every_kind_of_schedule_passes(make_trainer):
    for kind, kwargs in (
        ("linear", None),
        ("cosine_with_min_lr", {"min_lr": 1e-6}),
        ("warmup_stable_decay", {"num_decay_steps": 1}),
    ):
        make_trainer(lr_scheduler_type=kind, lr_scheduler_kwargs=kwargs, warmup_steps=1)


def test_a_schedule_counted_in_epochs_is_tried(config):
    args = config(num_teachers=0, max_steps=-1, lr_scheduler_type="warmup_stable_decay")
    with pytest.raises(ValueError, match="num_decay_steps"):
        build_trainer(args, train_dataset=Dataset.from_dict({"prompt": ["one", "two"]}))


@pytest.mark.slow
def test_a_run_that_does_not_begin_leaves_later_checkpoints(make_trainer, monkeypatch, tmp_path):
    """Even if the reason shows only when the optimizer is built."""
    settings = dict(max_steps=2, save_strategy="steps", save_steps=1)
    folder = finished(tmp_path, **settings).args.output_dir
    before = whole_checkpoints(folder)
    trainer = make_trainer(**settings, output_dir=folder)
    monkeypatch.setattr(training, "make_optimizer", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-1"))
    assert len(before) == 2 and whole_checkpoints(folder) == before


@pytest.mark.parametrize(
    "given, words",
    [
        (
            {"optimizers": "made"},
            "optimizers cannot be combined with a population. Each member needs .* `create_optim",
        ),
        (
            {"rollout_func": print},
            "rollout_func cannot be combined .*population. Rows of several turns .* a row_source",
        ),
        (
            {"optimizers": "made", "rollout_func": print},
            "optimizers, rollout_func cannot .* group of its own .* row_sour",
        ),
    ],
)
def test_arguments_of_one_policy_are_refused_with_the_way_out(config, given, words):
    if "optimizers" in given:
        given = given | {"optimizers": (torch.optim.SGD([torch.zeros(1)]), None)}
    with pytest.raises(ValueError, match=words + ".*To train one policy, pass a trl.GRPOConfig"):
        build_trainer(config(), **given)


@pytest.mark.slow
def test_checkpointing_is_not_reentrant_where_its_settings_do_not_say_it(make_trainer, monkeypatch):
    """Reentrant is PyTorch's default, which DDP cannot train with: a weight would have two gradients."""
    reentrant = []
    monkeypatch.setattr(torch.utils.checkpoint.CheckpointFunction, "apply", reentrant.append)
    for kwargs in ({"preserve_rng_state": False}, {}):
        make_trainer(gradient_checkpointing=True, gradient_checkpointing_kwargs=kwargs, max_steps=1).train()
    assert not reentrant
