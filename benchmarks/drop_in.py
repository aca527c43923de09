"""What it costs to use `PopulationSelfPlayTrainer` where `GRPOTrainer` stands: a plain run, and the import.

The model is tiny, so that a step is little but Python, and what our overrides add to it is as large a share as it can
be. Both classes make the same run in turn, in one process, and the order changes from turn to turn; the seed is the
same, so both draw the same tokens and compute the same numbers. `overhead_ratio` is the median over the turns of our
wall-clock by GRPOTrainer's within the turn, with an interval of 95 % from the order statistics (no distribution
assumed). GRPOTrainer by itself, measured in the same turns, is `null_ratio`: how far from 1 the ratio of equals comes
here. The same of processor time, which other processes disturb less, has `cpu_` in front.

    python benchmarks/drop_in.py --threads 1 --turns 60 --json benchmarks/results/drop_in.json
"""

import argparse
import contextlib
import gc
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import scipy.stats
import torch
import transformers
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from trl_populora import PopulationSelfPlayTrainer


LIMIT = 1.02
IMPORTS = {
    "trl_populora": "import trl_populora",
    "trl.GRPOTrainer": "from trl import GRPOTrainer",
    "trl_populora.PopulationSelfPlayTrainer": "from trl_populora import PopulationSelfPlayTrainer",
}


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    names = ["<pad>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


def tiny_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    shape = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    config = LlamaConfig(vocab_size=258, **shape, eos_token_id=1, pad_token_id=0, bos_token_id=None)
    return LlamaForCausalLM(config)


def reward(completions, **kwargs) -> list[float]:
    return [len(set(completion)) / 8 for completion in completions]


def plain_run(trainer_class: type, folder: str, *, steps: int, new_tokens: int) -> tuple[tuple[float, float], list]:
    """Seconds (wall-clock, processor) of one run, from the constructor to the last step, and its gradient norms.

    A step is whole: sampling, two micro-batches, the reference model, clipping, the optimizer, logging.
    """
    args = GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_generations=2,
        max_completion_length=new_tokens,
        max_steps=steps,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    model, tokenizer = tiny_model(), tiny_tokenizer()
    dataset = Dataset.from_dict({"prompt": [f"prompt {i}" for i in range(8)]})
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    trainer = trainer_class(model, reward, args, dataset, processing_class=tokenizer)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    return seconds, [log.get("grad_norm") for log in trainer.state.log_history]


def alternate(turns: int, **run) -> dict[str, list[tuple[float, float]]]:
    """Seconds of both classes, and of GRPOTrainer once more, in each turn; each comes first in a third of the turns.

    Raises:
        RuntimeError: If two of the runs differ in a gradient norm: then their times say nothing.
    """
    order = [("theirs", GRPOTrainer), ("ours", PopulationSelfPlayTrainer), ("again", GRPOTrainer)]
    seconds, curves = {name: [] for name, _ in order}, set()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        for turn in range(-1, turns):  # the first warms up
            shift = turn % len(order)
            for name, trainer_class in order[shift:] + order[:shift]:
                spent, curve = plain_run(trainer_class, folder, **run)
                curves.add(str(curve))
                if turn >= 0:
                    seconds[name].append(spent)
    if len(curves) != 1:
        raise RuntimeError("the runs compared are not the same run: their gradient norms differ")
    return seconds


def median_interval(values: list[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Median and its distribution-free interval: the order statistics that bracket it with at least `confidence`."""
    ranked, n = sorted(values), len(values)
    below = int(scipy.stats.binom.ppf((1 - confidence) / 2, n, 0.5))
    return statistics.median(ranked), ranked[max(0, below - 1)], ranked[min(n - 1, n - below)]


def import_seconds(repeats: int) -> dict[str, float]:
    """Seconds of fresh interpreters for each import, less those of an empty one; medians, measured in turn."""
    statements = {"nothing": "pass"} | IMPORTS
    spent = {name: [] for name in statements}
    for _ in range(repeats):
        for name, statement in statements.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True, stderr=subprocess.DEVNULL)
            spent[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values) for name, values in spent.items()}
    return {name: round(medians[name] - medians["nothing"], 3) for name in IMPORTS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps of a run")
    parser.add_argument("--new-tokens", type=int, default=4, help="longest completion: more of them hide Python")
    parser.add_argument("--imports", type=int, default=5, help="repeats of each import; 0 leaves them out")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--json", nargs="?", const=True, metavar="FILE", help="print JSON as the last line; into FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")

    seconds = alternate(arguments.turns, steps=arguments.steps, new_tokens=arguments.new_tokens)
    result = {"turns": arguments.turns, "steps": arguments.steps}
    result["seconds"] = {name: round(statistics.median(wall for wall, _ in turn), 4) for name, turn in seconds.items()}
    measured = {"overhead": ("ours", 0), "null": ("again", 0), "cpu_overhead": ("ours", 1), "cpu_null": ("again", 1)}
    for key, (name, clock) in measured.items():
        ratios = [a[clock] / b[clock] for a, b in zip(seconds[name], seconds["theirs"], strict=True)]
        median, low, high = (round(value, 4) for value in median_interval(ratios))
        result |= {f"{key}_ratio": median, f"{key}_interval": [low, high]}
        print(f"{key:12} {median:.4f}  [{low:.4f}, {high:.4f}]", flush=True)
    result |= {"limit": LIMIT, "within_limit": result["overhead_ratio"] <= LIMIT}
    if arguments.imports:
        result["import_seconds"] = import_seconds(arguments.imports)
        for name, spent in result["import_seconds"].items():
            print(f"import of {name}: {spent:.2f} s")
    if arguments.json:
        print(json.dumps(result))
    if isinstance(arguments.json, str):
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    return 0 if result["within_limit"] else 1


if __name__ == "__main__":
    sys.exit(main())
