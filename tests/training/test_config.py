import re
from dataclasses import fields

import numpy as np
import pytest
from transformers import GPT2Config, GPT2LMHeadModel
from trl import GRPOConfig, TrlParser

from tests.adding import Adding
from tests.tiny import lora, tiny_model, tiny_tokenizer
from trl_populora.recipe import RunArguments
from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer
from trl_populora.training.checks import CHOICES, prompt_limit
from trl_populora.training.round_shape import check_processes, for_processes
from trl_populora.training.supported import without_effect


def test_the_dial_sets_the_batch(config):
    args = config(num_teachers=4, num_students=4, num_generations=8, per_device_train_batch_size=16)
    assert args.proposals_per_round == 32 and args.rows_per_round == 288
    assert args.gradient_accumulation_steps == args.steps_per_generation == 18
    assert args.generation_batch_size == 288


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"num_teachers": 0, "num_students": 0}, "num_teachers=0 and num_students=0.*at least one of each"),
        ({"num_students": 0}, "num_students=0"),
        ({"shared_member": True}, "shared_member=true.*got 2 and 2"),
        ({"num_teachers": 2, "num_students": 3}, "prompts_per_teacher to a multiple of 3"),
        ({"prompts_per_teacher": 0}, "prompts_per_teacher=0"),
        ({"num_generations": 1}, "num_generations=1"),
        ({"num_generations": None}, "num_generations is unset"),
        ({"max_completion_length": None}, "max_completion_length is unset"),
        ({"per_device_train_batch_size": 5}, "12 rows a round .*per_device_train_batch_size to (4|6)"),
        ({"gradient_accumulation_steps": 7}, "gradient_accumulation_steps=7 contradicts the 12 rows"),
        ({"steps_per_generation": 7}, "steps_per_generation=7 contradicts"),
        ({"generation_batch_size": 8}, "generation_batch_size=8 contradicts"),
        ({"lora_r": 0}, "lora_r=0"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"max_steps": 3, "num_iterations": 2}, "max_steps=3 .*multiple of num_iterations=2"),
        ({"task_types": []}, "task_types=\\[\\]"),
        ({"task_types": ["code_x"]}, "code_x.*code_o"),
        ({"task_types": ["code_o", "code_o"]}, "each type once"),
        ({"prompt_style": "long"}, "prompt_style='long'.*full"),
        ({"teacher_reward": "kind"}, "teacher_reward='kind'.*adversarial"),
        ({"pairing": "random"}, "pairing='random'.*variance"),
        ({"solvable_attempts": -1}, "solvable_attempts=-1 must not be negative"),
        ({"solvable_rounds": -1}, "solvable_rounds=-1 must not be negative"),
        ({"solvable_rounds": 2}, "solvable_rounds=2 with teacher_reward='adversarial'.*'solvable'"),
        ({"max_unsolved_tries": -1}, "max_unsolved_tries=-1"),
        ({"task_kwargs": {"code_o": {"max_float_digits": -1}}}, "task_kwargs.code_o: max_float_digits .*, got -1"),
        ({"answer_share": 0.0}, "answer_share=0.0"),
        ({"answer_share": 1.5}, "answer_share=1.5"),
        ({"answer_share": 0.1}, "answer_share=0.1 of max_completion_length=8.*at least one token"),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens=0"),
        (
            {"use_vllm": True, "max_prompt_tokens": 100, "vllm_max_model_length": 107},
            "max_prompt_tokens=100.*the 107 tokens of the sampler.*max_prompt_tokens to 99.*vllm_max_model_length",
        ),
        ({"advantage": "batch"}, "advantage='batch'"),
        ({"pairing_floor": 0.0}, "pairing_floor=0.0"),
        ({"task_kwargs": {"code_f": {"num_inputs": 1}}}, "task_kwargs.code_f: num_inputs .* got 1"),
        ({"evolution_kwargs": {"operators": ["svd_structred"]}}, "evolution_kwargs: .*svd_structred.*svd_structured"),
        ({"evolution_kwargs": {"fraction": 2.0}}, "evolution_kwargs: fraction .*2.0"),
        ({"executor_kwargs": {"cpu_seconds": 0}}, "executor_kwargs: .*cpu_seconds is 0"),
        ({"reward_kwargs": {"wrong": float("nan")}}, "reward_kwargs: wrong=nan must be a finite number"),
        ({"reward_kwargs": {"solved": 1e39}}, "reward_kwargs: solved=1e\\+39 must be .* from -1e\\+06 to 1e\\+06"),
        ({"loss_type": "bnpo"}, "loss_type='bnpo'"),
        ({"scale_rewards": "batch"}, "scale_rewards='batch'"),
        ({"entropy_coef": 0.1}, "entropy"),
        ({"top_entropy_quantile": 0.5}, "top_entropy_quantile=0.5"),
        ({"max_grad_norm": 0.0}, "max_grad_norm=0.0.*1e9"),
        ({"max_grad_norm": float("nan")}, "max_grad_norm=nan must be finite"),
        ({"beta": float("nan")}, "beta=nan must be finite"),
        ({"beta": float("inf")}, "beta=inf must be finite"),
        ({"beta": -1.0}, "beta=-1.0 must not be negative"),
        ({"weight_decay": float("nan")}, "weight_decay=nan must be finite"),
        ({"epsilon": float("nan")}, "epsilon=nan must be finite"),
        ({"epsilon_high": float("-inf")}, "epsilon_high=-inf must be finite"),
        ({"adam_beta1": float("nan")}, "adam_beta1=nan must be finite"),
        ({"warmup_steps": float("inf")}, "warmup_steps=inf must be finite"),
        ({"reward_weights": [1.0, float("nan")]}, "reward_weights=.1.0, nan. must be finite"),
        ({"reward_weights": [0.0, 0]}, "reward_weights=.0.0, 0.0.: nothing would be learned"),
        ({"reward_weights": ["one"]}, "reward_weights=.'one'. must be a list of numbers"),
        ({"logging_steps": float("nan")}, "logging_steps=nan must be finite"),
        ({"save_steps": float("inf")}, "save_steps=inf must be finite"),
        ({"save_steps": 0}, "save_steps=0.0 must be a whole number of at least 1, or a share"),
        ({"save_steps": -1}, "save_steps=-1.0 must be a whole number"),
        ({"logging_steps": 1.5}, "logging_steps=1.5 must be a whole number"),
        ({"eval_steps": 0}, "eval_steps=0.0 must be a whole number"),
        ({"seed": -1}, "seed=-1 must be from 0 to 4294967295"),
        ({"seed_tasks": 10**7}, "seed_tasks=10000000 is more than buffer_capacity=16384"),
        ({"num_teachers": 0, "buffer_capacity": 9}, "buffer_capacity=9 without self-play"),
        ({"seed_families": [1]}, "seed_families=.1. must be a list of texts, or unset"),
        ({"evolution_kwargs": {"operators": [1]}}, "evolution_kwargs: operators=.1. must be a list of texts"),
        ({"output_dir": ["runs"]}, "output_dir=.'runs'. must be a text"),
        ({"task_types": [Adding()]}, "settings have names of task types. Pass objects to the trainer"),
        ({"task_types": Adding}, "settings have names of task types. Pass objects to the trainer"),
        ({"optim": "adam"}, "optim='adam' is unknown. Did you mean 'adamw_torch'"),
        ({"log_level": "abc"}, "log_level='abc' is unknown. Choose from .*'info'"),
        ({"per_device_train_batch_size": "5"}, "per_device_train_batch_size='5' must be a whole number"),
        ({"per_device_train_batch_size": 1.5}, "per_device_train_batch_size=1.5 must be a whole number"),
        ({"learning_rate": "fast"}, "learning_rate='fast' must be a number"),
        ({"use_vllm": "no"}, "use_vllm='no' must be true or false"),
        ({"model_init_kwargs": 5}, "model_init_kwargs=5 must be a mapping, or unset"),
        ({"model_init_kwargs": {"torch_dtype": "bfloat16"}}, "torch_dtype in model_init_kwargs.*the setting is dtype"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs=.1. must be a mapping"),
        ({"gradient_checkpointing_kwargs": [1]}, "gradient_checkpointing_kwargs=.1. must be a mapping"),
        ({"gradient_checkpointing_kwargs": "abc"}, "gradient_checkpointing_kwargs='abc' must be a mapping"),
        ({"use_vllm": True, "vllm_structured_outputs_regex": "a+"}, "vllm_structured_outputs_regex"),
        (
            {"use_vllm": True, "loss_type": "vespo", "vllm_importance_sampling_mode": "sequence_mask"},
            "vllm_importance_sampling_mode='sequence_mask'",
        ),
        ({"vllm_max_loras": 0}, "vllm_max_loras=0"),
        ({"dataloader_persistent_workers": True, "dataloader_num_workers": 1}, "dataloader_persistent_workers=True"),
        ({"evolution_interval": 1, "evolution_kwargs": {"elites": 2}}, "elites=2 are never replaced"),
        ({"enable_jit_checkpoint": True}, "enable_jit_checkpoint"),
        ({"save_strategy": "epoch"}, "save_strategy"),
        ({"save_strategy": "steps", "logging_strategy": "epoch"}, "logging_strategy"),
        ({"save_strategy": "steps", "save_steps": 20, "logging_steps": 3}, "set save_steps to 21"),
        ({"save_only_model": True}, "save_only_model"),
        ({"metric_for_best_model": "reward"}, "metric_for_best_model"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, "lr_scheduler_type"),
        ({"student_learning_rate": -1.0}, "student_learning_rate=-1.0"),
        ({"learning_rate_spread": 0.5}, "learning_rate_spread=0.5 must be a number of at least 1"),
        ({"learning_rate_spread": float("nan")}, "learning_rate_spread=nan"),
        (
            {"learning_rate_spread": 2.0, "num_teachers": 1, "num_students": 1, "evolution_interval": 0},
            "learning_rate_spread=2.0 needs a role with at least two members",
        ),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"top_k": -1}, "top_k=-1 .*0 is off"),
        ({"min_p": 2.0}, "min_p=2.0"),
        ({"executor_kwargs": {"workers": 0}}, "executor_kwargs: workers=0"),
        ({"weight_metrics_interval": -1}, "weight_metrics_interval=-1"),
        ({"load_best_model_at_end": True, "eval_strategy": "no", "save_strategy": "no"}, "load_best_model_at_end"),
        ({"gradient_checkpointing_kwargs": {"use_reentrant": True}}, "reentrant"),
        ({"bf16_full_eval": True}, "bf16_full_eval=True would round the members' own weights"),
        ({"fp16_full_eval": True}, "fp16_full_eval=True would round the members' own weights"),
        ({"deepspeed": "no_such_file.json"}, "DeepSpeed partitions adapters .* set shard_base=true"),
        ({"sync_ref_model": True}, "sync_ref_model"),
        ({"repetition_penalty": 1.2}, "repetition_penalty=1.2"),
        ({"save_strategy": "steps", "save_steps": 3, "num_iterations": 2, "max_steps": 4}, "save_steps=3"),
        ({"save_strategy": "stpes"}, "save_strategy='stpes' is unknown. Did you mean 'steps'"),
        ({"save_strategy": "epoch"}, "save_strategy='epoch'"),
        ({"eval_strategy": "never"}, "eval_strategy='never' is unknown. Choose from .*'no'"),
        ({"logging_strategy": "never"}, "logging_strategy='never' is unknown"),
        ({"eval_on_start": True}, "eval_on_start=True would evaluate again.*trainer.evaluate"),
        ({"importance_sampling_level": "seq"}, "importance_sampling_level='seq' is unknown. .*'sequence'"),
        ({"dataloader_multiprocessing_context": "thread"}, "dataloader_multiprocessing_context='thread' is unknown"),
        ({"dataloader_num_workers": -1}, "dataloader_num_workers=-1 must not be negative"),
        ({"neftune_noise_alpha": -1.0}, "neftune_noise_alpha=-1.0 must not be negative"),
        ({"pad_to_multiple_of": 0}, "pad_to_multiple_of=0 is undone"),
        ({"sapo_temperature_neg": 0.0}, "sapo_temperature_neg=0.0 must be above 0"),
        ({"delta": -1.0}, "delta=-1.0 must not be negative"),
        ({"epsilon_high": -1.0}, "epsilon_high=-1.0 must not be negative"),
        ({"vespo_k_pos": -1.0}, "vespo_k_pos=-1.0 must not be negative"),
        ({"off_policy_mask_threshold": -1.0}, "off_policy_mask_threshold=-1.0 must not be negative"),
        ({"num_teachers": 0, "num_train_epochs": 0.0, "max_steps": -1}, "num_train_epochs=0.0 trains nothing"),
        ({"num_teachers": 0, "max_prompt_tokens": 5}, "max_prompt_tokens=5 without self-play"),
        ({"initial_adapters": ""}, "initial_adapters='' names nothing"),
        ({"initial_adapters": []}, "initial_adapters=.. names nothing"),
        (
            {"lr_scheduler_type": "polynomial", "student_learning_rate": 1e-3},
            "lr_scheduler_type='polynomial'.*learning_rate=0.01, which not all members have.*min_lr_rate",
        ),
        (
            {
                "lr_scheduler_type": "cosine_with_min_lr",
                "lr_scheduler_kwargs": {"min_lr": 1e-4},
                "evolution_interval": 1,
                "evolution_kwargs": {"mutate_learning_rate": True},
            },
            "lr_scheduler_kwargs={'min_lr': 0.0001}.*which not all members have",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_inconsistencies_are_refused_with_value_and_fix(config, setting, text):
    with pytest.raises(ValueError) as error:
        config(**setting)
    assert re.search(text, str(error.value), re.DOTALL), str(error.value)


def test_what_may_be_infinite_or_unset_stays_so(config, tmp_path):
    infinite = {"max_grad_norm": float("inf"), "epsilon_high": float("inf"), "delta": None}
    path = tmp_path / "accelerator.json"
    path.write_text("{}")
    args = config(**infinite, min_p=None, accelerator_config=str(path), resume_from_checkpoint=True)
    assert {name: getattr(args, name) for name in infinite} == infinite


def test_numbers_of_numpy_are_numbers(config):
    given = {"learning_rate": np.float64(1e-4), "num_generations": np.int64(3), "pairing_floor": np.float32(0.5)}
    args = config(**given, evolution_kwargs={"fraction": np.float64(0.5)})
    assert {name: getattr(args, name) for name in given} == given
    assert [type(getattr(args, name)) for name in given] == [float, int, float]
    assert args.evolution_kwargs["fraction"] == 0.5
    with pytest.raises(ValueError, match="num_generations=.* must be a whole number"):
        config(num_generations=np.float64(3))


def test_a_penalty_towards_the_base_needs_members_that_start_there(config):
    with pytest.raises(ValueError, match="beta=0.1 with init_lora_weights=False"):
        PopulationSelfPlayTrainer(
            "/no/such/model",  # it would be the next thing to fail
            args=config(beta=0.1),
            processing_class=tiny_tokenizer(),
            peft_config=lora(init_lora_weights=False),
        )


def test_a_head_that_is_the_embedding_is_not_cast(make_trainer):
    with pytest.raises(ValueError, match="cast_lm_head_to_fp32=true with a base whose LM head is its embedding"):
        make_trainer(cast_lm_head_to_fp32=True)  # the tiny base's is


@pytest.mark.slow
def test_the_learning_rate_is_constant_unless_told_otherwise(config, make_trainer):
    assert config().lr_scheduler_type == "constant"
    trainer = make_trainer(max_steps=2, evolution_interval=0)
    trainer.train()
    assert {group["lr"] for group in trainer.optimizer.param_groups} == {1e-2}


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"warmup_steps": 2}, "warmup_steps=2: set lr_scheduler_type to 'constant_with_warmup'"),
        (
            {"lr_scheduler_kwargs": {"power": 2}},
            "lr_scheduler_kwargs={'power': 2}: lr_scheduler_type='constant' takes",
        ),
        ({"evolution_interval": 1, "evolution_kwargs": {"min_age": 2}}, "min_age=2 in 2 rounds replaces nobody"),
        ({"evolution_interval": 2}, "evolution_interval=2 in 2 rounds replaces nobody"),
        ({"probe_kwargs": {"exams": ["held_out[:2]"]}}, "probe_kwargs: only trainer.evaluate() asks these exams. Set"),
        (
            {"evolution_interval": 0, "evolution_kwargs": {"fraction": 0.5}},
            "evolution_kwargs: evolution_interval is 0",
        ),
        ({"recombination_roles": "students"}, "recombination_roles: recombination_interval is 0"),
        ({"solvable_attempts": 3}, "solvable_attempts: teacher_reward is 'adversarial'"),
        ({"vllm_max_loras": 3}, "vllm_max_loras: use_vllm is false"),
        (
            {
                "evolution_interval": 1,
                "evolution_kwargs": {"operators": ["clone"], "operator_parameters": {"dare": {"p": 0.5}}},
            },
            "operator_parameters of dare, not among operators=['clone']",
        ),
        ({"probe_kwargs": {"data": "folder"}, "evolution_interval": 1}, None),  # final exams read it
        ({"warmup_steps": 2, "lr_scheduler_type": "constant_with_warmup", "evolution_interval": 1}, None),
        ({"lr_scheduler_type": "polynomial", "evolution_interval": 1}, None),
        (
            {
                "lr_scheduler_type": "polynomial",
                "lr_scheduler_kwargs": {"lr_end": 0},
                "teacher_learning_rate": 1e-3,
                "evolution_interval": 1,
            },
            None,
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_settings_without_effect_are_told(make_trainer, caplog, settings, words):
    make_trainer(**settings)
    told = [text for text in caplog.messages if text.startswith("Without effect: ")]
    assert len(told) == (words is not None) and (words or "") in "".join(told)


def test_exams_are_not_kept_out_of_a_dataset_and_this_is_told(config):
    told = [without_effect(config(num_teachers=teachers, reserved_exams=["gsm8k"])) for teachers in (0, 2)]
    assert "reserved_exams" not in "".join(
        told[1]
    ) and "reserved_exams=['gsm8k']: rows of a dataset are not compared" in "".join(told[0])


def test_a_spread_gives_members_of_a_role_learning_rates_in_equal_ratios(make_trainer):
    trainer = make_trainer(
        num_teachers=1,
        num_students=3,
        prompts_per_teacher=3,
        per_device_train_batch_size=3,
        teacher_learning_rate=1e-3,
        learning_rate_spread=4.0,
    )
    rates = {group["member"]: group["lr"] for group in trainer.create_optimizer().param_groups}
    assert rates == pytest.approx({"teacher_0": 1e-3, "student_0": 0.25e-2, "student_1": 1e-2, "student_2": 4e-2})
    assert {name: trainer.population[name].learning_rate for name in rates} == pytest.approx(rates)


def test_the_command_line_explains_every_setting_of_ours_and_names_every_choice():
    told = {action.dest: action.help for action in TrlParser([RunArguments, PopulationSelfPlayConfig])._actions}
    inherited = {field.name for field in fields(GRPOConfig)}
    own = {field.name for cls in (RunArguments, PopulationSelfPlayConfig) for field in fields(cls) if field.init}
    assert sorted(name for name in own - inherited if not told[name]) == []
    unnamed = [(name, choice) for name, all in CHOICES.items() for choice in all if f'`"{choice}"`' not in told[name]]
    assert unnamed == []


@pytest.mark.parametrize(
    "argument",
    [
        {"train_dataset": "x"},
        {"eval_dataset": "x"},
        {"tools": [len]},
        {"rollout_func": len},
        {"environment_factory": len},
    ],
    ids=lambda a: next(iter(a)),
)
def test_arguments_that_contradict_a_population_are_refused(config, argument):
    with pytest.raises(ValueError, match=next(iter(argument))):
        PopulationSelfPlayTrainer(
            tiny_model(), args=config(), processing_class=tiny_tokenizer(), peft_config=lora(), **argument
        )


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (30, "max_prompt_tokens=30 is too small for every code_o task"),
        (1500, "max_prompt_tokens=1500 is too small: the shortest prompt that asks for a code_o task"),
    ],
)
def test_a_limit_of_prompts_that_cannot_hold_is_refused(config, tokens, text):
    args = config(max_prompt_tokens=tokens, seed_tasks=0, task_types=["code_o"], prompt_style="full")
    with pytest.raises(ValueError, match=text):
        PopulationSelfPlayTrainer(tiny_model(), args=args, processing_class=tiny_tokenizer(), peft_config=lora())


def test_a_prompt_and_a_completion_that_the_base_cannot_hold_are_refused(config):
    args = config(num_references=5, max_completion_length=1000, task_types=["code_o"], prompt_style="full")
    with pytest.raises(
        ValueError, match="num_references=5: a teacher's prompt for code_o has .* than the 2048 of the ba"
    ):
        PopulationSelfPlayTrainer(tiny_model(), args=args, processing_class=tiny_tokenizer(), peft_config=lora())


def test_no_row_is_longer_than_the_positions_of_the_base(config):
    """With an embedding for each, as in GPT-2, one more would be an index out of range."""

    def base():
        return GPT2LMHeadModel(GPT2Config(vocab_size=259, n_embd=32, n_layer=1, n_head=4, n_positions=420))

    adapters = lora(target_modules=["c_attn"])
    trainer = PopulationSelfPlayTrainer(
        base(),
        args=config(task_types=["countdown"], task_kwargs={}),
        processing_class=tiny_tokenizer(),
        peft_config=adapters,
    )
    assert trainer.source.self_play.lengths.prompt == 412
    with pytest.raises(ValueError, match="max_prompt_tokens=413.*does not fit into the 420 tokens of the sampler"):
        args = config(task_types=["countdown"], task_kwargs={}, max_prompt_tokens=413)
        PopulationSelfPlayTrainer(base(), args=args, processing_class=tiny_tokenizer(), peft_config=adapters)


def test_prompts_may_fill_what_completions_leave_of_the_engine(config):
    trainer = PopulationSelfPlayTrainer(
        tiny_model(), args=config(answer_share=0.75), processing_class=tiny_tokenizer(), peft_config=lora()
    )
    lengths = trainer.source.self_play.lengths
    assert (lengths.prompt, lengths.answer) == (4096, 6)
    assert lengths.count("abc") == 3 and lengths.count([{"role": "user", "content": "abc"}]) > 3
    assert prompt_limit(config(), 1000) == 1000 - 8
    assert prompt_limit(config(max_prompt_tokens=992), 1000) == 992
    with pytest.raises(ValueError, match="max_prompt_tokens=993.*the 1000 tokens of the sampler"):
        prompt_limit(config(max_prompt_tokens=993), 1000)
    with pytest.raises(ValueError, match="into the 8 tokens of the sampler: lower max_completion_length.$"):
        prompt_limit(config(), 8)
    trainer.close()


@pytest.mark.parametrize("setting", [{"ddp_find_unused_parameters": False}, {"ddp_static_graph": True}])
def test_a_process_need_not_have_rows_of_all_members(config, setting):
    setting |= {"per_device_train_batch_size": 3}
    config(**setting)
    with for_processes(2):
        config(num_teachers=1, num_students=1, shared_member=True, pairing="fixed", evolution_interval=0, **setting)
        with pytest.raises(ValueError, match="with several processes and members: a process need not have rows"):
            config(**setting)


def test_more_processes_than_the_launcher_has_told_are_refused(config, monkeypatch):
    """As under mpirun, which accelerate knows by other variables: a round would be cut as if one process played it."""
    args = config()
    monkeypatch.setattr(PopulationSelfPlayConfig, "world_size", property(lambda self: 2))
    check_processes(args, 2)
    with pytest.raises(ValueError, match="There are 2 processes, and the environment variable WORLD_SIZE did not say"):
        config()
