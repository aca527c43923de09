"""Seconds per child of every evolution operator, on adapters of the size of Qwen2.5-7B.

    python benchmarks/operators.py [--json [FILE]] [--processor-time]

28 layers, all seven linears, rank 32, float32: 81 million numbers, 323 MB. Beside each operator stand the time that
its bytes (parents read, child written) need at the bandwidth of a plain copy in this run, and the time of the same
operator of the `populora` package (0.4.5) on the same numbers, where that is installed and has it. Both write into
memory that is already there. The fastest of `--repeats` turns counts, taken in turns. On a busy machine one
thread and `--processor-time` tell more than the clock.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import torch

from trl_populora.evolution import OPERATORS, breed
from trl_populora.population import Factor, Factors


try:
    from populora.operators import CROSSOVER_REGISTRY, MUTATION_REGISTRY
except ImportError:
    CROSSOVER_REGISTRY = MUTATION_REGISTRY = {}

HIDDEN, INTERMEDIATE, KV = 3584, 18944, 512
LINEARS = {  # d_out, d_in
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KV, HIDDEN),
    "self_attn.v_proj": (KV, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
    "mlp.up_proj": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE),
}
ROWS = {name: (name, {}) for name in OPERATORS} | {
    "component_masking": ("component_masking", {"rho": 0.3}),  # as much as the peer drops
    "dare_factor": ("dare", {"space": "factors"}),
    "average_factor": ("average", {"space": "factors"}),
    "extrapolative_factor": ("extrapolative", {"space": "factors"}),
}
PEER_MUTATIONS = {
    "svd_structured": "svd_structured",
    "layer_gaussian": "layer_selective_gaussian",
    "component_masking": "component_masking",
    "gaussian": "full_gaussian",
    "neftune": "neftune_style",
}
PEER_CROSSOVERS = {
    "dare_factor": "dare",
    "layerwise": "layer_wise",
    "svd_subspace": "svd_subspace",
    "average_factor": "average",
    "extrapolative_factor": "extrapolative",
    "clone": "clone",
}
clock = time.perf_counter
PARENTS_READ = {"layerwise": 1}  # others read all their parents


def make_adapter(seed: int, *, layers: int, rank: int) -> Factors:
    rng = torch.Generator().manual_seed(seed)
    return {
        f"model.layers.{layer}.{name}": Factor(
            torch.randn(rank, d_in, generator=rng) / d_in**0.5, torch.randn(d_out, rank, generator=rng) / 100, 1.0
        )
        for layer in range(layers)
        for name, (d_out, d_in) in LINEARS.items()
    }


def peer_population(adapters: list[Factors]) -> SimpleNamespace:
    """What the peer's operators need of its population: stacked factors, (individuals, d, rank)."""
    keys = {path: path.replace(".", "_") for path in adapters[0]}
    down = {key: torch.stack([adapter[path].A.T for adapter in adapters]) for path, key in keys.items()}
    up = {key: torch.stack([adapter[path].B for adapter in adapters]) for path, key in keys.items()}
    return SimpleNamespace(device=torch.device("cpu"), weight_down=down, weight_up=up)


def peer_call(row: str, population: SimpleNamespace) -> Callable[[], None] | None:
    """The peer's operator writing individual 2: mutations from itself, crossovers from 0 and 1."""
    child = torch.tensor([2])
    if row in PEER_MUTATIONS and MUTATION_REGISTRY:
        function = MUTATION_REGISTRY[PEER_MUTATIONS[row]]
        return lambda: function(population, child)
    if row in PEER_CROSSOVERS and CROSSOVER_REGISTRY:
        function = CROSSOVER_REGISTRY[PEER_CROSSOVERS[row]]
        parents = torch.tensor([[0]] if row == "clone" else [[0, 1]])
        return lambda: function(population, parents, child)
    return None


def seconds(call: Callable[[], object]) -> float:
    begin = clock()
    call()
    return clock() - begin


def plain_copy(numbers: int) -> float:
    """Seconds to copy as many float32 numbers as an adapter has, between warm pages."""
    source, target = torch.ones(numbers), torch.ones(numbers)
    return min(seconds(lambda: target.copy_(source)) for _ in range(10))


def extra_memory(call: Callable[[], object]) -> float:
    """MiB that a call needs beyond what is resident before it; NaN where Linux does not tell."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets the peak
        before = _status("VmRSS")
        call()
        return (_status("VmHWM") - before) / 1024
    except OSError:
        return float("nan")


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--threads", type=int, default=None, help="of PyTorch; its own choice by default")
    parser.add_argument("--operators", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--json", nargs="?", const=True, metavar="FILE", help="print JSON as the last line; into FILE")
    parser.add_argument("--processor-time", action="store_true", help="count it instead of the time of the clock")
    arguments = parser.parse_args()
    if arguments.processor_time:
        global clock
        clock = time.process_time
    if arguments.threads:
        torch.set_num_threads(arguments.threads)

    parents = [make_adapter(seed, layers=arguments.layers, rank=arguments.rank) for seed in (0, 1)]
    child = make_adapter(2, layers=arguments.layers, rank=arguments.rank)
    peer = peer_population([*parents, child]) if MUTATION_REGISTRY else SimpleNamespace()
    numbers = sum(X.numel() for factor in child.values() for X in factor[:2])
    copy_seconds = plain_copy(numbers)
    print(f"{numbers / 1e6:.1f} million numbers, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"plain copy {copy_seconds:.3f} s, {8 * numbers / copy_seconds / 1e9:.1f} GB/s")
    print(f"{'operator':22} {'ours s':>8} {'peer s':>8} {'ratio':>6} {'bandwidth s':>12} {'extra MiB':>10}")

    results = {}
    for row in arguments.operators:
        operator, parameters = ROWS[row]
        chosen = parents[: OPERATORS[operator].num_parents]

        def ours(operator=operator, chosen=chosen, parameters=parameters) -> None:
            breed(operator, chosen, seed=0, parameters=parameters)

        theirs = peer_call(row, peer)
        memory = extra_memory(ours)
        turns = [(seconds(ours), seconds(theirs) if theirs else None) for _ in range(arguments.repeats)]
        ours_s = min(turn[0] for turn in turns)
        peer_s = min(turn[1] for turn in turns) if theirs else None
        bandwidth_s = copy_seconds * (1 + PARENTS_READ.get(row, len(chosen))) / 2
        results[row] = {"ours_s": round(ours_s, 4), "peer_s": peer_s and round(peer_s, 4)}
        results[row] |= {"bandwidth_s": round(bandwidth_s, 4), "extra_mib": round(memory, 1)}
        beside = f"{peer_s:8.3f} {ours_s / peer_s:6.2f}" if peer_s else f"{'-':>8} {'-':>6}"
        print(f"{row:22} {ours_s:8.3f} {beside} {bandwidth_s:12.3f} {memory:10.1f}", flush=True)
    if arguments.json:
        print(json.dumps(results))
    if isinstance(arguments.json, str):
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
