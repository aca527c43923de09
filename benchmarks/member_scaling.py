"""What N members cost beside one adapter: updates, generation, whole steps, memory.

    python benchmarks/member_scaling.py --json benchmarks/results/member_scaling.json
    python benchmarks/member_scaling.py --device cuda --model qwen2.5-7b-shapes
    python benchmarks/member_scaling.py --quick --model tiny

Variants alternate in one warm process; read the ratios, which are medians over the repeats of a variant's time by that
of "one" in the same repeat ("cpu_ratio": of processor time, which other jobs disturb less). The variants: "one", a
single adapter on PEFT's own path; "ours", all members routed in one pass; "sequential", one pass per member; "mixed",
PEFT's mixed batch (`adapter_names`); "base", no adapter. Ratios are promised for 8 members and measured several times
there; everything else is measured once. "growth" compares the most members with 8 (or the fewest), at equal rows and
in turn: all of `--growth` ratios are kept. With `--device cuda` the base is bfloat16 under autocast, as TRL trains it;
on the CPU all is float32.
"""

import argparse
import copy
import gc
import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from base_shapes import load
from measuring import alternate, machine, peak, reset_peak
from member_steps import whole_step
from peft import LoraConfig

from trl_populora.generation import TransformersSampler
from trl_populora.population import Population
from trl_populora.population.composition import schedule


PROMISED = 8  # members at which ratios are promised


class Bench:
    """One base model and everything that is measured on it."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.device = args, torch.device(args.device)
        torch.manual_seed(0)
        self.dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
        self.model, self.tokenizer = load(args.model, self.device, self.dtype, layers=args.layers)
        self.single = self.population(1)
        self.single.routing.close()  # nothing of ours is in what it is compared with
        self.ids = torch.randint(10, 250, (args.rows, args.tokens), device=self.device)
        with self.alone():
            self.one(args.rows)  # warm

    def population(self, members: int) -> Population:
        """A population of its own LoRA layers on the shared frozen weights."""
        shared = {id(t): t for t in (*self.model.parameters(), *self.model.buffers())}
        lora = LoraConfig(r=self.args.rank, lora_alpha=2 * self.args.rank, target_modules="all-linear")
        teachers = max(1, members // 2)
        with self.device:  # where the adapters are drawn, too
            population = Population(
                copy.deepcopy(self.model, shared),
                lora,
                num_teachers=teachers,
                num_students=max(1, members - teachers),
                shared_member=members == 1,
            )
        if self.args.gradient_checkpointing:
            population.model.train()
            population.model.gradient_checkpointing_enable({"use_reentrant": False})
        return population

    # Updates ---------------------------------------------------------------------------------------------------

    def backward(self, population: Population, rows: int, **kwargs) -> None:
        """Forward and backward of the next-token loss on the last quarter of each row."""
        ids, keep = self.ids[:rows], self.args.tokens // 4
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = population.model(input_ids=ids, logits_to_keep=keep + 1, use_cache=False, **kwargs).logits
        loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, -keep:].flatten())
        del logits  # as in the trainer, nothing holds all logits during the backward
        loss.backward()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Context in which PEFT applies the single adapter. Entering and leaving takes long: not in what is timed."""
        self.single.model.base_model.enable_adapter_layers()
        try:
            yield
        finally:
            self.single.model.base_model.disable_adapter_layers()

    def one(self, total: int) -> None:
        """A single adapter on PEFT's own path, within `alone`."""
        for start in range(0, total, self.args.rows):
            self.backward(self.single, min(self.args.rows, total - start))
        clear(self.single)

    def ours(self, population: Population, total: int) -> None:
        """Every micro-batch routed, dealt as the trainer deals them."""
        names = list(population)
        members = [row % len(names) for row in range(total)]
        roles = [member.role for member in population.values()]
        for rows in schedule(members, [1] * total, roles=roles, size=min(self.args.rows, total)):
            with population.route([names[members[row]] for row in rows]):
                self.backward(population, len(rows))
        clear(population)

    def sequential(self, population: Population, total: int) -> None:
        """One pass per member."""
        for name in population:
            with population.route([name] * (total // len(population))):
                self.backward(population, total // len(population))
        clear(population)

    def mixed(self, population: Population, total: int) -> None:
        """PEFT's mixed batch, which it allows in evaluation mode only."""
        names = list(population)
        population.model.base_model.enable_adapter_layers()
        population.model.eval()
        for start in range(0, total, self.args.rows):
            rows = [names[row % len(names)] for row in range(start, min(total, start + self.args.rows))]
            self.backward(population, len(rows), adapter_names=rows)
        population.model.train()
        population.set_trainable()
        clear(population)

    def update(self, population: Population) -> dict:
        """At equal total rows: as many as in one micro-batch, or one per member if these are more."""
        N, args = len(population), self.args
        total = max(args.rows, N)
        variants = {"one": lambda: self.one(total), "ours": lambda: self.ours(population, total)}
        rivals = {"one": variants["one"]}
        if N in args.rivals:
            rivals["sequential"] = lambda: self.sequential(population, total)
            rivals["mixed"] = lambda: self.mixed(population, total)
        with self.alone():
            self.one(args.rows)  # after a measurement of memory, the first to run would pay for new pages
            result = alternate(self.device, variants, args.repeats)
            if len(rivals) > 1:
                others = alternate(self.device, rivals, 1)
                result = {key: others[key] | values for key, values in result.items()}
        return {"members": N, "rows": total} | result

    def update_per_member(self, population: Population) -> dict:
        """At equal rows per member: time and memory for the fit of cost against N."""
        total = self.args.rows_per_member * len(population)
        reset_peak(self.device)
        seconds = alternate(self.device, {"one": lambda: self.ours(population, total)}, 1)["seconds"]
        return {"members": len(population), "rows": total, "seconds": seconds["one"], "peak_mib": peak(self.device)}

    def growth(self, few: int, many: int) -> dict:
        """An update of many members by one of few, of the same rows: all ratios, each of two updates in turn."""
        total = max(self.args.rows, many)
        populations = {"one": self.population(few), "many": self.population(many)}
        variants = {name: lambda p=p: self.ours(p, total) for name, p in populations.items()}
        alternate(self.device, variants, 1)  # warm
        ratios = [alternate(self.device, variants, 1) for _ in range(self.args.growth)]
        found = [ratio.get("cpu_ratio", ratio["ratio"])["many"] for ratio in ratios]
        return {"members": [few, many], "rows": total, "ratios": found}

    # Generation ------------------------------------------------------------------------------------------------

    def generate(self, population: Population) -> dict:
        """Tokens per second of the transformers sampler, prefill included: base, one adapter, all members."""
        N, args = len(population), self.args
        total, names = max(args.rows, N), list(population)
        generator = torch.Generator().manual_seed(1)
        prompts = torch.randint(10, 250, (total, args.tokens // 4), generator=generator).tolist()
        prompts = [ids[: len(ids) - i % 8] for i, ids in enumerate(prompts)]  # padded on the left, a little
        one, many = self.sampler(self.single, total), self.sampler(population, total)

        def draw_one():
            self.single.model.base_model.enable_adapter_layers()
            with cast(self.single, self.dtype):
                one.draw(prompts, [None] * total, range(total))
            self.single.model.base_model.disable_adapter_layers()

        variants = {
            "one": draw_one,
            "base": lambda: one.draw(prompts, [None] * total, range(total)),
            "ours": lambda: many.draw(prompts, [names[row % N] for row in range(total)], range(total)),
        }
        result = alternate(self.device, variants, args.repeats)
        rates = {name: total * args.new_tokens / value for name, value in result["seconds"].items()}
        return {"members": N, "rows": total, "tokens_per_s": rates} | result

    def sampler(self, population: Population, rows: int) -> TransformersSampler:
        sampler = TransformersSampler(
            population, self.tokenizer, max_completion_length=self.args.new_tokens, batch_size=rows
        )
        sampler.eos_ids = [1 << 30]  # no such token: no row ends early
        return sampler


@contextmanager
def cast(population: Population, dtype: torch.dtype) -> Iterator[None]:
    """Adapters in another dtype. Outside autocast, PEFT computes in that of its adapters, we in that of the base."""
    parameters = [parameter for name in population for parameter in population.parameters(name)]
    before = [parameter.data for parameter in parameters]
    for parameter in parameters:
        parameter.data = parameter.data.to(dtype)
    yield
    for parameter, data in zip(parameters, before, strict=True):
        parameter.data = data


def clear(population: Population) -> None:
    for name in population:
        for parameter in population.parameters(name):
            parameter.grad = None


def measure(args: argparse.Namespace) -> dict:
    bench = Bench(args)
    result = {"update": [], "update_per_member": [], "generate": [], "growth": [], "step": []}
    for N in args.members:
        population = bench.population(N)
        for name in ("update", "update_per_member", "generate"):
            result[name].append(getattr(bench, name)(population))
            print(name, json.dumps(result[name][-1]), flush=True)
        save(args, result)
        del population
        gc.collect()  # a population and its hooks refer to each other
    if args.growth and len(args.members) > 1:
        few, *_, many = sorted(args.members)
        result["growth"].append(bench.growth(PROMISED if few < PROMISED < many else few, many))
        print("growth", json.dumps(result["growth"][-1]), flush=True)
        save(args, result)
        gc.collect()
    for N in args.step_members:
        result["step"].append(whole_step(bench, N))
        print("step", json.dumps(result["step"][-1]), flush=True)
        save(args, result)
        gc.collect()
    return result


def summary(result: dict) -> dict:
    """The numbers that are promised, each from the rows above; `None` where its N was not measured."""
    at = {name: {row["members"]: row for row in rows} for name, rows in result.items() if name != "growth"}
    growth = {tuple(row["members"]): statistics.median(row["ratios"]) - 1 for row in result["growth"]}
    update, generate, step, cost = (at[name] for name in ("update", "generate", "step", "update_per_member"))
    N, seconds = list(cost), [row["seconds"] for row in cost.values()]

    def relative(n: int) -> float:
        return update[n].get("cpu_ratio", update[n]["ratio"])["ours"]

    slope, intercept = np.polyfit(N, seconds, 1) if len(N) > 1 else (None, None)
    return {
        "update_ratio_8": update[8]["ratio"]["ours"] if 8 in update else None,
        "generate_ratio_8": generate[8]["ratio"]["ours"] if 8 in generate else None,
        "overhead_share_64": step[64]["overhead_share"] if 64 in step else None,
        # Each against one adapter in the same minute: a busy machine would spoil a comparison of seconds.
        "member_cost_64_over_8": relative(64) / relative(8) if {8, 64} <= update.keys() else None,
        "growth_8_64": growth.get((8, 64)),
        "peak_gib_64": cost[64]["peak_mib"] / 1024 if 64 in cost else None,
        "step_row_ratio": {n: row["seconds_per_row"] / step[1]["seconds_per_row"] for n, row in step.items()}
        if 1 in step
        else None,
        "fit": {"seconds": intercept, "seconds_per_member": slope},
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="name, folder, or a shape")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--json", nargs="?", const=True, metavar="FILE", help="print the promised numbers as one line; all into FILE"
    )
    parser.add_argument("--members", type=int, nargs="*", default=[1, 2, 4, 8, 16, 64])
    parser.add_argument("--step-members", type=int, nargs="*", default=[1, 8, 64], help="for whole steps")
    parser.add_argument("--rivals", type=int, nargs="*", default=[8], help="N at which the others are measured")
    parser.add_argument("--rows", type=int, default=16, help="rows of a micro-batch")
    parser.add_argument("--rows-per-member", type=int, default=1, help="where rows grow with the members")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of a row")
    parser.add_argument("--new-tokens", type=int, default=16, help="tokens drawn per row")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--layers", type=int, help="keep only the first so many layers of the model")
    parser.add_argument("--gradient-checkpointing", action="store_true", help="in updates, as TRL does by default")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--growth", type=int, default=5, help="ratios of the update of the most members to that of 8")
    parser.add_argument("--quick", action="store_true", help="few members, short rows: proves that the script runs")
    args = parser.parse_args()
    if args.quick:
        args.members, args.step_members, args.repeats = [1, 2, 8], [1, 2], 1
        args.tokens, args.new_tokens = 16, 4
    return args


def save(args: argparse.Namespace, result: dict) -> None:
    """Write what there is so far."""
    if isinstance(args.json, str):
        with open(args.json, "w", encoding="utf-8") as file:
            settings = {name: value for name, value in vars(args).items() if name != "json"}
            json.dump({"machine": machine(), "settings": settings} | summary(result) | result, file, indent=1)
            file.write("\n")


def main() -> None:
    args = parse()
    numbers = summary(measure(args))
    print(json.dumps(numbers, indent=None if args.json else 1))


if __name__ == "__main__":
    main()
