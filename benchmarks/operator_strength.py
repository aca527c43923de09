"""How far children lie from their parents: |child| / |first parent| and cosines of dW, for every operator.

    python benchmarks/operator_strength.py [--json [FILE]]

Adapters of rank 16 on all linear layers of the tiny base are trained on right answers to induction tasks (AdamW,
constant learning rate). *Siblings* are two copies of one trained ancestor, trained on apart for a tenth of its steps;
*cousins* for as many steps as the ancestor had; *strangers* are two founders whose A were drawn apart, each trained
from the start on other tasks of the same families; *one A* are founders that share A (`shared_init`), trained the same
way. Means over `--seeds` draws of the operator. `loss` is the loss of the first draw on 32 held-out answers
minus the first parent's, in nats a token.

With `--warmup K ...` it also trains a child of every operator (of cousins) on from empty Adam moments, with linear
warm-ups of so many steps, and prints its held-out loss minus that of a clone trained without warm-up.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

from trl_populora.evolution import OPERATORS, breed, cosine, delta_norm
from trl_populora.integrations.base_models import resolve_base
from trl_populora.integrations.lightning import causal_lm_loss, collate, encode
from trl_populora.integrations.lightning.seed_examples import SeedExamples
from trl_populora.population import Factor, Factors, Population
from trl_populora.tasks import make_task_types


FAMILIES = "add each keep total extreme reverse cut branch order count join repeat pick".split()
VARIANTS = [(name, {}) for name in OPERATORS] + [
    ("neftune", {"alpha_n": 10.0}),
    ("dare", {"space": "factors"}),
    ("dare", {"p": 0.3}),
    ("average", {"space": "factors"}),
    ("extrapolative", {"space": "factors"}),
]


class Bench:
    """One adapter at a time on the tiny base: training, and loss on held-out answers."""

    def __init__(self, rows: int, learning_rate: float):
        path = resolve_base("tiny")
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.rows, self.learning_rate = rows, learning_rate
        self.population = self._founders(path, shared_init=False)
        self.sharing = self._founders(path, shared_init=True)
        self.types = make_task_types(style="compact", num_references=1, kwargs={"code_f": {"num_inputs": 4}})
        self.exam = self.batch(random.Random("exam"), 32)

    def founder(self, index: int, *, shared_init: bool = False) -> Factors:
        return copied((self.sharing if shared_init else self.population).factors(f"student_{index}"))

    def train(self, factors: Factors, steps: int, seed: str, *, warmup: int = 0, after=lambda step: None) -> Factors:
        """Trains a copy from empty Adam moments; `after` is called with every step."""
        self.population.write("student_0", factors)
        parameters, rng = self.population.parameters("student_0"), random.Random(seed)
        optimizer = torch.optim.AdamW(parameters, lr=self.learning_rate, weight_decay=0.0)
        for step in range(1, steps + 1):
            optimizer.param_groups[0]["lr"] = self.learning_rate * min(1, step / (warmup + 1))
            self.loss(self.batch(rng, self.rows)).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            after(step)
        return copied(self.population.factors("student_0"))

    def exam_loss(self, factors: Factors | None = None) -> float:
        if factors is not None:
            self.population.write("student_0", factors)
        with torch.no_grad():
            return float(self.loss(self.exam))

    def batch(self, rng: random.Random, rows: int) -> dict:
        examples = SeedExamples({"code_f": self.types["code_f"]}, rng=rng, families=FAMILIES)
        drawn = encode(self.tokenizer, [examples.solve("code_f") for _ in range(rows)])
        return collate(drawn, self.tokenizer.pad_token_id)

    def loss(self, batch: dict) -> torch.Tensor:
        with self.population.route(["student_0"] * len(batch["labels"])):
            sums, tokens = causal_lm_loss(self.population.model, batch)
        return sums.sum() / tokens.sum()

    def _founders(self, path: str, *, shared_init: bool) -> Population:
        config = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", lora_dropout=0.0)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        return Population(model, config, num_teachers=1, num_students=2, seed=0, shared_init=shared_init)


def copied(factors: Factors) -> Factors:
    return {path: Factor(A.clone(), B.clone(), scaling) for path, (A, B, scaling) in factors.items()}


def make_pairs(bench: Bench, steps: int) -> dict[str, list[Factors]]:
    ancestor = bench.train(bench.founder(0), steps, "ancestor")
    pairs = {
        "siblings": [bench.train(ancestor, steps // 10, f"sibling {i}") for i in (0, 1)],
        "cousins": [bench.train(ancestor, steps, f"cousin {i}") for i in (0, 1)],
        "strangers": [bench.train(bench.founder(i), steps, f"stranger {i}") for i in (0, 1)],
        "one A": [bench.train(bench.founder(i, shared_init=True), steps, f"stranger {i}") for i in (0, 1)],
    }
    for name, (first, second) in pairs.items():
        between = (
            f"cosine {cosine(first, second):.2f}, |second| / |first| {delta_norm(second) / delta_norm(first):.2f}"
        )
        print(f"{name}: {between}, loss {bench.exam_loss(first):.4f} and {bench.exam_loss(second):.4f}", flush=True)
    return pairs


def strength(bench: Bench, operator: str, parameters: dict, parents: Sequence[Factors], seeds: int) -> dict:
    """Means over seeds of what the table shows."""
    first, second = parents
    draws, loss = [], 0.0
    for seed in range(seeds):
        child = breed(operator, parents[: OPERATORS[operator].num_parents], seed=seed, parameters=parameters)
        draws.append((delta_norm(child) / delta_norm(first), cosine(child, first), cosine(child, second)))
        if seed == 0:
            loss = bench.exam_loss(child) - bench.exam_loss(first)
    names = ("norm", "cosine_first", "cosine_second")
    means = {name: round(sum(column) / seeds, 4) for name, column in zip(names, zip(*draws))}
    return means | {"loss": round(loss, 4)}


def warm_ups(bench: Bench, parents: Sequence[Factors], warmups: Sequence[int], steps: int) -> dict:
    """Held-out loss after some steps, minus that of a clone without warm-up, for each operator and warm-up."""
    exams = sorted({max(1, steps // 4), steps})
    losses = {}
    for operator in OPERATORS:
        for warmup in warmups:
            child = breed(operator, parents[: OPERATORS[operator].num_parents], seed=0)
            seen = {}

            def examine(step, seen=seen):
                if step in exams:
                    seen[step] = bench.exam_loss()

            bench.train(child, steps, "child", warmup=warmup, after=examine)
            losses[operator, warmup] = seen
    clone = losses["clone", warmups[0]]
    print(f"\n{'operator':20} {'warm-up':>7}" + "".join(f"{f'step {step}':>10}" for step in exams))
    for (operator, warmup), seen in losses.items():
        print(f"{operator:20} {warmup:7}" + "".join(f"{seen[step] - clone[step]:+10.4f}" for step in exams))
    return {
        f"{operator} {warmup}": {str(step): round(loss - clone[step], 5) for step, loss in seen.items()}
        for (operator, warmup), seen in losses.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, help="of the ancestor")
    parser.add_argument("--rows", type=int, default=8, help="per step")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--warmup", type=int, nargs="+", metavar="K", help="also test warm-ups of children, 0 first")
    parser.add_argument("--json", nargs="?", const=True, metavar="FILE", help="print JSON as the last line; into FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    began = time.process_time()
    bench = Bench(arguments.rows, arguments.learning_rate)
    pairs = make_pairs(bench, arguments.steps)
    print(f"\n{'':34}" + "".join(f"{name:>30}" for name in pairs))
    print(f"{'operator':34}" + f"{'norm':>9}{'cos 1':>7}{'cos 2':>7}{'loss':>7}" * len(pairs))
    results = {}
    for operator, parameters in VARIANTS:
        label = " ".join([operator, *(f"{name}={value}" for name, value in parameters.items())])
        rows = {name: strength(bench, operator, parameters, pair, arguments.seeds) for name, pair in pairs.items()}
        results[label] = rows
        cells = (
            f"{row['norm']:9.2f}{row['cosine_first']:7.2f}{row['cosine_second']:7.2f}{row['loss']:+7.3f}"
            for row in rows.values()
        )
        print(f"{label:34}" + "".join(cells), flush=True)
    data = {"operators": results}
    if arguments.warmup:
        data["warmup"] = warm_ups(bench, pairs["cousins"], arguments.warmup, arguments.steps // 2)
    print(f"\n{time.process_time() - began:.0f} s of processor time")
    if arguments.json:
        print(json.dumps(data))
    if isinstance(arguments.json, str):
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
