"""What the options of `populora evaluate` mean: runs, members, exams, sampling, engine.

All of them are checked before a base is loaded.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..run_files.layout import EVALUATION_FOLDER
from ..run_files.run import AVERAGE


if TYPE_CHECKING:
    from ..evaluation import Exam
    from ..evaluation.evaluating import Decoding
    from ..generation.engines import Engine
    from ..run_files.run import Run
    from ..tasks import TaskType

SERVER_SECONDS = 240.0  # to wait for a server that does not answer
VLLM_ROWS = 1024  # answers that vLLM generates in one call, by default; they are stored after each call
BASE_SETTINGS = {"prompt_template": "chat", "prompt_style": "full", "generation_rows": 64}  # of a model without a run


def check_numbers(options: argparse.Namespace) -> None:
    """Refuses numbers that are out of range before anything is loaded.

    Raises:
        ValueError: With the option and its value.
    """
    if options.samples != "auto" and not (options.samples.isdecimal() and int(options.samples)):
        raise ValueError(f"--samples {options.samples} must be a whole number of at least 1, or auto.")
    for name in ("limit", "max_completion_length", "batch_size"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} {value} must be at least 1.")
    if options.temperature is not None and not 0 <= options.temperature < math.inf:
        raise ValueError(f"--temperature {options.temperature} must be a number of at least 0.")


def open_runs(options: argparse.Namespace) -> list[Run]:
    """The runs, which must share a base. A model without a run is a run without members."""
    from ..run_files.run import Run, open_run
    from .opening import shared_base

    if not options.folders:
        if options.base is None:
            raise ValueError("name a run to evaluate, or a model with --base.")
        if options.no_base or options.members or options.teachers:
            raise ValueError("--no-base, --members and --teachers need a run; there is only a base.")
        return [Run("", options.base, (), BASE_SETTINGS)]
    runs = [open_run(folder, base=options.base) for folder in options.folders]
    base = options.base or shared_base(runs)
    return [one._replace(base=base) for one in runs]


def output_folder(options: argparse.Namespace, runs: Sequence[Run]) -> str:
    if options.output is None and (len(runs) > 1 or not runs[0].folder):
        raise ValueError("set --output FOLDER: the results do not belong to one run.")
    return options.output or os.path.join(runs[0].folder, EVALUATION_FOLDER)


def chosen_members(one: Run, options: argparse.Namespace) -> list[str]:
    """The named members, or all students (and teachers)."""
    if options.members is None:
        return [name for name in one.members if options.teachers or not name.startswith("teacher")]
    unknown = sorted(set(options.members) - set(one.members))
    if unknown:
        raise ValueError(f"no such members in {one.folder}: {unknown}; choose from {list(one.members)}")
    return list(dict.fromkeys(options.members))


def students(one: Run) -> list[str]:
    return [name for name in one.members if name.startswith("student")]


def averaged(one: Run, options: argparse.Namespace) -> list[str]:
    """The player `"average"`, if it was asked for and there are several students."""
    if not options.average:
        return []
    if not one.folder:
        raise ValueError("--average needs a run; there is only a base.")
    return [AVERAGE] if len(students(one)) > 1 else []


def chosen_exams(options: argparse.Namespace, runs: Sequence[Run]) -> list[Exam]:
    """The exams, the same for all runs."""
    from ..evaluation import make_exams
    from ..evaluation.exams import needs_task_types
    from ..tasks import make_task_types
    from .opening import shared_setting, shared_task_types

    if options.exams is None:
        if other := [one.folder for one in runs if one.setting("num_teachers", 1) == 0]:
            raise ValueError(f"{other[0]} was trained on a dataset and has no default exam: name one with --exams.")
        options.exams = ["held_out"]
    types: dict[str, TaskType] = {}
    if any(needs_task_types(name) for name in options.exams):
        if options.types:
            style = shared_setting(runs, "prompt_style", "--style", given=options.style)
            types = make_task_types(options.types, style=style)
        elif runs[0].folder:
            types = shared_task_types(runs, style=options.style)
    return make_exams(options.exams, types, data=options.data, limit=options.limit)


def read_decoding(options: argparse.Namespace, runs: Sequence[Run], exam: Exam) -> Decoding:
    """Settings of sampling for an exam.

    Raises:
        ValueError: If options contradict each other, or runs differ in a limit that the exam does not have.
    """
    from ..evaluation.evaluating import Decoding
    from .opening import shared_setting

    samples, temperature = options.samples, options.temperature
    if samples == "auto":
        if temperature is not None:
            raise ValueError("--samples auto uses the temperature of each exam; leave --temperature out.")
        samples, temperature = exam.samples, exam.temperature
    length, rows = options.max_completion_length, options.batch_size
    if length is None:
        length = exam.max_completion_length or shared_setting(runs, "max_completion_length", "--max-completion-length")
    if rows is None:
        rows = VLLM_ROWS if with_vllm(options) else runs[0].setting("generation_rows", 64)
    return Decoding(int(samples), temperature or 0.0, length, options.seed, rows)


def with_vllm(options: argparse.Namespace) -> bool:
    return options.use_vllm or options.vllm_server_base_urls is not None


def vllm_engine(options: argparse.Namespace, revision: str | None) -> Callable[[], Engine] | None:
    """Makes the engine that answers, one for each run; `None` without vLLM. `revision` is that of the base.

    Raises:
        ValueError: If the options for vLLM contradict each other.
    """
    urls, given = options.vllm_server_base_urls, options.vllm_engine_kwargs
    if given is not None and (urls or not options.use_vllm):
        raise ValueError("--vllm-engine-kwargs are for --use-vllm; give them to the server's command.")
    if not with_vllm(options):
        return None
    from ..extras import require
    from ..generation.engines import VLLM, VLLMEngine, check_urls, server_engine
    from ..generation.engines.vllm_engine import MAX_ROWS, of_revision

    if urls:
        check_urls(urls)
        return lambda: server_engine(urls, VLLM, timeout=SERVER_SECONDS)
    try:
        settings = json.loads(given or "{}")
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise ValueError(f"--vllm-engine-kwargs {given} is no mapping in JSON, like '{{\"max_model_len\": 4096}}'.")
    # the base is in the GPU's memory a second time, for the check that vLLM answers with the members' weights
    settings = {"gpu_memory_utilization": 0.5, "max_num_seqs": MAX_ROWS, **of_revision(revision)} | settings
    VLLMEngine(**settings)  # a setting that it refuses is told before the base is loaded
    require("vllm", user="--use-vllm")
    return lambda: VLLMEngine(**settings)
