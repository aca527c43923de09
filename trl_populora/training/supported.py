"""Settings of GRPO that a population refuses, each with the reason. The error lists all wrong settings at once."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..settings import to_mapping
from .nested import NESTED
from .probe_settings import ProbeSettings


if TYPE_CHECKING:
    from .config import PopulationSelfPlayConfig

TOKEN_LOSSES = ("dapo", "cispo", "vespo")
ROW_LOSSES = ("grpo", "dr_grpo", "sapo", "luspo")
ALLOWED = {
    "loss_type": (TOKEN_LOSSES + ROW_LOSSES, "couples members"),
    "scale_rewards": (("group", "none"), "mixes members"),
    "multi_objective_aggregation": (("sum_then_normalize",), "mixes members"),
    "entropy_coef": ((0.0,), "couples members"),
    "use_adaptive_entropy": ((False,), "couples members"),
    "top_entropy_quantile": ((1.0,), "couples members"),
    "router_aux_loss_coef": ((0.0, None), "couples members"),
    "sync_ref_model": ((False,), "is not possible: the reference is the frozen base"),
    "use_transformers_continuous_batching": ((False,), "cannot route rows"),
    "repetition_penalty": ((1.0,), "would be ignored, or sample off-policy"),
    "generation_kwargs": (({}, None), "would be ignored, or sample off-policy"),
    "cache_implementation": ((None,), "would be ignored"),
    "fp16": ((False,), "overflows (use bf16=true)"),
    "bf16_full_eval": ((False,), "would round the members' own weights in trainer.evaluate()"),
    "fp16_full_eval": ((False,), "would round the members' own weights in trainer.evaluate()"),
    "torch_compile": ((False,), "would recompile every batch: hooks route the rows"),
    "auto_find_batch_size": ((False,), "is not possible: a round has a fixed number of rows"),
    "eval_on_start": (
        (False,),
        "would evaluate again at each resume: exams are taken before the first round anyway, and "
        "for a dataset you can call `trainer.evaluate()`",
    ),
    "load_best_model_at_end": ((False,), "is not possible: a population has no single best member"),
    "save_on_each_node": ((False,), "would write the same files from several machines: all see one output_dir"),
    "save_only_model": ((False,), "writes checkpoints that cannot be resumed exactly"),
    "dataloader_persistent_workers": ((False,), "changes the last bits of a resumed run; rows need no such workers"),
    "ignore_data_skip": ((False,), "would give other prompts to a resumed run"),
    "pad_to_multiple_of": ((None,), "is undone: micro-batches are cut to their longest row"),
    "enable_jit_checkpoint": ((False,), "saves in the middle of a round"),
    "label_smoothing_factor": ((0.0,), "would be ignored: GRPO's loss has no labels"),
    "train_sampling_strategy": (("random",), "would be ignored: GRPO repeats prompts in its own order"),
}
"""Setting of GRPO -> the values that a population allows, and the problem with others."""

SELF_PLAY = ("advantage", "prompt_template", "prompt_style", "prompts_per_teacher", "task_types", "num_references")
SELF_PLAY += ("seed_tasks", "seed_families", "buffer_capacity", "max_unsolved_tries", "answer_share", "teacher_reward")
SELF_PLAY += ("solvable_attempts", "solvable_rounds", "reward_kwargs", "pairing", "pairing_floor")
SELF_PLAY += ("teacher_learning_rate", "max_prompt_tokens", "hall_of_fame_size")
"""Settings that do nothing without teachers (`num_teachers=0`)."""
DATASET = ("member_prompts",)
"""Settings that do nothing in self-play."""


def check_supported(args: PopulationSelfPlayConfig) -> None:
    """Refuses settings that cannot work per member, or that cannot be resumed exactly.

    Raises:
        ValueError: With the name of every such setting.
    """
    _refuse(
        chain(_values(args), _objective(args), _engine(args), _hardware(args), _data(args), _mode(args), _saving(args))
    )


def check_deepspeed(args: PopulationSelfPlayConfig) -> None:
    """Refuses DeepSpeed, before transformers looks for its package and reads its file.

    Raises:
        ValueError: With what to use in its place.
    """
    refused = args.deepspeed is not None or launched_with("DEEPSPEED")
    advice = "launch with distributed_type MULTI_GPU; for a base too large for one GPU set shard_base=true"
    _refuse(iter([(refused, f"DeepSpeed partitions adapters and optimizer ({advice})")]))


def _refuse(rules: Rules) -> None:
    if problems := [text for refused, text in rules if refused]:
        raise ValueError(
            "Not supported with a population: " + "; ".join(problems) + ". Change or remove these settings."
        )


FIXED = (
    *("learning_rate", "teacher_learning_rate", "student_learning_rate", "max_grad_norm"),
    *("num_generations", "num_iterations", "max_completion_length", "temperature", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "beta", "loss_type", "scale_rewards", "epsilon", "epsilon_high"),
)
"""Settings that members or GRPOTrainer take over when the trainer is made."""


def check_fixed(args: PopulationSelfPlayConfig, made_with: Mapping[str, Any]) -> None:
    """Refuses settings that were changed in a trainer, where they would do nothing.

    Raises:
        ValueError: With the setting and both values.
    """
    for name, before in made_with.items():
        if getattr(args, name) != before:
            raise ValueError(
                f"{name} was {before} when the trainer was made, which has it since then; now it is "
                f"{getattr(args, name)}. Build a new trainer with it, or set it back."
            )


def has_own_loss(trainer: Any, parent: type) -> bool:
    """Whether a subclass of `parent`, or what is mixed in, overrides its loss."""
    return any(getattr(type(trainer), name) is not getattr(parent, name) for name in ("compute_loss", "_compute_loss"))


def without_effect(args: PopulationSelfPlayConfig, model: Any = None, peft_config: Any = None) -> list[str]:
    """Settings that do nothing because of another one, each with the fix. They are told once, and not refused."""
    schedule, told = _text(args.lr_scheduler_type), []
    if args.model_init_kwargs and not isinstance(model, str | None):
        told.append(f"model_init_kwargs={args.model_init_kwargs}: the model is made already. Pass its name instead")
    if peft_config is not None:
        defaults = {field.name: field.default for field in fields(args) if field.name in ("lora_r", "lora_alpha")}
        changed = {name: getattr(args, name) for name, value in defaults.items() if getattr(args, name) != value}
        told += [f"{name}={value}: adapters are made by peft_config" for name, value in changed.items()]
    if schedule == "constant" and args.warmup_steps:
        told.append(f"warmup_steps={args.warmup_steps:g}: set lr_scheduler_type to 'constant_with_warmup'")
    if schedule in ("constant", "constant_with_warmup") and args.lr_scheduler_kwargs:
        told.append(f"lr_scheduler_kwargs={args.lr_scheduler_kwargs}: lr_scheduler_type={schedule!r} takes none")
    if args.num_teachers == 0 and args.reserved_exams:
        told.append(
            f"reserved_exams={args.reserved_exams}: rows of a dataset are not compared with exams. Leave their "
            "questions out of the dataset"
        )
    evolution, defaults = args.evolution, _defaults(args)
    only_data = replace(args.probes, data=None) == ProbeSettings()  # final exams read them, too
    needed = {
        "probe_kwargs": (
            args.is_probed or only_data,
            "only trainer.evaluate() asks these exams. Set eval_strategy to 'steps'",
        ),
        "evolution_kwargs": (args.evolution_interval or args.recombination_interval, "evolution_interval is 0"),
        "recombination_roles": (args.recombination_interval, "recombination_interval is 0"),
        "hall_of_fame_size": (args.hall_of_fame_probability, "hall_of_fame_probability is 0"),
        "solvable_attempts": (args.rewards.asks_others, f"teacher_reward is {args.teacher_reward!r}"),
        **dict.fromkeys(
            ("vllm_max_loras", "vllm_adapter_dir", "vllm_engine_kwargs"), (args.use_vllm, "use_vllm is false")
        ),
    }
    told += [
        f"{name}: {why}" for name, (used, why) in needed.items() if not used and getattr(args, name) != defaults[name]
    ]
    if evolution is not None and (idle := evolution.operator_parameters.keys() - set(evolution.operators)):
        told.append(
            f"evolution_kwargs: operator_parameters of {', '.join(sorted(idle))}, not among operators="
            f"{list(evolution.operators)}"
        )
    if evolution is not None and 0 < args.rounds <= evolution.min_age:
        told.append(
            f"evolution_kwargs: min_age={evolution.min_age} in {args.rounds} rounds replaces nobody: lower it, or set "
            "evolution_interval to 0"
        )
    if evolution is not None and 0 < args.rounds <= args.evolution_interval:
        told.append(
            f"evolution_interval={args.evolution_interval} in {args.rounds} rounds replaces nobody: lower it, or set "
            "it to 0"
        )
    return told


def uncorrectable(args: PopulationSelfPlayConfig) -> str | None:
    """Why a loss cannot be corrected for the log-probabilities that a sampler reports; `None` if it can."""
    mode = args.vllm_importance_sampling_mode
    if args.loss_type != "vespo" or not args.vllm_importance_sampling_correction or mode.startswith("token_"):
        return None
    return f"loss_type='vespo' with vllm_importance_sampling_mode={mode!r} (use 'token_truncate' or 'token_mask')"


def launched_with(engine: str) -> bool:
    """Whether `accelerate launch` uses this engine, according to the environment variables that it sets."""
    return os.environ.get(f"ACCELERATE_USE_{engine}", "false").lower() in ("1", "true", "yes")


def _text(value: Any) -> Any:
    """The value as a user writes it: of an enumeration, the text."""
    return getattr(value, "value", value)


Rules = Iterator[tuple[object, str]]


def _values(args: PopulationSelfPlayConfig) -> Rules:
    for name, (allowed, why) in ALLOWED.items():
        value = getattr(args, name)
        yield value not in allowed, f"{name}={_text(value)!r} {why}"


def _objective(args: PopulationSelfPlayConfig) -> Rules:
    yield not args.max_grad_norm > 0, f"max_grad_norm={args.max_grad_norm} (use 1e9 for no clipping)"
    schedule = _text(args.lr_scheduler_type)
    yield (
        schedule in ("reduce_lr_on_plateau", "greedy"),
        f"lr_scheduler_type={schedule!r}: members have their own schedules, by step",
    )
    ends: Any = args.lr_scheduler_kwargs or {}  # a mapping by now
    absolute = ends.get("min_lr") or (schedule == "polynomial" and ends.get("lr_end", 1e-7))
    mutates = args.evolution is not None and args.evolution.mutate_learning_rate
    yield (
        absolute and (mutates or set(args.member_learning_rates.values()) != {args.learning_rate}),
        f"lr_scheduler_type={schedule!r} with lr_scheduler_kwargs={args.lr_scheduler_kwargs}: its "
        f"end is a share of learning_rate={args.learning_rate:g}, which not all members have (use "
        "'cosine_with_min_lr' with min_lr_rate, a share of each member's rate, or lr_end: 0)",
    )
    yield (
        args.mask_truncated_completions and args.prompt_template == "base",
        "mask_truncated_completions with prompt_template='base': a completion that ends with a stop string has no "
        "end-of-sequence token",
    )


def _engine(args: PopulationSelfPlayConfig) -> Rules:
    yield (
        args.use_vllm and args.vllm_structured_outputs_regex,
        "vllm_structured_outputs_regex: members write programs and answers in several formats",
    )
    problem = uncorrectable(args) or ""
    yield args.use_vllm and problem, problem
    yield (
        args.shard_base and args.use_vllm and args.vllm_mode == "server",
        "shard_base=true with vllm_mode='server': the engine's liveness check runs the model on one process only",
    )
    yield not 0 < args.temperature < math.inf, f"temperature={args.temperature} (sampling needs a positive one)"
    yield not 0 < args.top_p <= 1, f"top_p={args.top_p} (it must be above 0 and at most 1, which is off)"
    yield args.top_k < 0, f"top_k={args.top_k} (it must not be negative; 0 is off)"
    yield args.min_p is not None and not 0 <= args.min_p <= 1, f"min_p={args.min_p} (it must be from 0 to 1)"


def _hardware(args: PopulationSelfPlayConfig) -> Rules:
    # The launcher's options reach accelerate by the environment, and not through the settings.
    launched = not args.fp16 and args.mixed_precision == "fp16"
    yield launched, "the launcher's mixed_precision: fp16, which overflows (launch without it; use bf16=true)"
    compiler = os.environ.get("ACCELERATE_DYNAMO_BACKEND", "no")
    yield (
        compiler.lower() != "no",
        f"the launcher's dynamo_backend: {compiler}, which would recompile every batch: hooks route the rows",
    )
    yield (
        bool(args.fsdp) or launched_with("FSDP"),
        "FSDP by Trainer or accelerate shards the adapters, too (launch with distributed_type MULTI_GPU and set "
        "shard_base=true, which shards only the base)",
    )
    yield (args.gradient_checkpointing_kwargs or {}).get("use_reentrant"), "reentrant gradient checkpointing"
    yield (
        "torch_dtype" in (args.model_init_kwargs or {}),
        "torch_dtype in model_init_kwargs, in place of which TRL would take float32 (the setting is dtype)",
    )
    several = args.world_size > 1 and args.num_students + args.num_teachers * (not args.shared_member) > 1
    why = "with several processes and members: a process need not have rows of all members"
    yield several and args.ddp_find_unused_parameters is False, f"ddp_find_unused_parameters=False {why}"
    yield several and args.ddp_static_graph, f"ddp_static_graph=True {why}"


def _data(args: PopulationSelfPlayConfig) -> Rules:
    T = args.num_teachers
    yield (
        args.chat_template_kwargs and args.prompt_template != "chat",
        f"chat_template_kwargs={args.chat_template_kwargs} with prompt_template={args.prompt_template!r}, which is no "
        "chat template",
    )
    yield (
        getattr(args.accelerator_config, "dispatch_batches", None),
        "accelerator_config with dispatch_batches=true: rows are text, and accelerate sends only tensors",
    )
    yield (
        getattr(args.accelerator_config, "split_batches", None),
        "accelerator_config with split_batches=true: each process would learn from a part of its rows",
    )
    yield (
        (getattr(args.accelerator_config, "gradient_accumulation_kwargs", None) or {}).get("num_steps"),
        "accelerator_config with num_steps: a round is one optimizer step (set gradient_accumulation_steps)",
    )
    yield (
        T and args.eval_strategy == "epoch",
        "eval_strategy='epoch' without a dataset (use 'steps')",
    )
    yield (
        not T and args.remove_unused_columns,
        "remove_unused_columns=true: the column with the member's name would be removed",
    )


def _defaults(args: PopulationSelfPlayConfig) -> dict[str, Any]:
    """Setting -> its default, as construction leaves it."""
    own = {one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in fields(args)}
    return own | {name: to_mapping(nested.record(), without=nested.without) for name, nested in NESTED.items()}


def _mode(args: PopulationSelfPlayConfig) -> Rules:
    """Settings of the other mode, self-play or dataset, that differ from their defaults."""
    defaults = _defaults(args)
    where = "in self-play" if args.num_teachers else "without self-play (num_teachers=0)"
    for name in DATASET if args.num_teachers else SELF_PLAY:
        yield getattr(args, name) != defaults[name], f"{name}={getattr(args, name)!r} {where}"


def _saving(args: PopulationSelfPlayConfig) -> Rules:
    yield (
        args.save_strategy == "best" or args.metric_for_best_model is not None,
        "save_strategy='best' and metric_for_best_model: a population has no single best member (use "
        "save_strategy='steps')",
    )
    yield (
        args.save_strategy == "epoch" or (args.save_strategy == "steps" and args.logging_strategy != "steps"),
        f"save_strategy={_text(args.save_strategy)!r} with logging_strategy={_text(args.logging_strategy)!r} (use "
        "'steps' for both: what is logged after a resume would be averaged over other steps)",
    )
    yield from _intervals(args)


def _intervals(args: PopulationSelfPlayConfig) -> Rules:
    """Checks that checkpoints and probes happen between rounds, and checkpoints when no metric waits to be logged."""
    names = ("save_steps", "logging_steps", "eval_steps")
    fractions = [name for name in names if (getattr(args, name) or 1) < 1]
    if fractions and args.max_steps < 1:
        raise ValueError(
            f"{fractions[0]}={getattr(args, fractions[0])} is a share of max_steps={args.max_steps}. Give a number."
        )
    save_every, log_every, probe_every = (
        int(every) if every >= 1 else math.ceil(every * args.max_steps)
        for every in (args.save_steps, args.logging_steps, args.eval_steps or args.logging_steps)
    )
    probed = args.num_teachers or args.probes.exams
    yield (
        probed and args.eval_strategy == "steps" and probe_every % args.num_iterations,
        f"eval_steps={args.eval_steps} is not a multiple of num_iterations={args.num_iterations} (set eval_steps to "
        f"{math.ceil(probe_every / args.num_iterations) * args.num_iterations})",
    )
    unit = math.lcm(args.num_iterations, log_every if args.logging_strategy == "steps" else 1)
    fitting = f"(set save_steps to {math.ceil(save_every / unit) * unit})"
    yield (
        args.save_strategy == "steps" and save_every % args.num_iterations,
        f"save_steps={args.save_steps} is not a multiple of num_iterations={args.num_iterations} {fitting}",
    )
    yield (
        args.save_strategy == "steps" and args.logging_strategy == "steps" and save_every % log_every,
        f"save_steps={args.save_steps} is not a multiple of logging_steps={args.logging_steps} {fitting}: what is "
        "logged after a resume would be averaged over other steps",
    )
