"""What a GPU shows in ten minutes: is it right, how long do members take beside one adapter, what does a base learn.

    python benchmarks/gpu.py --minutes 10              # `make gpu`
    python benchmarks/gpu.py --toy --out /tmp/toy      # all of it at toy size, on the CPU
    python benchmarks/gpu.py --stages machine,update   # some of it
    python benchmarks/gpu.py --wheels wheels           # on a machine without a network (docs/gpu.md)
    python benchmarks/gpu.py --vllm-python .venv-gpu/bin/python   # vLLM in an environment of its own
    python benchmarks/gpu.py --table runs/gpu          # the table of what was measured

Each stage runs in a process of its own with a limit of time, and writes `STAGE.json` into `--out` after each part. So
a stage that fails or runs out of time loses only what it had not measured. Stages are in `gpu_stages.py`. Numbers are
ratios of what is measured in turn in one process; each stands beside its aim.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


ROOT = Path(__file__).resolve().parents[1]
LIMITS = {  # seconds of ten minutes, in the order in which stages run; each may also use what those before it left
    "machine": 30,
    "equivalence": 75,
    "update": 95,
    "generation": 60,
    "sync": 30,
    "vllm": 115,
    "step": 85,
    "canary": 50,
    "learning": 60,
    "engine_step": 240,
    "shared": 120,
}
BY_NAME = (
    "engine_step",
    "shared",
)  # only where `--stages` names them: they do not fit into ten minutes beside the others
USUAL = [stage for stage in LIMITS if stage not in BY_NAME]
WITH_VLLM = ("vllm", "canary", "engine_step")
VLLM_WHEELS = ("vllm-*", "vllm_*")
LEAST = 5  # seconds that a stage needs to begin
SPARE = 5  # seconds between the time that a stage is told and the end of its process


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    if args.table:
        print(table(args.table))
        return 0
    if args.stage:
        from gpu_report import Report
        from gpu_stages import STAGES

        return Report(args.out, args.stage, toy=args.toy, seconds=args.seconds).run(STAGES[args.stage])
    args.out.mkdir(parents=True, exist_ok=True)
    environments = surroundings(args)
    begin, total = time.monotonic(), 60 * args.minutes
    for stage in args.stages:
        left = total - (time.monotonic() - begin)
        limit = limit_of(stage, args.stages, left, args.minutes)
        told = run_stage(
            stage,
            limit,
            out=args.out,
            options=["--toy"] if args.toy else [],
            environment=environments[stage],
            python=python_of(stage, args),
        )
        print(
            f"{stage}: {told['status']}, {told['seconds']:.0f} s{': ' if told['why'] else ''}{told['why']}", flush=True
        )
    print(table(args.out))
    return 0


def limit_of(stage: str, stages: Sequence[str], left: float, minutes: float) -> float:
    """Seconds of a stage: its own, and what the stages before it did not use; never those of the stages after it."""
    scale = max(1.0, minutes / 10)
    later = sum(LIMITS[other] for other in stages[stages.index(stage) + 1 :])
    return min(left, max(LIMITS[stage] * scale, left - later * scale))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of all stages together")
    parser.add_argument("--toy", action="store_true", help="everything at toy size, on the CPU")
    parser.add_argument("--stages", default=",".join(USUAL), help=f"some of {','.join(LIMITS)}")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), metavar="DIR", help="for the JSONs and logs")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="packages that this machine lacks, as wheels")
    parser.add_argument("--vllm-python", metavar="PYTHON", help="runs the stages with vLLM; default: this Python")
    parser.add_argument("--table", type=Path, metavar="DIR", help="print the table of the JSONs there, and end")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=600.0, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    args.stages = args.stages.split(",")
    if unknown := [stage for stage in args.stages if stage not in LIMITS]:
        parser.error(f"--stages {','.join(unknown)}: choose from {','.join(LIMITS)}")
    args.stages.sort(key=list(LIMITS).index)
    if args.vllm_python and shutil.which(args.vllm_python) is None:
        parser.error(f"--vllm-python {args.vllm_python}: there is no such program")
    if args.minutes <= 0:
        parser.error(f"--minutes {args.minutes} must be positive")
    return args


# Stages ------------------------------------------------------------------------------------------------------------


def run_stage(
    stage: str,
    limit: float,
    *,
    out: Path,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> dict:
    """Runs one stage in a process of its own, which is killed with all its children at its limit.

    The base that a stage with vLLM leaves is removed (15 GB).

    Returns:
        `dict`: Its JSON: `status` is "done", "not run" (`why` says why), "failed" or "out of time".
    """
    path = out / f"{stage}.json"
    path.unlink(missing_ok=True)
    if limit < LEAST:
        return close(path, stage, "not run", "no time was left", seconds=0.0, limit=limit)
    command = [python, str(Path(__file__).resolve()), "--stage", stage, "--out", str(out)]
    command += ["--seconds", f"{max(1.0, limit - SPARE):.1f}", *options]
    begin = time.monotonic()
    with open(out / f"{stage}.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            code, status, why = process.wait(limit), "done", ""
        except subprocess.TimeoutExpired:
            code, status, why = None, "out of time", f"its limit is {limit:.0f} s"
        finally:
            end(process)
            if stage in WITH_VLLM:
                shutil.rmtree(out / stage, ignore_errors=True)
    if code:
        status, why = "failed", last_words(out / f"{stage}.log") or f"exit code {code}"
    return close(path, stage, status, why, seconds=time.monotonic() - begin, limit=limit)


def end(process: subprocess.Popen) -> None:
    """Kills what is left of a stage: its process and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_words(log: Path) -> str:
    """The error at the end of a log, which is its last line that is not indented."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return next((line.strip() for line in reversed(lines) if not line.startswith(" ")), "")[:300]


def close(path: Path, stage: str, status: str, why: str, *, seconds: float, limit: float) -> dict:
    """Completes a stage's JSON, which holds what it had measured. What a stage that ended says of itself counts."""
    told = {"stage": stage, "numbers": [], "details": {}}
    with suppress(OSError, ValueError):
        told |= json.loads(path.read_text(encoding="utf-8"))
    if told.get("status", "running") != "running":
        status, why = told["status"], told["why"] or why
    told |= {"status": status, "why": why, "seconds": round(seconds, 1), "limit": round(limit, 1)}
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return told


# Packages ----------------------------------------------------------------------------------------------------------


def python_of(stage: str, args: argparse.Namespace) -> str:
    return args.vllm_python if args.vllm_python and stage in WITH_VLLM else sys.executable


def surroundings(args: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Environment of each stage: this copy of the repository first, then the wheels, no network, and one GPU.

    Only `machine` sees all GPUs, because TRL refuses several of them in one process. The wheels are for this Python.
    vLLM's own is only for the stages with vLLM: TRL imports it wherever it is found, which takes up to 20 s.
    """
    with_vllm, others = install(args.wheels, args.out) if args.wheels else ([], [])
    before = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_WAIT_POLICY": "PASSIVE"}
    first = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}
    # FlashInfer's sampler is for top-k and top-p, which rows here do not have; vLLM would import it nevertheless.
    sampler = {"VLLM_USE_FLASHINFER_SAMPLER": os.environ.get("VLLM_USE_FLASHINFER_SAMPLER", "0")}
    found = {}
    for stage in args.stages:
        wheels = [*(with_vllm if stage in WITH_VLLM else []), *others]
        places = [str(ROOT), *(wheels if python_of(stage, args) == sys.executable else []), *before]
        own = {**({} if stage == "machine" else first), **(sampler if stage in WITH_VLLM else {})}
        found[stage] = {**os.environ, **quiet, **own, "PYTHONPATH": os.pathsep.join(places)}
    return found


def install(wheels: Path, out: Path) -> tuple[list[str], list[str]]:
    """Unpacks wheels, without a network and without what they require; `NAME.whl.part-*` are joined before.

    The folders' name matters: `datasets` hashes with dill, which takes only modules below a `site-packages` for ones
    that can be imported again, and fails on parts of pyarrow in other places.

    Returns:
        `tuple[list[str], list[str]]`: Folder of vLLM, if it is among them, and of the others.

    Raises:
        SystemExit: If there is none, or pip refuses one.
    """
    joined = out / "joined"
    joined.mkdir(parents=True, exist_ok=True)
    files = sorted(wheels.glob("*.whl"))
    for first in sorted(wheels.glob("*.whl.part-aa")):
        whole = joined / first.name.removesuffix(".part-aa")
        whole.write_bytes(b"".join(part.read_bytes() for part in sorted(wheels.glob(f"{whole.name}.part-*"))))
        files.append(whole)
    if not files:
        raise SystemExit(f"--wheels {wheels}: there is no wheel (docs/gpu.md says how to collect them).")
    vllm = [file for file in files if any(file.match(pattern) for pattern in VLLM_WHEELS)]
    others = [file for file in files if file not in vllm]
    return unpack(vllm, out / "with-vllm" / "site-packages"), unpack(others, out / "site-packages")


def unpack(files: Sequence[Path], target: Path) -> list[str]:
    """Installs wheels into a folder, and returns it; nothing without files."""
    if not files:
        return []
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    done = subprocess.run([*command, "--upgrade", "--target", str(target), *map(str, files)], check=False)
    if done.returncode:
        raise SystemExit(f"--wheels: pip could not install {', '.join(file.name for file in files)}.")
    return [str(target)]


# The table ---------------------------------------------------------------------------------------------------------


def table(folder: Path) -> str:
    """Markdown: every number beside its aim, and every stage without all of its numbers with the reason."""
    lines = ["| stage | what | measured | aim | reached |", "|---|---|---|---|---|"]
    for stage in LIMITS:
        path = folder / f"{stage}.json"
        if not path.exists():
            if stage in BY_NAME:
                continue
            lines.append(f"| {stage} | not run | | | |")
            continue
        told = json.loads(path.read_text(encoding="utf-8"))
        for number in told["numbers"]:
            reached = {True: "yes", False: "**no**", None: ""}[None if told.get("toy") else number["reached"]]
            lines.append(f"| {stage} | {number['what']} | {number['shown']} | {number['aim'] or ''} | {reached} |")
        if told["status"] != "done":
            why = told["why"].replace("|", "\\|")
            lines.append(f"| {stage} | {told['status']} after {told['seconds']:.0f} s: {why} | | | |")
    toy = any(json.loads(path.read_text()).get("toy") for path in folder.glob("*.json"))
    return "\n".join(lines + (["", "Toy sizes on a CPU: these numbers say only that the script runs."] if toy else []))


if __name__ == "__main__":
    sys.exit(main())
