"""Operations that an update launches, of N members beside one adapter by PEFT: what small work on a GPU waits for.

    python benchmarks/launches.py --json benchmarks/results/launches.json

A GPU starts a kernel for nearly each of these operations, and the processor needs microseconds for it. So
they can be counted without a GPU: all operations of ATen in a forward and backward are counted, but not views and
allocations. Copies within an operation are not seen: `baddbmm` has one, two for each adapted layer of ours. The base
has the layers of Qwen2.5-1.5B (28, each with seven adapted linear layers) and is narrow. It computes in bfloat16
under autocast with gradient checkpointing, as on a GPU. In the same way, it counts one token of sampling, without
autocast, and what a sync with an engine starts for its adapters: to pack them, and to sum their bits. The seconds are
of processor time, with one thread, in turn: they contain the products, too, so read them as an upper limit of what
members cost.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable

import base_shapes
import torch
import torch.nn.functional as F
from measuring import alternate
from member_scaling import Bench, cast
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache, Qwen2Config

from trl_populora.generation.engines.adapters import AdapterStore, flatten
from trl_populora.generation.engines.weight_changes import bit_sums
from trl_populora.population import Population


LAYERS = 28
NARROW = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
NO_KERNEL = ("empty", "new_empty", "detach", "alias", "_unsafe_view")


class Launches(TorchDispatchMode):
    """Counts operations that compute, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation._schema.name.removeprefix("aten::")
        view = any(one.alias_info and not one.alias_info.is_write for one in operation._schema.returns)
        if not view and not name.startswith(NO_KERNEL):
            self.counts[name] += 1
        return operation(*args, **kwargs or {})


class Narrow(Bench):
    """The bench of `member_scaling.py`, in bfloat16 on the CPU."""

    def __init__(self, rows: int, tokens: int, repeats: int) -> None:
        base_shapes.SHAPES["narrow"] = Qwen2Config(vocab_size=512, num_hidden_layers=LAYERS, **NARROW)
        sizes = {"rows": rows, "tokens": tokens, "rank": 8}
        self.args = argparse.Namespace(repeats=repeats, gradient_checkpointing=True, **sizes)
        self.device, self.dtype = torch.device("cpu"), torch.bfloat16
        self.model, self.tokenizer = base_shapes.load("narrow", self.device, self.dtype)
        self.single = self.population(1)
        self.single.routing.close()
        self.ids = torch.randint(10, 250, (rows, tokens))

    def backward(self, population: Population, rows: int, **kwargs) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            logits = population.model(input_ids=self.ids[:rows], use_cache=False).logits
        F.cross_entropy(logits[:, :-1].float().flatten(0, 1), self.ids[:rows, 1:].flatten()).backward()

    def token(self, population: Population, cache: DynamicCache) -> None:
        """The forward of one more token of each row."""
        with torch.inference_mode():
            population.model(input_ids=self.ids[:, :1], past_key_values=cache, use_cache=True)
        cache.crop(-1)


def update(bench: Narrow, members: int) -> dict:
    """Of one update of so many rows as `bench` has, and of PEFT's."""
    population, rows = bench.population(members), bench.args.rows
    return {"members": members, "rows": rows} | compared(
        bench, lambda: bench.one(rows), lambda: bench.ours(population, rows)
    )


def token(bench: Narrow, members: int) -> dict:
    """Of one token of sampling, of so many rows, and of PEFT's."""
    population, rows = bench.population(members), bench.args.rows
    names = [name for name in population for _ in range(rows // members)]
    for one in (population, bench.single):
        one.model.eval()
    caches = DynamicCache(), DynamicCache()
    with population.route(names), cast(bench.single, bench.dtype):
        found = compared(
            bench, lambda: bench.token(bench.single, caches[0]), lambda: bench.token(population, caches[1])
        )
    return {"members": members, "rows": rows} | found


def sync(bench: Narrow, members: int) -> dict:
    """Of our part of a sync, without the transfer, the canary's forward passes and the engine."""
    population, counts = bench.population(members), {}
    store = AdapterStore(population, dtype=bench.dtype, in_memory=True)
    calls = {"pack": store.pack, "sums": lambda factors: bit_sums([flatten(factors, bench.dtype, scaled=True)])}
    for name, call in calls.items():
        with Launches() as launches:
            for member in population:
                call(population.factors(member))
        counts[name] = launches.counts.total()
    store.close()
    return {"members": members, "launches": counts}


def compared(bench: Narrow, one: Callable[[], None], ours: Callable[[], None]) -> dict:
    """Operations and processor time of ours and of PEFT's, which need `Bench.alone`."""
    calls, counts = {"one": one, "ours": ours}, {}
    with bench.alone():
        ours()  # stacks, which sampling makes once for a batch
        for name, call in calls.items():
            with Launches() as launches:
                call()
            counts[name] = launches.counts
        found = alternate(bench.device, calls, bench.args.repeats)
    return {
        "launches": {name: count.total() for name, count in counts.items()},
        "per_layer": {name: round(count.total() / (7 * LAYERS), 1) for name, count in counts.items()},
        "cpu_ratio": round(found["cpu_ratio"]["ours"], 3),
        "operations": {name: dict(count.most_common()) for name, count in counts.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="*", default=[1, 8, 16])
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    bench = Narrow(args.rows, args.tokens, args.repeats)
    found = {"torch": torch.__version__, "updates": [], "tokens": [], "syncs": []}
    for rows, measure in ((found["updates"], update), (found["tokens"], token), (found["syncs"], sync)):
        for members in args.members:
            rows.append(measure(bench, members))
            print(json.dumps({key: value for key, value in rows[-1].items() if key != "operations"}), flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
