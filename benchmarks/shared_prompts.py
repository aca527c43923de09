"""What `share_prompts` saves in an update: groups of 8 completions with their prompts computed once, and 8 times.

    python benchmarks/shared_prompts.py [--model HuggingFaceTB/SmolLM2-135M-Instruct] [--repeats 3] [--json FILE]

Forward and backward of 32 rows of one member in four groups, in micro-batches of 8 as the trainer arranges them, with
and without, in turn. Lengths of completions are drawn, as uneven as those of a real round. `operations` is counted by
`cost`, with padding, for the base and for the hidden size of a 7B base, without the head, which a GPU computes for
completions only (a CPU also for prompts).
"""

import argparse
import json
import random
import tempfile
from collections.abc import Sequence
from functools import partial

import torch
from base_shapes import load
from measuring import alternate, machine
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from uneven_rows import completion_lengths

from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer
from trl_populora.training.batching import arrange
from trl_populora.training.shared_prompts import cost, packs


GROUP, GROUPS = 8, 4
ROWS = {
    "countdown of SmolLM2": (73, 12),
    "teachers, short completions": (790, 150),
    "teachers of a 7B base": (790, 500),
    "students, short completions": (270, 150),
    "students of a 7B base": (270, 500),
}
"""Tokens of a prompt and of a completion in the mean: those of recipes/qwen2.5-coder-7b/4t4s.yaml are in
uneven_rows.py."""


def rows_of(prompt: int, lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows in groups of one prompt, and their mask."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 250, (len(lengths), prompt + max(lengths)), generator=generator)
    ids[:, :prompt] = ids[::GROUP, :prompt].repeat_interleave(GROUP, 0)
    mask = torch.arange(ids.shape[1]) < prompt + torch.tensor(lengths)[:, None]
    return ids, mask.long()


def batches(prompt: int, lengths: list[int], hidden: int, *, share: bool) -> list[list[int]]:
    """Micro-batches as the trainer arranges them."""
    prompts = [row // GROUP for row in range(len(lengths))] if share else None
    sizes = {"roles": ["student"], "size": GROUP, "prompts": prompts, "hidden": hidden}
    return arrange([0] * len(lengths), [prompt] * len(lengths), lengths, **sizes)


def operations(prompt: int, lengths: list[int], hidden: int) -> float:
    """Operations with shared prompts by those without, of matrices and attention in a layer."""
    plain = sum(
        cost(len(rows), prompt + max(lengths[row] for row in rows), hidden)
        for rows in batches(prompt, lengths, hidden, share=False)
    )
    shared = 0
    for rows in batches(prompt, lengths, hidden, share=True):
        own = [lengths[row] for row in rows]
        width, packed = packs([row // GROUP for row in rows], [prompt] * len(rows), own, hidden=hidden)
        shared += cost(len(packed), width, hidden)
    return shared / plain


def measured(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, repeats: int, kinds: Sequence[str]
) -> dict:
    """Kind of rows -> times of its update with and without shared prompts (`"one"`), and operations by the formula."""
    device, hidden, results = model.device, model.config.hidden_size, {}
    with tempfile.TemporaryDirectory() as folder:
        args = PopulationSelfPlayConfig(
            output_dir=folder, num_teachers=1, num_students=1, num_generations=GROUP, task_types=["countdown"],
            prompt_style="compact", per_device_train_batch_size=GROUP, share_prompts=True, evolution_interval=0,
            use_cpu=device.type == "cpu", bf16=device.type == "cuda", gradient_checkpointing=True,
            save_strategy="no", report_to="none",
        )  # fmt: skip
        trainer = PopulationSelfPlayTrainer(model, args=args, processing_class=tokenizer)
        trainer.model.train()
        trainer.row_members = ["student_0"] * GROUP

        def update(ids: torch.Tensor, mask: torch.Tensor, keep: int, parts: list[list[int]], *, share: bool) -> None:
            trainer.args.share_prompts = share
            for part in parts:
                logps, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, ids[part], mask[part], keep)
                (logps * mask[part, -keep:]).sum().backward()
            trainer.model.zero_grad()

        for kind in kinds:
            prompt, completion = ROWS[kind]
            lengths = completion_lengths(random.Random(0), GROUPS * GROUP, mean=completion, most=4 * completion)
            given = *(part.to(device) for part in rows_of(prompt, lengths)), max(lengths)
            variants = {
                name: partial(update, *given, batches(prompt, lengths, hidden, share=share), share=share)
                for name, share in (("one", False), ("shared", True))
            }
            for call in variants.values():  # the first to run would pay for new pages
                call()
            results[kind] = {
                "prompt": prompt,
                "completions": lengths,
                "operations": {str(h): round(operations(prompt, lengths, h), 3) for h in (hidden, 3584)},
            } | alternate(device, variants, repeats)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    parser.add_argument("--layers", type=int, help="only the first so many")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), metavar="KIND", help="kinds of rows")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model, tokenizer = load(options.model, device, dtype, layers=options.layers)
    rows = measured(model, tokenizer, repeats=options.repeats, kinds=options.only)
    record = {"machine": machine(), "model": options.model, "layers": options.layers, "rows": rows}
    print(json.dumps(record, indent=1))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
