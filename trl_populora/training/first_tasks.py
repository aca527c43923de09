"""What self-play begins with: task types, seed tasks, and whether the prompts fit."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from transformers import PretrainedConfig
from transformers.utils import logging

from ..evaluation import reserved_keys
from ..self_play import TokenLimits
from ..self_play.sampling import Message
from ..settings import as_mapping
from ..tasks import TaskBuffer, TaskType, families_of, make_task_types, recorded
from ..testing.task_type import check_form
from .checks import prompt_limit
from .config import PopulationSelfPlayConfig
from .probe_settings import asked_keys


logger = logging.get_logger(__name__)

DRAWS = 20  # of a seed task for each one that is reserved


def types_in_play(args: PopulationSelfPlayConfig, given: Sequence[str | TaskType] | None) -> dict[str, TaskType]:
    """Task types by id. Types that were passed also replace `args.task_types`, which the run's files record."""
    kwargs, before = as_mapping(args.task_kwargs), vars(args).get("_before_recorded")
    if given is not None and before and before["recorded"] == (args.task_types, args.task_kwargs):
        kwargs = before["kwargs"]  # as the user gave them, not as an earlier trainer of these `args` recorded them
    types = make_task_types(
        args.task_types if given is None else given,
        style=args.prompt_style,
        num_references=args.num_references,
        kwargs=kwargs,
    )
    for one in types.values():
        if type(one).__module__.partition(".")[0] != "trl_populora":
            check_form(one)
    if given is not None:
        args.task_types, args.task_kwargs = recorded(list(types.values()))
        vars(args)["_before_recorded"] = {"recorded": (args.task_types, args.task_kwargs), "kwargs": kwargs}
    if here := [type(one).__name__ for one in types.values() if type(one).__module__ == "__main__"]:
        logger.warning(
            f"The task types {', '.join(here)} are defined in the script itself, so `populora play` and "
            "`evaluate` cannot make them again. Move them into a module of their own, and import them."
        )
    return types


def first_tasks(args: PopulationSelfPlayConfig, types: Mapping[str, TaskType], lengths: TokenLimits) -> TaskBuffer:
    """The buffer of a run before its first round: seed tasks, without those of exams.

    Raises:
        ValueError: If an exam cannot be made, or a type has no task left.
    """
    buffer = TaskBuffer(
        types,
        args.buffer_capacity,
        max_unsolved_tries=args.max_unsolved_tries,
        reserved=reserved_keys(types) | asked_keys(args, types),
    )
    families = families_of(types, args.seed_families)
    for name, task_type in types.items():
        _fill(buffer, args, task_type, families[name], lengths)
    return buffer


def _fill(
    buffer: TaskBuffer,
    args: PopulationSelfPlayConfig,
    task_type: TaskType,
    families: Sequence[str] | None,
    lengths: TokenLimits,
) -> None:
    """Seed tasks of a type. Reserved tasks are replaced by others, as far as the families have more."""
    first = [task_type.simplest()]
    if args.seed_tasks:
        first = task_type.seeds(args.seed_tasks, seed=args.seed, families=families, fewer=True)
        if len(first) < args.seed_tasks:
            raise ValueError(
                f"seed_tasks={args.seed_tasks}: {task_type.id} has only {len(first)} different ones with "
                f"seed_families={args.seed_families}. Set seed_tasks to at most that, or name more families."
            )
    playable = lengths.playable(task_type, first)
    missing = len(playable) - sum(map(buffer.add, playable))
    rng = random.Random(f"{args.seed}/{task_type.id}/instead")
    for _ in range(DRAWS * missing):
        if not missing:
            break
        task = task_type.generate(rng, families=families)
        missing -= lengths.fits(task_type, task) and buffer.add(task)
    if not buffer.tasks(task_type.id):
        raise ValueError(
            f"seed_families={args.seed_families}: all {task_type.id} tasks of these families are reserved for exams. "
            "Name more families, or leave the setting out for the default ones."
        )


def check_room(
    args: PopulationSelfPlayConfig,
    types: Mapping[str, TaskType],
    buffer: TaskBuffer,
    lengths: TokenLimits,
    config: PretrainedConfig,
) -> None:
    """Raises `ValueError` if a teacher's prompt is longer than the base supports, and warns if a full completion does
    not fit beside it."""
    places = getattr(config, "max_position_embeddings", None)
    if places is None:
        return
    for name, task_type in types.items():
        references = buffer.references(name, max(args.num_references, task_type.min_references), random.Random(0))
        prompt, _ = lengths.fit(task_type, references, buffer, random.Random(0))
        tokens = lengths.count(prompt)
        if tokens + args.max_completion_length > places:
            shorter = "set prompt_style='compact', lower" if args.prompt_style == "full" else "lower"
            told = (
                f"num_references={args.num_references}: a teacher's prompt for {name} has {tokens} tokens, and with "
                f"max_completion_length={args.max_completion_length} that is more than the {places} of the base: "
                f"{shorter} one of the two, or set max_prompt_tokens, with which references that do not fit are left "
                "out."
            )
            if tokens >= places:
                raise ValueError(told)
            logger.warning(told)


def token_limits(
    args: PopulationSelfPlayConfig,
    types: Mapping[str, TaskType],
    count: Callable[[str | list[Message]], int],
    read: Callable[[str], str],
    longest: int | None,
) -> TokenLimits:
    """Limits of prompts and answers, in tokens.

    Args:
        args ([`PopulationSelfPlayConfig`]): Settings. types (`Mapping[str, TaskType]`): Task types in play.
        count (`Callable`): Tokens of a text, or of a conversation as it is rendered.
        read (`Callable[[str], str]`): A text, encoded and decoded. Where it changes even the wording of a type, texts
            are not compared, with a warning.
        longest (`int` or `None`): Maximum tokens of prompt and completion together in the engine; `None` for no limit.
    """
    answer = int(args.answer_share * args.max_completion_length)
    limits = TokenLimits(count, prompt=prompt_limit(args, longest), answer=answer, read=read)
    for name, task_type in types.items():
        if refusal := limits.changed(task_type, task_type.simplest()):
            logger.warning(
                f"The tokenizer changes the wording of {name} tasks: {refusal.detail}. So it is not checked whether "
                "members read tasks as they were written."
            )
            return replace(limits, read=str)
    return limits
