"""Checks of a population's settings, before anything is built. Errors name the value and the fix."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..self_play.pairing import PAIRINGS, check_prompts
from ..self_play.rewards import reward_of_a_task
from ..settings import suggest
from ..tasks import TaskType


if TYPE_CHECKING:
    from .config import PopulationSelfPlayConfig

MAX_PROMPT_TOKENS = 4096  # of a prompt, where the model would take more and no setting says otherwise
CHOICES = {
    "prompt_style": ("full", "compact"),
    "prompt_template": ("chat", "base"),
    "advantage": ("group", "role_task"),
    "pairing": (*PAIRINGS, "fixed"),
    "member_prompts": ("shared", "split"),
    "recombination_roles": ("both", "teachers", "students"),
}
LOG_LEVELS = ("detail", "debug", "info", "warning", "error", "critical", "passive")
INHERITED_CHOICES = dict.fromkeys(("log_level", "log_level_replica"), LOG_LEVELS) | {
    "importance_sampling_level": ("token", "sequence"),
    "dataloader_multiprocessing_context": (None, "fork", "spawn", "forkserver"),
    "vllm_mode": ("colocate", "server"),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    "include_num_input_tokens_seen": (True, False, "no", "all", "non_padding"),
}
"""Those of GRPOConfig that it does not check at construction."""
SIZES = (
    "max_completion_length",
    "lora_r",
    "lora_alpha",
    "num_iterations",
    "per_device_train_batch_size",
    "buffer_capacity",
)
SIZES += ("generation_rows", "prompts_per_teacher", "max_prompt_tokens", "vllm_max_loras")
COUNTS = ("num_references", "seed_tasks", "evolution_interval", "recombination_interval", "max_unsolved_tries")
COUNTS += ("weight_metrics_interval",)
NOT_NEGATIVE = (*COUNTS, "beta", "epsilon", "epsilon_high", "delta", "off_policy_mask_threshold")
NOT_NEGATIVE += ("vespo_k_pos", "vespo_k_neg", "vespo_lambda_pos", "vespo_lambda_neg")
NOT_NEGATIVE += ("weight_decay", "warmup_steps", "neftune_noise_alpha", "dataloader_num_workers")
POSITIVE = ("sapo_temperature_pos", "sapo_temperature_neg")
LEAST = dict.fromkeys(SIZES, 1) | dict.fromkeys(NOT_NEGATIVE, 0) | {"hall_of_fame_size": 2}
INTERVALS = ("logging_steps", "save_steps", "eval_steps")
UNLIMITED = ("max_grad_norm", "delta", "epsilon_high", "vllm_importance_sampling_clip_max")
UNLIMITED += ("vllm_importance_sampling_cap", "vllm_server_timeout")
"""Settings that may be infinite: TRL only compares with them."""


def target_modules(modules: list[str] | str) -> list[str] | str:
    """`"all-linear"`, or a list of names, from either form of `lora_target_modules`.

    Raises:
        ValueError: If the list is empty, or an entry is not a name. PEFT reads a single text as a pattern and a list
            as names, and a command line cannot express this difference.
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


def check_names_given(args: PopulationSelfPlayConfig) -> None:
    """Refuses what is no name where one is expected: an empty text, as of a shell variable that is not set, another
    type of `output_dir`, and task types that are not named."""
    for name in ("output_dir", "resume_from_checkpoint"):
        if getattr(args, name) == "":
            raise ValueError(f"{name}='' is empty: name a folder, or leave it out.")
    if not isinstance(args.output_dir, str | os.PathLike | None):
        raise ValueError(f"output_dir={args.output_dir!r} must be a text: the name of a folder.")
    given = args.task_types if isinstance(args.task_types, (list, tuple)) else [args.task_types]
    for one in given:
        if isinstance(one, TaskType) or (isinstance(one, type) and issubclass(one, TaskType)):
            raise ValueError(
                f"task_types={args.task_types!r}: settings have names of task types. Pass objects to the trainer: "
                "PopulationSelfPlayTrainer(..., task_types=[...])."
            )


def check_choices(args: PopulationSelfPlayConfig) -> None:
    """Refuses values that are not among the choices of their setting."""
    for name, allowed in (CHOICES | INHERITED_CHOICES).items():
        check_choice(name, getattr(args, name), allowed)
    reward_of_a_task(args.teacher_reward)


def check_choice(name: str, value: object, allowed: Sequence[object]) -> None:
    """Refuses a value that is not allowed, and names the nearest one that is."""
    if value not in allowed:
        texts = [one for one in allowed if isinstance(one, str)]
        hint = suggest(value, texts, f"Choose from {list(allowed)}.")
        raise ValueError(f"{name}={value!r} is unknown. {hint}")


def check_population(args: PopulationSelfPlayConfig) -> None:
    """Refuses numbers with which no population, round or run is possible."""
    check_numbers(args)
    if args.evolution is not None or args.recombination_interval:
        args.check_islands()
    _ = args.round_settings  # which has checks of its own


def check_numbers(args: PopulationSelfPlayConfig) -> None:
    """The checks that read plain settings only. `recipe_checks` makes them before heavy imports."""
    _check_finite(args)
    _check_members(args)
    _check_ranges(args)
    _check_rows(args)
    _check_hall_of_fame(args)
    _check_lengths(args)
    _check_servers(args)


def _check_finite(args: PopulationSelfPlayConfig) -> None:
    """Refuses every number that is not finite: nan passes comparisons, and spoils weights rounds later."""
    for name, value in vars(args).items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, float) and not math.isfinite(one) and (one != math.inf or name not in UNLIMITED):
                raise ValueError(f"{name}={value} must be finite. Give a number, or leave it out for the default.")


def _check_members(args: PopulationSelfPlayConfig) -> None:
    T, S = args.num_teachers, args.num_students
    if T < 0 or S < 1:
        raise ValueError(
            f"num_teachers={T} and num_students={S}: self-play needs at least one of each (1 and 1 with "
            f"shared_member=true for a single agent). Training on a dataset needs num_teachers=0 and at least one "
            f"student."
        )
    if args.shared_member and (T, S) != (1, 1):
        raise ValueError(
            f"shared_member=true is the single-agent baseline; it needs num_teachers=1 and num_students=1, got {T} "
            f"and {S}."
        )
    if args.shared_member and args.evolution_interval:
        raise ValueError(
            f"evolution_interval={args.evolution_interval} with shared_member=true: one agent cannot evolve. Set "
            "evolution_interval to 0."
        )
    every = args.recombination_interval
    sizes = {"teachers": T, "students": S, "both": max(T, S)}
    if every and sizes[args.recombination_roles] < 2:
        raise ValueError(
            f"recombination_interval={every} with recombination_roles={args.recombination_roles!r}, num_teachers={T} "
            f"and num_students={S}: a mean needs two members of a role. Set recombination_interval to 0, or add "
            "members."
        )
    if every and args.evolution_interval and every % args.evolution_interval == 0:
        raise ValueError(
            f"recombination_interval={every} is a multiple of evolution_interval={args.evolution_interval}: there is "
            "no recombination in a round with a replacement step, so there would never be one. Choose another "
            "interval, or set evolution_interval to 0."
        )


def _check_rows(args: PopulationSelfPlayConfig) -> None:
    T, S, P, G = args.num_teachers, args.num_students, args.prompts_per_teacher, args.num_generations
    if G < 2:
        raise ValueError(f"num_generations={G} must be at least 2: a GRPO group needs a baseline.")
    if T:
        check_prompts(T, S, P)
    if args.balance_rows and not T:
        raise ValueError("balance_rows=true needs self-play: on a dataset all members have equally many rows already.")
    if args.balance_rows and T * G < S:
        raise ValueError(
            f"balance_rows=true: {S} students share {T * P * G} tasks a round (num_teachers={T} x prompts_per_teacher="
            f"{P} x num_generations={G}), too few: each must learn from {P} of its own, as many groups of rows as a "
            f"teacher writes. Set num_generations to at least {-(-S // T)}."
        )


def _check_ranges(args: PopulationSelfPlayConfig) -> None:
    for name in ("num_generations", "max_completion_length"):  # which may be unset in GRPO
        if getattr(args, name) is None:
            raise ValueError(f"{name} is unset, but a population needs a number. Leave it out for the default.")
    for name, least in LEAST.items():
        value = getattr(args, name)
        if value is not None and value < least:
            raise ValueError(f"{name}={value} must {f'be at least {least}' if least else 'not be negative'}.")
    for name in POSITIVE:
        if not getattr(args, name) > 0:
            raise ValueError(f"{name}={getattr(args, name)} must be above 0: the loss divides by it.")
    for name in INTERVALS:
        every = getattr(args, name)
        if every is not None and not 0 < every < 1 and (every < 1 or every != int(every)):
            raise ValueError(
                f"{name}={every} must be a whole number of at least 1, or a share of max_steps between 0 and 1."
            )
    for name in ("seed", "data_seed"):
        value = getattr(args, name)
        if value is not None and not 0 <= value < 2**32:
            raise ValueError(f"{name}={value} must be from 0 to {2**32 - 1}.")
    if args.num_teachers and args.seed_tasks > args.buffer_capacity:
        raise ValueError(
            f"seed_tasks={args.seed_tasks} is more than buffer_capacity={args.buffer_capacity}, which is what the "
            f"buffer keeps of a type. Lower seed_tasks, or raise buffer_capacity."
        )
    if args.reward_weights is not None and not any(args.reward_weights):
        raise ValueError(f"reward_weights={args.reward_weights}: nothing would be learned. Give one that is not 0.")
    whole = args.max_steps >= 1 and args.max_steps % args.num_iterations == 0
    if not whole and (args.num_teachers or args.max_steps != -1):
        raise ValueError(
            f"max_steps={args.max_steps} must be a positive multiple of num_iterations={args.num_iterations}"
            + ("." if args.num_teachers else ", or -1 for num_train_epochs.")
        )
    if args.max_steps == -1 and args.num_train_epochs <= 0:
        raise ValueError(
            f"num_train_epochs={args.num_train_epochs} trains nothing. Give a number above 0, or max_steps."
        )
    if args.initial_adapters is not None and not args.initial_adapters:
        raise ValueError(f"initial_adapters={args.initial_adapters!r} names nothing. Leave it out for fresh adapters.")
    for name in ("learning_rate", "teacher_learning_rate", "student_learning_rate"):
        rate = getattr(args, name)
        if rate is not None and not 0.0 <= rate < math.inf:
            raise ValueError(f"{name}={rate} must be a number of at least 0.")
    spread = args.learning_rate_spread
    if not 1.0 <= spread < math.inf:
        raise ValueError(f"learning_rate_spread={spread} must be a number of at least 1; 1 gives all the same rate.")
    if spread > 1.0 and max(args.num_teachers, args.num_students) < 2:
        raise ValueError(
            f"learning_rate_spread={spread} needs a role with at least two members, but num_teachers="
            f"{args.num_teachers} and num_students={args.num_students}. Leave it out."
        )
    if not 0.0 < args.pairing_floor <= 1.0:
        raise ValueError(f"pairing_floor={args.pairing_floor} must be above 0 and at most 1.")


def _check_hall_of_fame(args: PopulationSelfPlayConfig) -> None:
    probability = args.hall_of_fame_probability
    if not 0.0 <= probability < 1.0:
        raise ValueError(
            f"hall_of_fame_probability={probability} must be at least 0 and below 1: games with champions are not "
            "rated, and selection needs some that are. 0 keeps no champions."
        )
    if probability and (args.evolution_interval == 0 or args.num_teachers == 0):
        raise ValueError(
            f"hall_of_fame_probability={probability} needs self-play and evolution: champions are chosen at the "
            f"replacement steps and play in rounds. Set num_teachers and evolution_interval, or the probability to 0."
        )


def _check_lengths(args: PopulationSelfPlayConfig) -> None:
    if not 0.0 < args.answer_share <= 1.0 or int(args.answer_share * args.max_completion_length) < 1:
        raise ValueError(
            f"answer_share={args.answer_share} of max_completion_length={args.max_completion_length} must be above 0 "
            f"and at most 1, and leave at least one token for an answer."
        )
    if args.use_vllm and args.max_prompt_tokens is not None:
        prompt_limit(args, args.vllm_max_model_length)


def _check_servers(args: PopulationSelfPlayConfig) -> None:
    given = args.vllm_server_base_urls
    if given is None:
        return
    urls: list[str] = [given] if isinstance(given, str) else [str(url).rstrip("/") for url in given]
    twice = sorted({url for url in urls if urls.count(url) > 1})
    wrong = [url for url in urls if not re.match(r"https?://[^/\s]", url)]
    problem = f"has {wrong[0]!r}, which is no URL" if wrong else ""
    problem = f"names {twice[0]} twice" if twice else problem
    problem = problem if urls else "is empty"
    if problem:
        raise ValueError(
            f"vllm_server_base_urls={given} {problem}. Give every server once, like ['http://node2:8000', "
            "'http://node3:8000']."
        )
    if args.vllm_server_base_url:
        raise ValueError(
            f"vllm_server_base_url={args.vllm_server_base_url!r} and vllm_server_base_urls={given}: both select the "
            "servers. Leave one of them out."
        )
    if not args.use_vllm or args.vllm_mode != "server":
        raise ValueError(
            f"vllm_server_base_urls={given} needs use_vllm=true and vllm_mode='server'. Set both, or leave it out."
        )


def prompt_limit(args: PopulationSelfPlayConfig, length: int | None) -> int:
    """Maximum tokens of a prompt: by default 4,096, or less if the engine's length leaves less.

    Args:
        args ([`PopulationSelfPlayConfig`]): Settings.
        length (`int` or `None`): Maximum tokens of prompt and completion together in the engine; `None` for no limit.

    Raises:
        ValueError: If prompt and completion together exceed it.
    """
    room = math.inf if length is None else length - args.max_completion_length
    prompt = min(MAX_PROMPT_TOKENS, room) if args.max_prompt_tokens is None else args.max_prompt_tokens
    if not 1 <= prompt <= room:
        ways = [f"set max_prompt_tokens to {room} or less"] * (room > 0) + ["lower max_completion_length"]
        ways += ["raise vllm_max_model_length"] * args.use_vllm
        raise ValueError(
            f"max_prompt_tokens={args.max_prompt_tokens} with max_completion_length={args.max_completion_length} does "
            f"not fit into the {length} tokens of the sampler: {', or '.join(ways)}."
        )
    return int(prompt)
