"""The stage "machine" of `gpu.py`: what the machine is, and whether TRL's loss runs on it."""

import json
import os
import subprocess

import torch
from gpu_report import Report, versions
from measuring import alternate

from trl_populora.training.devices import missing_for_triton


NO_TRITON = "Triton does not work"  # detail of the stage `machine`


def machine(report: Report) -> None:
    """Card, memory, driver, versions, Triton, how far programs are confined, speed in a large product."""
    from trl_populora.executor import Executor

    report.detail("versions", versions())
    report.detail("cores", len(os.sched_getaffinity(0)))
    if report.device.type == "cuda":
        count = torch.cuda.device_count()
        report.detail("gpus", [torch.cuda.get_device_name(i) for i in range(count)])
        report.detail("driver", driver())
        free, total = torch.cuda.mem_get_info()
        report.number("visible GPUs", count, shown=f"{count}, {torch.cuda.get_device_name()}")
        report.number("free memory of the GPU, GB", free / 1e9, shown=f"{free / 1e9:.1f} of {total / 1e9:.1f}")
    size = 256 if report.toy else 8192
    a, b = (torch.randn(size, size, device=report.device, dtype=torch.bfloat16) for _ in range(2))
    seconds = alternate(report.device, {"one": lambda: a @ b}, 6)["seconds"]["one"]
    report.number(f"bfloat16 product of {size} x {size}, Tflop/s", 2 * size**3 / seconds / 1e12)
    with Executor(1) as executor:  # which the stages with whole runs need
        report.number("isolation of programs", int(executor.isolation[1:]), shown=executor.isolation)
    triton(report)


def triton(report: Report) -> None:
    """Whether TRL's loss runs here: on a GPU it is a Triton kernel, and Triton compiles C when it first starts one."""
    missing = missing_for_triton()
    report.number(
        "what Triton needs: C compiler, Python.h, ldconfig",
        int(not missing),
        shown="; ".join(missing) or "all",
        least=1,
    )
    try:
        errors = {dtype: loss_error(report.device, dtype) for dtype in (torch.float32, torch.bfloat16)}
    except Exception as reason:
        why = " ".join(f"{type(reason).__name__}: {reason}".split())[:300].replace("|", "/")
        report.detail(NO_TRITON, why)
        report.left_out("TRL's loss by Triton", f"{why} (it needs a C compiler, Python.h and /sbin/ldconfig)")
    else:
        for dtype, most in {torch.float32: 1e-4, torch.bfloat16: 0.05}.items():
            name = f"TRL's loss (Triton) in {str(dtype).removeprefix('torch.')} against PyTorch's log_softmax"
            report.number(name, errors[dtype], most=most)


def loss_error(device: torch.device, dtype: torch.dtype) -> float:
    """Largest difference of TRL's log-probabilities, and of their gradient, from PyTorch's in float32, each
    relative to the largest value."""
    from trl.kernels import ChunkedLogProbFunction

    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(rows, 64, generator=generator).to(device, dtype) for rows in (8, 4000))
    hidden.requires_grad_()
    targets = torch.arange(8, device=device)
    ours = ChunkedLogProbFunction.apply(hidden, weight, None, targets, 1.0, 1024, None, 1.0, ("entropy",))[0]
    wanted = (hidden.float() @ weight.float().T).log_softmax(-1)[targets, targets]
    pairs = [(ours, wanted), tuple(torch.autograd.grad(logps.sum(), hidden)[0] for logps in (ours, wanted))]
    return max(float((a.float() - b.float()).abs().max() / b.float().abs().max()) for a, b in pairs)


def loss_that_runs(report: Report) -> None:
    """Where the stage `machine` saw that Triton does not work: TRL's own fallback, in PyTorch."""
    machine = report.path.with_name("machine.json")
    if machine.exists() and NO_TRITON in json.loads(machine.read_text())["details"]:
        from trl.kernels import chunked_logprob

        chunked_logprob._TRITON_AVAILABLE = False  # both are read whenever the loss is computed
        chunked_logprob._MM_OUT_DTYPE = False  # a product of bfloat16 into float32, which not every PyTorch has
        report.left_out("TRL's loss by Triton", "by PyTorch here, which is slower: see the stage machine")


def driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({error})"
