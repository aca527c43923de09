"""What the run of a recipe will need, in lines: the second half of `populora doctor`.

Numbers come from `training.forecast` and `training.stopwatch`.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ..command import populora
from . import doctor
from .doctor import Finding


if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

    from ..recipe import RunArguments
    from ..self_play.sampling import Message
    from ..training import PopulationSelfPlayConfig
    from ..training.forecast import Phase, Shapes

    Text = str | list[Message]

LIBRARIES = 0.7e9
"""Resident bytes of a process that has imported what a run needs, without a model."""
SMALLER = "Lower per_device_train_batch_size, generation_rows, max_completion_length or lora_r."


def needs(options: argparse.Namespace, rest: list[str]) -> Iterator[Finding]:
    """What the run of a recipe will need."""
    from ..training.round_shape import for_processes

    with for_processes(options.processes):
        run, args = read(options, rest)
        there = list(parts(run, args))
    from transformers import AutoConfig, AutoTokenizer

    from ..integrations.base_models import local_folder
    from ..reporting.tables import counted
    from ..tasks import read_back
    from ..training.forecast import Shapes, disk, phases

    adapters = 1 if args.shared_member else args.num_teachers + args.num_students
    rounds = counted(args.rounds, "round") if args.max_steps > 0 else f"{args.num_train_epochs:g} epochs"
    yield (
        f"{options.recipe}: {run.model_name_or_path}, {counted(adapters, 'adapter')} of rank {args.lora_r}, {rounds}",
        None,
    )
    yield from there
    folder = tokenizer = shapes = None
    try:
        folder, how = local_folder(run.model_name_or_path)
        config = AutoConfig.from_pretrained(folder, **how)
        tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", **how)
    except (ValueError, OSError) as error:
        yield (
            f"Base: {' '.join(str(error).split())}",
            "the base is not on this machine: tokens, memory and time are not known",
        )
    else:
        shapes = Shapes.of(config, args.lora_target_modules)
    plan = phases(args, counter(tokenizer, args) if tokenizer is not None else None)
    yield from rows_and_tokens(args, plan)
    if args.num_teachers and tokenizer is not None:
        yield from prompts(args, counter(tokenizer, args), partial(read_back, tokenizer), config)
    if shapes is not None:
        yield from memory_lines(args, shapes, plan, options.processes, gpu=options.gpu)
        yield from disk_lines(args, disk(shapes, args, plan))
    yield from accounts(args)
    if not options.no_sandbox:
        yield from doctor.sandbox()
    if tokenizer is not None and not options.no_measure and options.gpu is None:
        yield from time_lines(run, args, tokenizer, plan, options.processes)


def read(options: argparse.Namespace, rest: list[str]) -> tuple[RunArguments, PopulationSelfPlayConfig]:
    """The settings of the recipe. With `--gpu`, they are read with `use_cpu`, because this machine may have no GPU."""
    from ..recipe import parse

    try:
        return parse(["--config", options.recipe, *rest, *(["--use_cpu", "true"] if options.gpu else [])])
    except ValueError as error:
        if "bf16/gpu" in str(error):  # what transformers says
            raise ValueError(
                f"{options.recipe} is for a GPU, and PyTorch sees none here. `{populora()} doctor {options.recipe} "
                "--gpu 24` estimates what the run needs on a GPU of 24 GB."
            ) from None
        raise


def counter(tokenizer: PreTrainedTokenizerBase, args: PopulationSelfPlayConfig) -> Callable[[Text], int]:
    """Counts tokens as a sampler does: of a text, or of a conversation as it is rendered."""
    from ..tasks import tokenize_prompt

    how = {"template": args.prompt_template, "chat_template_kwargs": args.chat_template_kwargs}

    def count(text: Text) -> int:
        if isinstance(text, str):
            return len(tokenizer(text, add_special_tokens=False)["input_ids"])
        return len(tokenize_prompt(text, tokenizer, **how))

    return count


def parts(run: RunArguments, args: PopulationSelfPlayConfig) -> Iterator[Finding]:
    """What the recipe names and is not there: final exams, reward functions, a sampler, files. Nothing is downloaded,
    and no dataset is read."""
    from ..integrations.user_data import is_missing_file
    from ..train import final_exams, named_parts
    from ..training.construction import resumes
    from ..training.initial_adapters import find_sources, local_names

    def dataset() -> None:
        if run.dataset_name is not None and is_missing_file(run.dataset_name):
            raise ValueError(f"dataset_name={run.dataset_name!r}: there is no such file or folder.")

    def adapters() -> None:
        if args.initial_adapters and not resumes(args):
            find_sources(local_names(args.initial_adapters))

    for check in (partial(final_exams, run, args), partial(named_parts, run, args), dataset, adapters):
        try:
            check()
        except (ValueError, OSError, ImportError) as error:
            yield "  The run would not begin with what the recipe names.", " ".join(str(error).split())


def rows_and_tokens(args: PopulationSelfPlayConfig, plan: Mapping[str, Phase]) -> Iterator[Finding]:
    """Rows by phase, and their tokens: as seed tasks have them, and at the limit."""
    from ..training.forecast import spare_rows

    yield "A round:", None
    who = {"propose": f"{args.num_teachers} teachers", "solve": f"{args.num_students} students", "sample": "all"}
    total = most = 0.0
    for name, phase in plan.items():
        prompts, expected = phase.rows * phase.prompt, phase.rows * phase.completion
        limit = phase.rows * args.max_completion_length
        total, most = total + prompts + expected, most + prompts + limit
        lengths = f"{phase.prompt:,.0f} tokens a prompt, completions {expected:,.0f} (as seed tasks) to {limit:,}"
        if not phase.prompt:
            lengths = f"completions of at most {limit:,} tokens"
        yield f"  {name:<8} {phase.rows:>7,} rows of {who[name]}, {phase.learned:,} learned from; {lengths}", None
    if all(phase.prompt for phase in plan.values()):
        yield f"  tokens   {total:>7,.0f} expected, at most {most:,.0f}", None
        yield from shared_prompts(args, plan)
    elif args.num_teachers:
        yield "  The tokens of prompts are not known without the base's tokenizer.", None
    else:
        yield "  The prompts of the dataset are not read; their tokens must be added.", None
    why = {
        "champions": f"hall_of_fame_probability {args.hall_of_fame_probability:g}",
        "extra attempts": f"teacher_reward {args.teacher_reward}",
    }
    for name, rows in spare_rows(args).items():
        yield f"  at most {rows:,} rows of {name} in addition ({why[name]})", None


def shared_prompts(args: PopulationSelfPlayConfig, plan: Mapping[str, Phase]) -> Iterator[Finding]:
    """How many tokens learning computes, and how many with `share_prompts`, if that is much less."""
    from ..training.forecast import prompt_rows

    prompts = sum(one.learned * one.prompt for one in plan.values())
    completions = sum(one.learned * one.completion for one in plan.values())
    once = prompts / prompt_rows(args) + completions
    if args.share_prompts:
        yield f"  learning {once:>7,.0f} tokens, with prompts once for a group (share_prompts)", None
    elif once < 0.8 * (prompts + completions):
        yield f"  learning {prompts + completions:>7,.0f} tokens; {once:,.0f} with share_prompts: true", None


def prompts(
    args: PopulationSelfPlayConfig,
    count: Callable[[Text], int],
    read: Callable[[str], str],
    config: PretrainedConfig,
) -> Iterator[Finding]:
    """Whether the run can begin with these exams and seed tasks, and whether teachers' prompts fit."""
    from ..training.first_tasks import check_room, first_tasks, token_limits, types_in_play

    try:
        types, longest = types_in_play(args, None), args.vllm_max_model_length if args.use_vllm else None
        lengths = token_limits(args, types, count, read, longest)
        buffer = first_tasks(args, types, lengths)
        lengths.check(types, buffer)
        check_room(args, types, buffer, lengths, config)
    except ValueError as error:
        yield "  The run would not begin with these tasks and prompts.", str(error)


def memory_lines(
    args: PopulationSelfPlayConfig, shapes: Shapes, plan: dict[str, Phase], processes: int, *, gpu: float | None
) -> Iterator[Finding]:
    """Parts and peaks, and what there is: here, or on a GPU of so many GB."""
    import torch

    from ..training.forecast import memory

    on_gpu = gpu is not None or (torch.cuda.is_available() and not args.use_cpu)
    try:
        parts = memory(shapes, args, plan, processes=processes, gpu=on_gpu)
    except ValueError as error:
        yield str(error), None
        return
    yield f"Memory of a process, GB ({shapes.parameters:,} parameters of the base):", None
    peak = max(parts["learning"], parts["sampling"])
    for name, count in parts.items():
        yield f"  {name:<24} {count / 1e9:>8.2f}" + (" in all" if name in ("learning", "sampling") else ""), None
    least, share = parts.get("engine, at least"), args.vllm_gpu_memory_utilization
    if least is not None and on_gpu:
        engine = share * (gpu * 1e9 if gpu is not None else torch.cuda.mem_get_info()[1])
        line = f"  {engine / 1e9:.2f} GB for vLLM beside it (vllm_gpu_memory_utilization={share:g})"
        told = f"vLLM needs {least / 1e9:.1f} GB for the base, the adapters and one row, and gets {engine / 1e9:.1f}. "
        yield line, None if least <= engine else told + "Raise vllm_gpu_memory_utilization, or use a server"
        asleep = args.vllm_enable_sleep_mode  # while the members learn
        peak = max(parts["learning"] + (0 if asleep else engine), parts["sampling"] + engine)
    if gpu is not None:
        fits = peak <= 0.9e9 * gpu
        told = f"{peak / 1e9:.1f} GB do not fit into {gpu:g} with a tenth left for what is not counted. {SMALLER}"
        yield f"  {peak / 1e9:.2f} of {gpu:g} GB on such a GPU", None if fits else told
        return
    if on_gpu:
        free, total = torch.cuda.mem_get_info()
        place = torch.cuda.get_device_name()
    else:
        peak += sum(count for name, count in parts.items() if name.endswith("(host)")) + LIBRARIES
        peak *= processes
        free, total = host_memory()
        place = f"this machine; {processes} process(es) also load libraries of {LIBRARIES / 1e9:.1f} GB each"
    yield (
        f"  needs {peak / 1e9:.2f} GB; {free / 1e9:.1f} GB are free ({total / 1e9:.1f} GB in all) on {place}",
        _short(peak, free, total),
    )


def _short(peak: float, free: float, total: float) -> str | None:
    if peak <= free:
        return None
    if peak <= total:
        return f"{peak / 1e9:.1f} GB are needed and {free / 1e9:.1f} are free: end other programs. {SMALLER}"
    return f"{peak / 1e9:.1f} GB do not fit into {total / 1e9:.1f}. {SMALLER}"


def host_memory() -> tuple[int, int]:
    """Bytes of this machine's memory that are available, and all of them."""
    with open("/proc/meminfo", encoding="ascii") as file:
        found = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file}
    return found["MemAvailable"], found["MemTotal"]


def disk_lines(args: PopulationSelfPlayConfig, needed: Mapping[str, float]) -> Iterator[Finding]:
    """What the run leaves, and what is free where it goes."""
    place = os.path.abspath(args.output_dir)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    free, total = shutil.disk_usage(place).free, sum(needed.values())
    told = ", ".join(f"{name} {count / 1e9:.2f}" for name, count in needed.items())
    known = "at most" if args.max_steps > 0 else "and more of these, because the dataset decides on the rounds"
    line = f"Disk, GB: {told}, {known}; {free / 1e9:.1f} free for {args.output_dir}"
    yield (
        line,
        None if total <= free else f"the run may write {total / 1e9:.1f} GB. Set save_total_limit, or free space",
    )


def accounts(args: PopulationSelfPlayConfig) -> Iterator[Finding]:
    """Trackers, and the login where the run is pushed."""
    yield f"Trackers: {', '.join(args.report_to) or 'none'}", None
    if args.push_to_hub:
        from huggingface_hub import get_token

        token = args.hub_token or get_token()
        yield (
            f"Hub: push_to_hub, {'a token is set (not tested)' if token else 'no token'}",
            (None if token else "push_to_hub needs a login: `hf auth login`, or set HF_TOKEN"),
        )


def time_lines(
    run: RunArguments,
    args: PopulationSelfPlayConfig,
    tokenizer: PreTrainedTokenizerBase,
    plan: Mapping[str, Phase],
    processes: int,
) -> Iterator[Finding]:
    """Minutes of a round here, by a short measurement."""
    from ..integrations.base_models import hub_weights_missing, resolve_base
    from ..training.forecast import spare_rows
    from ..training.stopwatch import round_seconds

    if args.num_teachers == 0 or run.sampler or args.use_vllm or args.shard_base:
        yield "Time: not measured for a dataset, an engine, your own sampler or a divided base.", None
        return
    if hub_weights_missing(run.model_name_or_path):
        yield f"Time: not measured, the weights of {run.model_name_or_path} are not on this machine.", None
        return
    means, most = round_seconds(resolve_base(run.model_name_or_path), args, tokenizer, plan, processes=processes)
    whole, limit = sum(means.values()), sum(most.values())
    told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in means.items())
    yield f"Time of a round here, by a short measurement: {whole:.1f} s ({told}); {limit:.1f} s at the limit", None
    also = ", saving and rows in addition" if spare_rows(args) else " and saving"
    yield f"  {args.rounds} rounds: {args.rounds * whole / 60:,.0f} min, without warm start, probes{also}", None
