"""What a population's settings must satisfy, checked before anything is built. Errors name the value and the fix."""

import math
import os
import re

from ..self_play.pairing import PAIRINGS, check_deal
from ..self_play.rewards import TEACHER_REWARDS


TASK_TYPES = ("code_o", "code_i", "code_f")
TOKEN_LOSSES = ("dapo", "cispo", "vespo")
ROW_LOSSES = ("grpo", "dr_grpo", "sapo", "luspo")


def target_modules(modules: list[str] | str) -> list[str] | str:
    """`"all-linear"`, or a list of names, from either form of `lora_target_modules`.

    Raises:
        ValueError: If there is none, or one is no name. PEFT takes a lone text for a pattern and a list for names, and
            a command line cannot tell the two apart.
    """
    names = [modules] if isinstance(modules, str) else list(modules)
    if names == ["all-linear"]:
        return "all-linear"
    if not names or "all-linear" in names or not all(re.fullmatch(r"\w+(\.\w+)*", name) for name in names):
        raise ValueError(
            f"lora_target_modules={modules!r} must be 'all-linear' or names of modules, such as ['q_proj', 'v_proj']. "
            "For a pattern, give the trainer a peft_config."
        )
    return names


def check_population(args):
    T, S, P, G = args.num_teachers, args.num_students, args.prompts_per_teacher, args.num_generations
    if T < 0 or S < 1:
        raise ValueError(
            f"num_teachers={T} and num_students={S}: self-play needs at least one of each (1 and 1 with "
            "shared_member=true for a single agent), training on a dataset num_teachers=0 and at least one student."
        )
    if args.shared_member and (T, S) != (1, 1):
        raise ValueError(
            f"shared_member=true is the single agent; it needs num_teachers=1 and num_students=1, got {T} and {S}."
        )
    if args.shared_member and args.evolution_interval:
        raise ValueError(
            f"evolution_interval={args.evolution_interval} with shared_member=true: one agent cannot evolve. Set "
            "evolution_interval to 0."
        )
    if P < 1:
        raise ValueError(f"prompts_per_teacher={P} must be at least 1.")
    if G < 2:
        raise ValueError(f"num_generations={G} must be at least 2: a GRPO group needs a baseline.")
    if T:
        check_deal(T, S, P)
    if args.balance_rows and not T:
        raise ValueError("balance_rows=true needs self-play: on a dataset all members have equally many rows already.")
    if args.balance_rows and T * G < S:
        raise ValueError(
            f"balance_rows=true: {S} students share {T * P * G} tasks a round (num_teachers={T} x prompts_per_teacher="
            f"{P} x num_generations={G}), too few for each to learn from {P} of its own, as many groups of rows as a "
            f"teacher writes. Set num_generations to at least {-(-S // T)}."
        )
    for name in (
        "lora_r",
        "lora_alpha",
        "num_iterations",
        "per_device_train_batch_size",
        "buffer_capacity",
        "generation_rows",
    ):
        if getattr(args, name) < 1:
            raise ValueError(f"{name}={getattr(args, name)} must be at least 1.")
    for name in (
        "num_references",
        "seed_tasks",
        "evolution_interval",
        "evolution_min_age",
        "max_unsolved_tries",
        "max_float_digits",
        "solvable_attempts",
        "solvable_rounds",
        "weight_metrics_interval",
    ):
        if getattr(args, name) < 0:
            raise ValueError(f"{name}={getattr(args, name)} must not be negative.")
    if args.num_function_inputs < 2:
        raise ValueError(f"num_function_inputs={args.num_function_inputs} must be at least 2: one shown, one hidden.")
    whole = args.max_steps >= 1 and args.max_steps % args.num_iterations == 0
    if not whole and (T or args.max_steps != -1):
        raise ValueError(
            f"max_steps={args.max_steps} must be a positive multiple of num_iterations={args.num_iterations}"
            + ("." if T else ", or -1 for num_train_epochs.")
        )
    if args.evolution is not None:
        args.evolution.check_sizes(T, S)
    _check_hall_of_fame(args)
    _check_lengths(args)
    if args.solvable_rounds and args.teacher_reward != "solvable":
        raise ValueError(
            f"solvable_rounds={args.solvable_rounds} with teacher_reward={args.teacher_reward!r}: only 'solvable' "
            "waits for later rounds. Set teacher_reward to 'solvable', or solvable_rounds to 0."
        )
    for name in ("learning_rate", "teacher_learning_rate", "student_learning_rate"):
        rate = getattr(args, name)
        if rate is not None and not 0.0 <= rate < math.inf:
            raise ValueError(f"{name}={rate} must be a number that is not negative.")
    if args.executor_workers is not None and args.executor_workers < 1:
        raise ValueError(f"executor_workers={args.executor_workers} must be at least 1, or unset for all cores.")
    if not 0.0 < args.pairing_floor <= 1.0:
        raise ValueError(f"pairing_floor={args.pairing_floor} must lie in (0, 1].")
    if args.executor_cpu_seconds <= 0 or args.executor_memory_mb < 64:
        raise ValueError(
            f"executor_cpu_seconds={args.executor_cpu_seconds} must be positive and executor_memory_mb="
            f"{args.executor_memory_mb} at least 64."
        )


def _check_hall_of_fame(args):
    probability = args.hall_of_fame_probability
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"hall_of_fame_probability={probability} must lie in [0, 1]; 0 keeps no champions.")
    if args.hall_of_fame_size < 2:
        raise ValueError(f"hall_of_fame_size={args.hall_of_fame_size} must be at least 2.")
    if probability and (args.evolution_interval == 0 or args.num_teachers == 0):
        raise ValueError(
            f"hall_of_fame_probability={probability} needs self-play and evolution: champions are taken in at the "
            "replacement steps, and play. Set num_teachers and evolution_interval, or the probability to 0."
        )


def _check_lengths(args):
    if not 0.0 < args.answer_share <= 1.0 or int(args.answer_share * args.max_completion_length) < 1:
        raise ValueError(
            f"answer_share={args.answer_share} of max_completion_length={args.max_completion_length} must lie in "
            "(0, 1] and leave at least one token for an answer."
        )
    prompt, engine = args.max_prompt_tokens, args.vllm_max_model_length if args.use_vllm else None
    if prompt is not None and prompt < 1:
        raise ValueError(f"max_prompt_tokens={prompt} must be at least 1, or unset.")
    if prompt is not None and engine is not None and prompt + args.max_completion_length > engine:
        raise ValueError(
            f"max_prompt_tokens={prompt} and max_completion_length={args.max_completion_length} together exceed "
            f"vllm_max_model_length={engine}. Set max_prompt_tokens to {engine - args.max_completion_length} or less."
        )


def check_choices(args):
    if not args.task_types or len(set(args.task_types)) != len(args.task_types):
        raise ValueError(f"task_types={args.task_types} must name each type once; choose from {list(TASK_TYPES)}.")
    choices = {
        "prompt_style": ("full", "compact"),
        "prompt_template": ("chat", "base"),
        "teacher_reward": tuple(TEACHER_REWARDS),
        "advantage": ("group", "role_task"),
        "pairing": (*PAIRINGS, "fixed"),
        "member_prompts": ("shared", "split"),
    }
    for name, allowed in choices.items():
        if getattr(args, name) not in allowed:
            raise ValueError(f"{name}={getattr(args, name)!r} is unknown; choose one of {list(allowed)}.")
    for task_type in args.task_types:
        if task_type not in TASK_TYPES:
            raise ValueError(f"task type {task_type!r} is unknown; choose from {list(TASK_TYPES)}.")
    _ = args.evolution, args.rewards  # built once here: a misspelt operator is refused now


def derive_batch(args):
    """Derive `gradient_accumulation_steps` so that an optimizer step covers a round, or a batch of the dataset."""
    derive = _derive_self_play if args.num_teachers else _derive_dataset
    derive(args, int(os.environ.get("WORLD_SIZE", 1)))


def _derive_self_play(args, world_size):
    rows, per_pass = args.rows_per_round, args.per_device_train_batch_size * world_size
    if rows % per_pass:
        fitting = [b for b in range(1, rows // world_size + 1) if rows % (b * world_size) == 0]
        if not fitting:
            raise ValueError(
                f"{rows} rows a round cannot be split among {world_size} processes. Choose prompts_per_teacher or "
                "num_generations so that the rows are a multiple of the processes."
            )
        best = min(fitting, key=lambda b: abs(b - args.per_device_train_batch_size))
        each = args.rows_per_member
        raise ValueError(
            f"{rows} rows a round (num_teachers={args.num_teachers} x {each['teacher']} and num_students="
            f"{args.num_students} x {each['student']}) do not divide into passes of per_device_train_batch_size="
            f"{args.per_device_train_batch_size} on {world_size} process(es). Set per_device_train_batch_size to "
            f"{best}."
        )
    derived = rows // per_pass
    given = {
        "gradient_accumulation_steps": (args.gradient_accumulation_steps, (1, derived)),
        "steps_per_generation": (args.steps_per_generation, (None, derived)),
        "generation_batch_size": (args.generation_batch_size, (None, rows)),
    }
    for name, (value, allowed) in given.items():
        if value not in allowed:
            raise ValueError(
                f"{name}={value} contradicts the {rows} rows of a round; leave it out (it becomes {allowed[1]})."
            )
    args.gradient_accumulation_steps = derived
    args.steps_per_generation = args.generation_batch_size = None


def _derive_dataset(args, world_size):
    """One generation batch is one optimizer step, and holds as many groups of every member."""
    unit, per_pass = args.num_generations * args.num_students, args.per_device_train_batch_size * world_size
    fitting = unit // math.gcd(unit, per_pass)
    if args.gradient_accumulation_steps == 1:
        args.gradient_accumulation_steps = fitting
    if args.gradient_accumulation_steps % fitting:
        raise ValueError(
            f"gradient_accumulation_steps={args.gradient_accumulation_steps} with per_device_train_batch_size="
            f"{args.per_device_train_batch_size} on {world_size} process(es) makes batches that do not hold equally "
            f"many groups of num_generations={args.num_generations} rows of num_students={args.num_students} members. "
            f"Set gradient_accumulation_steps to a multiple of {fitting}."
        )
    rows = per_pass * args.gradient_accumulation_steps
    given = {
        "steps_per_generation": (args.steps_per_generation, (None, args.gradient_accumulation_steps)),
        "generation_batch_size": (args.generation_batch_size, (None, rows)),
    }
    for name, (value, allowed) in given.items():
        if value not in allowed:
            raise ValueError(
                f"{name}={value}: all rows of a generation batch belong to one optimizer step of a population. Leave "
                f"it out (it becomes {allowed[1]})."
            )
    args.steps_per_generation = args.generation_batch_size = None


def check_supported(args):
    problems, T = [], args.num_teachers

    def refuse(condition, text):
        if condition:
            problems.append(text)

    refuse(args.loss_type not in TOKEN_LOSSES + ROW_LOSSES, f"loss_type={args.loss_type!r} couples members")
    refuse(args.scale_rewards not in ("group", "none"), f"scale_rewards={args.scale_rewards!r} mixes members")
    refuse(args.multi_objective_aggregation != "sum_then_normalize", "multi_objective_aggregation mixes members")
    refuse(args.entropy_coef != 0.0 or args.use_adaptive_entropy, "an entropy bonus couples members")
    refuse(args.top_entropy_quantile < 1.0, f"top_entropy_quantile={args.top_entropy_quantile} couples members")
    refuse(args.router_aux_loss_coef, "router_aux_loss_coef couples members")
    refuse(args.max_grad_norm <= 0, f"max_grad_norm={args.max_grad_norm} (use 1e9 for no clipping)")
    refuse(
        args.use_vllm and args.vllm_structured_outputs_regex,
        "vllm_structured_outputs_regex: members write programs and answers of their own form",
    )
    refuse(
        args.use_vllm
        and args.vllm_importance_sampling_correction
        and args.loss_type == "vespo"
        and args.vllm_importance_sampling_mode not in ("token_truncate", "token_mask"),
        f"loss_type='vespo' with vllm_importance_sampling_mode={args.vllm_importance_sampling_mode!r} (use "
        "'token_truncate' or 'token_mask')",
    )
    refuse(args.vllm_max_loras is not None and args.vllm_max_loras < 1, f"vllm_max_loras={args.vllm_max_loras} (< 1)")
    refuse(
        args.shard_base and args.use_vllm and args.vllm_mode == "server",
        "shard_base=true with vllm_mode='server': the engine's liveness check runs the model on one process only",
    )
    refuse(args.use_transformers_continuous_batching, "continuous batching cannot route rows")
    refuse(args.sync_ref_model, "sync_ref_model=true: the reference is the frozen base")
    refuse(
        args.deepspeed is not None or launched_with("DEEPSPEED"),
        "DeepSpeed partitions adapters and optimizer behind the population's back (launch with distributed_type "
        "MULTI_GPU; for a base too large for one GPU set shard_base=true)",
    )
    refuse(
        bool(args.fsdp) or launched_with("FSDP"),
        "FSDP by Trainer or accelerate shards the adapters too (launch with distributed_type MULTI_GPU and set "
        "shard_base=true, which shards the base alone)",
    )
    refuse(args.fp16, "fp16=true (use bf16=true)")
    refuse((args.gradient_checkpointing_kwargs or {}).get("use_reentrant"), "reentrant gradient checkpointing")
    refuse(args.load_best_model_at_end, "load_best_model_at_end=true: members have no single best")
    refuse(args.repetition_penalty != 1.0, f"repetition_penalty={args.repetition_penalty}")
    refuse(T and args.chat_template_kwargs, f"chat_template_kwargs={args.chat_template_kwargs}")
    refuse(args.torch_compile, "torch_compile=true: hooks would recompile every batch")
    refuse(T and args.eval_strategy != "no", f"eval_strategy={args.eval_strategy!r} (use `populora evaluate`)")
    refuse(not T and args.advantage != "group", f"advantage={args.advantage!r} without self-play (num_teachers=0)")
    refuse(not T and args.prompt_template != "chat", f"prompt_template={args.prompt_template!r} without self-play")
    refuse(
        not T and args.remove_unused_columns, "remove_unused_columns=true: the column that names the member would go"
    )
    refuse(
        args.save_strategy == "best" or args.metric_for_best_model is not None,
        "save_strategy='best' and metric_for_best_model: members have no single best (use save_strategy='steps')",
    )
    refuse(
        args.save_strategy == "epoch" or (args.save_strategy == "steps" and args.logging_strategy != "steps"),
        f"save_strategy={str(args.save_strategy)!r} with logging_strategy={str(args.logging_strategy)!r} (use 'steps' "
        "for both: what is logged after a resume would be averaged over other steps)",
    )
    refuse(args.save_only_model, "save_only_model=true: such a checkpoint cannot be resumed exactly")
    refuse(args.ignore_data_skip, "ignore_data_skip=true: a resumed run would see other prompts")
    refuse(args.enable_jit_checkpoint, "enable_jit_checkpoint=true: it saves in the middle of a round")
    refuse(
        args.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy"),
        f"lr_scheduler_type={str(args.lr_scheduler_type)!r}: members have schedules of their own, by step",
    )
    fractions = [name for name in ("save_steps", "logging_steps") if getattr(args, name) < 1]
    if fractions and args.max_steps < 1:
        raise ValueError(
            f"{fractions[0]}={getattr(args, fractions[0])} is a share of max_steps={args.max_steps}. Give a number."
        )
    save_every, log_every = (
        int(every) if every >= 1 else math.ceil(every * args.max_steps)
        for every in (args.save_steps, args.logging_steps)
    )
    unit = math.lcm(args.num_iterations, log_every if args.logging_strategy == "steps" else 1)
    fitting = f"(set save_steps to {math.ceil(save_every / unit) * unit})"
    refuse(
        args.save_strategy == "steps" and save_every % args.num_iterations,
        f"save_steps={args.save_steps} is not a multiple of num_iterations={args.num_iterations} {fitting}",
    )
    refuse(
        args.save_strategy == "steps" and args.logging_strategy == "steps" and save_every % log_every,
        f"save_steps={args.save_steps} is not a multiple of logging_steps={args.logging_steps} {fitting}: what is "
        "logged after a resume would be averaged over other steps",
    )
    refuse(args.generation_kwargs, f"generation_kwargs={args.generation_kwargs}")
    refuse(args.cache_implementation, f"cache_implementation={args.cache_implementation!r}")
    refuse(not 0 < args.temperature < math.inf, f"temperature={args.temperature} (sampling needs a positive one)")
    refuse(args.auto_find_batch_size, "auto_find_batch_size=true: a round has a fixed number of rows")
    refuse(
        args.mask_truncated_completions and args.prompt_template == "base",
        "mask_truncated_completions with prompt_template='base': a stop string is no end-of-sequence token",
    )
    if problems:
        raise ValueError(
            "Not supported with a population: " + "; ".join(problems) + ". Change or remove these settings."
        )


def launched_with(engine: str) -> bool:
    """Whether `accelerate launch` was told to use this engine; it says so in the environment."""
    return os.environ.get(f"ACCELERATE_USE_{engine}", "false").lower() in ("1", "true", "yes")
