"""What rows of unequal length cost a population: sampling beside one adapter, scored tokens, tokens of each process.

    python benchmarks/uneven_rows.py --layers 4 [--json FILE]

Sampling is measured: eight members against one adapter on PEFT's own path, the same prompts and the same number of
tokens for each row. Members' prompts differ in length, and rows end after lengths as uneven as those of a real round,
so that the members of a batch soon have unequal numbers of rows. "cpu_ratio" counts processor time, which other work
on the machine disturbs less.

The rest is counted for the rows of recipes/qwen2.5-coder-7b/4t4s.yaml on 8 processes, with lengths that are drawn: of
prompts about 790 tokens (teachers) and 270 (students), of completions 500 on average and 2,048 at most.
"""

import argparse
import copy
import json
import random

import torch
from base_shapes import load
from measuring import alternate, machine
from member_scaling import cast
from peft import LoraConfig

from trl_populora.generation import TransformersSampler, transformers_sampler
from trl_populora.population import Population
from trl_populora.population.composition import schedule
from trl_populora.training.ranks import equal_shares


MEMBERS, GROUP = 8, 8
END = 5  # a token that ends a row


def completion_lengths(rng: random.Random, rows: int, *, mean: float, most: int) -> list[int]:
    """Log-normal with a standard deviation of 0.9 of the logarithm: some rows are several times the mean."""
    return [max(1, min(most, round(rng.lognormvariate(0.0, 0.9) * mean / 1.5))) for _ in range(rows)]


# Counted -------------------------------------------------------------------------------------------------------------


def counted(*, processes: int = 8, batch: int = 4) -> dict:
    """Tokens that a pass for log-probabilities works on, and learned tokens of each process."""
    rng = random.Random(0)
    members = [m for m in range(4) for _ in range(48)] + [4 + m for m in range(4) for _ in range(384)]
    prompts = [round(rng.gauss(790, 60) if member < 4 else rng.gauss(270, 80)) for member in members]
    completions = completion_lengths(rng, len(members), mean=500, most=2048)
    lengths = [a + b for a, b in zip(prompts, completions, strict=True)]
    sizes = [sum(lengths[start : start + GROUP]) for start in range(0, len(lengths), GROUP)]
    order = [group * GROUP + i for group in equal_shares(sizes, processes) for i in range(GROUP)]
    share, before, after = len(members) // processes, [], []
    for start in range(0, len(members), share):
        own = order[start : start + share]
        before.append(share * (max(prompts[i] for i in own) + max(completions[i] for i in own)))
        chunks = schedule(
            [members[i] for i in own],
            [lengths[i] for i in own],
            roles=["teacher"] * 4 + ["student"] * 4,
            size=batch,
        )
        after.append(
            sum(
                len(rows) * (max(prompts[own[i]] for i in rows) + max(completions[own[i]] for i in rows))
                for rows in chunks
            )
        )
    tokens = {
        name: [sum(lengths[i] for i in rows[start : start + share]) for start in range(0, len(members), share)]
        for name, rows in (("as they come", range(len(members))), ("dealt", order))
    }
    return {
        "tokens_of_rows": sum(lengths),
        "scored_padded_to_the_longest": sum(before),
        "scored_trimmed": sum(after),
        "rows_of_each_process": share,
        "tokens_of_each_process": tokens,
    }


# Measured ------------------------------------------------------------------------------------------------------------


class Ending(transformers_sampler.GumbelMax):
    """Noise as always, and the end of a row where `limits` of its seed says."""

    limits: torch.Tensor

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = super().__call__(input_ids, scores)
        scores[:, END] = -torch.inf
        over = self.limits[self.row_seeds.long()] <= input_ids.shape[1] - self.prompt_length + 1
        scores[:, END].masked_fill_(over, torch.inf)
        return scores


def measured(args: argparse.Namespace) -> dict:
    torch.manual_seed(0)
    device, rng = torch.device(args.device), random.Random(1)
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    model, tokenizer = load(args.model, device, dtype, layers=args.layers)
    one, many = (population(model, members, args.rank) for members in (1, MEMBERS))
    names, rows = list(many), MEMBERS * args.rows_per_member
    owners = [names[i // args.rows_per_member] for i in range(rows)]
    prompts = [
        [rng.randrange(10, 250) for _ in range(args.tokens // 2 + i // args.rows_per_member * args.tokens // MEMBERS)]
        for i in range(rows)
    ]
    limits = completion_lengths(rng, rows, mean=args.new_tokens / 4, most=args.new_tokens)
    Ending.limits = torch.tensor(limits, device=device)
    transformers_sampler.GumbelMax = Ending

    def draw(sampler: TransformersSampler, members: list) -> None:
        drawn = sampler.draw(prompts, members, range(rows))
        assert [len(answer.ids) for answer in drawn] == limits

    samplers = []
    for each in (one, many):
        sampler = TransformersSampler(
            each, tokenizer, max_completion_length=args.new_tokens, batch_size=args.generation_rows
        )
        sampler.eos_ids = [END]
        samplers.append(sampler)

    def alone() -> None:
        one.model.base_model.enable_adapter_layers()
        draw(samplers[0], [None] * rows)
        one.model.base_model.disable_adapter_layers()

    variants = {"one": alone, "members": lambda: draw(samplers[1], owners)}
    with cast(one, dtype):
        alternate(device, variants, 1)  # warm
        return {"rows": rows, "tokens": sum(limits)} | alternate(device, variants, args.repeats)


def population(model: torch.nn.Module, members: int, rank: int) -> Population:
    """Members with LoRA layers of their own on the shared frozen weights."""
    shared = {id(t): t for t in (*model.parameters(), *model.buffers())}
    lora = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    half = max(1, members // 2)
    with model.device:  # where the adapters are drawn, too
        return Population(
            copy.deepcopy(model, shared), lora, num_teachers=half, num_students=half, shared_member=members == 1
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="name, folder, or a shape")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--layers", type=int, help="keep only the first so many layers of the model")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rows-per-member", type=int, default=16)
    parser.add_argument("--generation-rows", type=int, default=64, help="rows decoded at once")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a prompt, about")
    parser.add_argument("--new-tokens", type=int, default=128, help="most tokens drawn for a row")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    result = {"machine": machine(), "counted": counted()}
    print(json.dumps(result["counted"], indent=1), flush=True)
    result["sampling"] = measured(args)
    print(json.dumps(result["sampling"], indent=1))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
