"""`populora warmup`: runs only the supervised warm start of a population, and saves its adapters.

The result is a population folder; `populora train` does the same by itself where a recipe sets `warm_start_steps`.
"""

import argparse
import json
import math
import os
import shlex


FEW_INPUTS = {"code_f": {"num_inputs": 4}}  # where neither types nor settings are given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="base model: Hub id, folder or 'tiny'")
    parser.add_argument("--output", required=True, help="folder for the population")
    parser.add_argument("--teachers", type=int, default=2, metavar="N", help="number of teachers (default: 2)")
    parser.add_argument("--students", type=int, default=2, metavar="N", help="number of students (default: 2)")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="optimizer steps (default: 20)")
    parser.add_argument("--rows", type=int, default=8, help="rows per role in one step (default: 8)")
    parser.add_argument(
        "--learning-rate", type=float, default=1e-3, metavar="RATE", help="peak learning rate (default: 0.001)"
    )
    parser.add_argument("--rank", type=int, default=16, help="LoRA rank; alpha is twice that (default: 16)")
    parser.add_argument(
        "--style", choices=("full", "compact"), default="compact", help="style of the prompts (default: compact)"
    )
    parser.add_argument(
        "--template", choices=("chat", "base"), default="chat", help="template of the prompts (default: chat)"
    )
    parser.add_argument("--types", nargs="+", metavar="NAME", help="task types (default: the three Python types)")
    parser.add_argument("--task-kwargs", type=mapping, default={}, metavar="JSON", help="their settings, by id")
    parser.add_argument(
        "--reserved-exams", nargs="+", default=[], metavar="EXAM", help="exams whose tasks are in no example"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of adapters and examples (default: 0)")


def mapping(text: str) -> dict:
    """The value of `--task-kwargs`."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text} must be a mapping in JSON, task type -> settings")
    return found


def run(options: argparse.Namespace) -> int:
    from ..extras import require
    from ..run_files.files import check_writable, gone_if_unused
    from ..run_files.layout import POPULATION_FILE

    for name in ("steps", "rows", "rank", "teachers", "students"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name} {getattr(options, name)} must be at least 1")
    if os.path.isfile(options.output):
        raise ValueError(f"--output {options.output} is a file; name a new folder")
    if os.path.exists(options.output) and os.listdir(options.output):
        stopped = not os.path.isfile(os.path.join(options.output, POPULATION_FILE))
        fix = "If a warm start was stopped while it was saved there, remove it. Else" if stopped else "To keep it,"
        raise ValueError(f"--output {options.output} is not empty. {fix} name a new folder.")
    if not 0 < options.learning_rate < math.inf:
        raise ValueError(f"--learning-rate {options.learning_rate} must be positive and finite")
    require("lightning", user="populora warmup")
    with gone_if_unused(options.output, lambda: os.path.isfile(os.path.join(options.output, POPULATION_FILE))):
        check_writable(options.output, option="--output")
        warm_up(options)
    return 0


def warm_up(options: argparse.Namespace) -> None:
    """What `run` does when the options are checked."""
    from ..command import populora
    from ..evaluation import exam_keys, reserved_keys
    from ..integrations.base_models import resolve_base
    from ..run_files.files import write_json
    from ..run_files.layout import RUN_FILE
    from ..run_files.run import hub_id
    from ..tasks import DEFAULT_TYPES, make_task_types
    from .opening import load_base

    names = options.types or list(DEFAULT_TYPES)
    kwargs = FEW_INPUTS if options.types is None and not options.task_kwargs else options.task_kwargs
    types = make_task_types(names, style=options.style, kwargs=kwargs)
    reserved = reserved_keys(types)
    for name in options.reserved_exams:
        if not (keys := exam_keys([name], types)):
            print(f"--reserved-exams: {name} has no tasks, so nothing is kept out of the examples for it.")
        reserved |= keys
    model, tokenizer = load_base(resolve_base(options.model, tell=print), dtype="float32")

    from peft import LoraConfig

    from ..integrations.lightning import warm_start
    from ..population import Population
    from ..reporting import LiveView

    population = Population(
        model,
        LoraConfig(r=options.rank, lora_alpha=2 * options.rank, target_modules="all-linear", lora_dropout=0.0),
        num_teachers=options.teachers,
        num_students=options.students,
        learning_rate=options.learning_rate,
        seed=options.seed,
    )
    with LiveView() as view:
        view.warm_start(0, options.steps)
        warm_start(
            population,
            tokenizer,
            types,
            steps=options.steps,
            rows_per_role=options.rows,
            learning_rate=options.learning_rate,
            template=options.template,
            seed=options.seed,
            reserved=reserved,
            on_step=lambda step, losses: view.warm_start(step, options.steps, losses),
        )
    settings = {
        "prompt_style": options.style,
        "prompt_template": options.template,
        "task_types": names,
        "task_kwargs": kwargs,
        "max_completion_length": 128,
        "reserved_exams": options.reserved_exams,
        "warm_start_steps": options.steps,
    }
    write_json(
        os.path.join(options.output, RUN_FILE),
        {"model": options.model, "model_on_hub": hub_id(options.model) is not None, "settings": settings},
    )
    population.save(options.output)  # last: with it, the folder is complete
    print(f"{options.output}: {', '.join(population)}")
    print(f"Whether their proposals are valid: {populora()} {shlex.join(['play', options.output])}")
