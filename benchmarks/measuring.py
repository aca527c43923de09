"""Time and memory of variants side by side, on the CPU or a GPU."""

import ctypes
import os
import statistics
import time
from collections.abc import Callable, Mapping

import torch

from trl_populora.training.run_record import hardware


def machine() -> dict:
    """What a file of measurements says of where they come from: times and memory depend on all of it."""
    return hardware() | {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "allocator": {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")},
        "date": time.strftime("%Y-%m-%d"),
    }


def alternate(device: torch.device, variants: Mapping[str, Callable], repeats: int) -> dict[str, dict[str, float]]:
    """Call the variants in turn, so many times.

    Returns:
        `dict`: `"seconds"` of each variant, and `"ratio"` and (on the CPU) `"cpu_ratio"`, its wall-clock and processor
        time by those of the variant `"one"`. Medians over the repeats, of the ratios within each repeat.
    """
    spent = {name: [] for name in variants}
    for _ in range(repeats):
        for name, call in variants.items():
            synchronize(device)
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            synchronize(device)
            spent[name].append((time.perf_counter() - wall, time.process_time() - cpu))

    def ratio(name: str, clock: int) -> float:
        return statistics.median(a[clock] / b[clock] for a, b in zip(spent[name], spent["one"], strict=True))

    others = [name for name in variants if name != "one"]
    result = {
        "seconds": {name: statistics.median(wall for wall, _ in times) for name, times in spent.items()},
        "ratio": {name: ratio(name, 0) for name in others},
    }
    return result if device.type == "cuda" else result | {"cpu_ratio": {name: ratio(name, 1) for name in others}}


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        ctypes.CDLL(None).malloc_trim(0)  # what was measured before has left free heap: the peak begins without it
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")


def peak(device: torch.device) -> float:
    """Peak memory since `reset_peak` in MiB: allocated on the GPU, resident on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
