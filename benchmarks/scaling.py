"""Memory, traffic and time of large bases and many members: the tables of docs/scaling.md.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --members 16 128 --ranks 8 --rows 2 --tokens 8192 --processes 4

Three kinds of numbers, kept apart in the output: counted from the shapes of the bases and measured in a small run
(`base_costs.py`), and arithmetic with those and with the vendor's figures in `HARDWARE`.
"""

import argparse
import json

from base_costs import BASES, BF16, FP32, Base, count, measure, per_layer


# Of an H200, from its data sheet: bytes, bytes/s, dense bfloat16 operations/s, NVLink bytes/s one way; and a network
# card of 400 Gbit/s for each GPU.
HARDWARE = {"memory": 141e9, "bandwidth": 4.8e12, "flops": 989e12, "nvlink": 450e9, "network": 50e9}


# Arithmetic ----------------------------------------------------------------------------------------------------------


def sizes(base: Base, layer: dict[str, float], args: argparse.Namespace) -> dict[str, float]:
    """Bytes on one GPU that do not depend on the members, and seconds at the vendor's figures."""
    tokens = args.rows * args.tokens
    ends = base.parameters - base.layers * base.layer  # embeddings, LM head and last norm stay gathered
    elsewhere = (args.processes - 1) / args.processes * base.parameters * BF16
    return {
        "whole": base.parameters * BF16,
        "share": (base.parameters / args.processes + ends + 2 * base.layer) * BF16,  # this layer and the next
        "activations": (base.layers * layer["kept"] + layer["inside"]) * tokens,
        "kv": base.kv_per_token * args.sample_rows * args.tokens,
        "prefill": (base.kv_per_token + base.passing) * args.sample_rows * args.prompt_tokens,
        "update": tokens * base.layers * layer["update_flops"] / HARDWARE["flops"],
        "gather": elsewhere / HARDWARE["nvlink"],
    }


def memory(base: Base, size: dict[str, float], *, rank: int, members: int, args: argparse.Namespace) -> dict:
    """Bytes on one GPU with the base whole (under DDP) or sharded, and on a machine's host.

    "train" is the backward of a micro-batch just before the optimizer's step, "sample" the pass of the prompts or
    the last token of a batch, whichever takes more.
    """
    one = base.adapter(rank) * FP32
    parts = {"adapters": members * one, "gradients": members * one, "moments": 2 * members * one}
    parts["stacks"] = min(members, args.sample_rows) * base.adapter(rank) * BF16
    state = parts["adapters"] + parts["moments"]
    learn = state + parts["gradients"] + size["activations"]
    draw = state + parts["stacks"] + max(size["kv"], size["prefill"])
    return parts | {
        "complete base, train": size["whole"] + learn + parts["gradients"],  # DDP's buckets
        "complete base, sample": size["whole"] + draw,
        "sharded, train": size["share"] + learn + one,  # the member whose gradient is being averaged
        "sharded, sample": size["share"] + draw,
        "sharded, engine, divided moments": size["share"] + learn + one - parts["moments"] * (1 - 1 / args.processes),
        "host": args.processes * members * one,  # the last good weights of every member, on every process
    }


def times(base: Base, size: dict[str, float], *, rank: int, members: int, args: argparse.Namespace) -> dict:
    """Bytes a step sends, and seconds at the vendor's peak figures: lower bounds, of which a run reaches a part."""
    one, gpus = base.adapter(rank) * FP32, args.processes * args.machines
    ring = 2 * (gpus - 1) / gpus * members * one
    base_and_kv = size["whole"] + size["kv"] / 2  # on average half of the cache is filled
    stacks = {n: min(n, args.sample_rows) * base.adapter(rank) * BF16 for n in (1, members)}
    token = {n: (base_and_kv + stacks[n]) / HARDWARE["bandwidth"] for n in (1, members)}
    return {
        "all-reduce": ring,
        "seconds": ring / HARDWARE["network"],
        "token": token[members],
        "relative to one member": token[members] / token[1],
        "sharded": token[members] + size["gather"],
        "files": members * base.adapter(rank) * BF16,
    }


# Output --------------------------------------------------------------------------------------------------------------


def table(title: str, head: list[str], rows: list[list]) -> None:
    print(f"\n{title}\n\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def gb(size: float) -> str:
    return f"{size / 1e9:,.1f}" if size < 9.995e10 else f"{size / 1e9:,.0f}"


def fitting(size: float) -> str:
    return f"**{gb(size)}**" if size <= 0.9 * HARDWARE["memory"] else gb(size)  # a tenth is left, as by doctor


def report(args: argparse.Namespace) -> dict:
    bases = {name: count(BASES[name]) for name in args.bases}
    layers = {(n, r): per_layer(BASES[n], rank=r, tokens=args.tokens) for n in args.bases for r in args.ranks}
    fixed = {key: sizes(bases[key[0]], layer, args) for key, layer in layers.items()}
    first = {name: (layers[name, args.ranks[0]], fixed[name, args.ranks[0]]) for name in args.bases}
    table(
        "Bases (counted)",
        ["base", "parameters", "one member per unit of rank", *(f"rank {r}" for r in args.ranks), "KV, kB/token"]
        + ["kept per layer and token, kB", "inside a layer, kB"],
        [
            [name, f"{b.parameters:,}", f"{b.adapter(1):,}", *(f"{b.adapter(r):,}" for r in args.ranks)]
            + [f"{b.kv_per_token / 1e3:.1f}", f"{first[name][0]['kept'] / 1e3:.1f}"]
            + [f"{first[name][0]['inside'] / 1e3:.0f}"]
            for name, b in bases.items()
        ],
    )
    table(
        "Sizes without members, GB; seconds at peak figures (arithmetic)",
        [
            "base",
            "complete",
            "sharded",
            "activations",
            "KV cache",
            "pass of the prompts",
            "update of a micro-batch, s",
            "gathering the base once, s",
        ],
        [
            [name, *(gb(size[k]) for k in ("whole", "share", "activations", "kv", "prefill"))]
            + [f"{size['update']:.2f}", f"{size['gather']:.3f}"]
            for name, (_, size) in first.items()
        ],
    )
    table(
        "Operations of an update by those of a forward of the base (counted)",
        ["base", *(f"rank {r}" for r in args.ranks)],
        [
            [n, *(f"{layers[n, r]['update_flops'] / layers[n, r]['forward_flops']:.3f}" for r in args.ranks)]
            for n in bases
        ],
    )
    cells = [(name, rank, members) for name in args.bases for rank in args.ranks for members in args.members]
    spaces = [memory(bases[n], fixed[n, r], rank=r, members=m, args=args) for n, r, m in cells]
    clocks = [times(bases[n], fixed[n, r], rank=r, members=m, args=args) for n, r, m in cells]
    labels = [[name, str(rank), str(members)] for name, rank, members in cells]
    rows = [
        [*label, *(fitting(size) if ", " in name else gb(size) for name, size in space.items())]
        for label, space in zip(labels, spaces, strict=True)
    ]
    table("Memory, GB; bold where it fits one GPU (arithmetic)", ["base", "rank", "members", *spaces[0]], rows)
    rows = [
        [
            *label,
            gb(t["all-reduce"]),
            f"{t['seconds']:.2f}",
            f"{t['token'] * 1e3:.1f}",
            f"{t['relative to one member']:.2f}",
        ]
        + [f"{t['sharded'] * 1e3:.0f}", gb(t["files"])]
        for label, t in zip(labels, clocks, strict=True)
    ]
    head = ["all-reduce, GB", "all-reduce, s", "per token, ms", "relative to one member", "per token, sharded, ms"]
    head.append("files to an engine, GB")
    table("Traffic and time (arithmetic)", ["base", "rank", "members", *head], rows)
    return {"cells": [dict(zip(("base", "rank", "members"), c)) | m | t for c, m, t in zip(cells, spaces, clocks)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bases", nargs="*", default=list(BASES), choices=list(BASES))
    parser.add_argument("--members", type=int, nargs="*", default=[8, 64, 256])
    parser.add_argument("--ranks", type=int, nargs="*", default=[16, 32])
    parser.add_argument("--rows", type=int, default=4, help="rows of a micro-batch on one GPU")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of a row, prompt and completion")
    parser.add_argument("--prompt-tokens", type=int, default=1070, help="tokens of the longest prompt")
    parser.add_argument("--sample-rows", type=int, default=64, help="rows decoded at once on one GPU")
    parser.add_argument("--processes", type=int, default=8, help="GPUs of a machine, over which a base is sharded")
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="write all numbers there too")
    args = parser.parse_args()
    measured = measure()
    rows = [[name, f"{value:,.2f}"] for name, value in measured.items()]
    table("Measured here", ["of 16 members of a small base", "bytes per adapter parameter"], rows)
    result = {"measured": measured} | report(args)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
