"""Tokens per second of the vLLM sampler with no, one and eight adapters, and what bringing new weights costs.

    python benchmarks/generation.py [--json] [--device cpu|cuda] [--model tiny|qwen2.5-7b-shapes|PATH]

Everything is measured in one run with one engine: warm, without the prefix cache, the same prompts and the same number
of tokens (rows never end early), adapters that all do something. The engine holds all members in one batch.

The last part are whole steps of the trainer with that engine, each in a process of its own: one agent, and all
members, with as many rows in all. Rows end where they end there, and the second and later steps count.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch


def main() -> None:
    args = parse()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    if args.device == "cpu":
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    folder = tempfile.mkdtemp(prefix="populora-benchmark-")
    try:
        result = {"steps": step_seconds(args, folder)} if args.steps_of else measure(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not args.steps_of:
        result["whole step"] = whole_steps(args)
    print(json.dumps(result, indent=None if args.steps_of else 1) if args.json else table(result))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--rows", type=int, default=64, help="prompts in a call; a multiple of the members")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--enforce-eager", action="store_true", help="no CUDA graphs and no compilation")
    parser.add_argument("--steps", type=int, default=3, help="optimizer steps of each whole-step run")
    parser.add_argument("--batch", type=int, default=4, help="most rows of a micro-batch in a whole step")
    parser.add_argument("--files", action="store_true", help="files instead of memory, except in whole steps")
    parser.add_argument("--steps-of", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rows % args.members:
        parser.error(f"--rows {args.rows} must be a multiple of --members {args.members}")
    return args


def measure(args: argparse.Namespace, folder: str) -> dict:
    population, tokenizer = make_population(args, folder)
    sampler, start = timed(lambda: make_sampler(args, population, tokenizer))
    try:
        return {
            "settings": {**vars(args), "torch": torch.__version__, "vllm": vllm_version()},
            "start_seconds": start,
            "sync": sync_times(sampler, args.repeats),
            "generation": generation_rates(args, sampler),
        }
    finally:
        sampler.close()


def make_population(args: argparse.Namespace, folder: str):
    """Population on a base that also lies in a folder, where the engine reads it."""
    from peft import LoraConfig

    from trl_populora.population import Population

    model, tokenizer = save_base(args, folder)
    lora = LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules="all-linear")
    teachers = max(1, args.members // 2)
    with torch.device(args.device):  # where the adapters are drawn, too
        population = Population(model, lora, num_teachers=teachers, num_students=max(1, args.members - teachers))
    for name in population:
        move(population, name)
    return population, tokenizer


def save_base(args: argparse.Namespace, folder: str):
    """The base and its tokenizer; one of random weights is saved, because the engine reads it from a folder."""
    from base_shapes import SHAPES, load
    from transformers import LlamaConfig

    # vLLM's attention on the CPU has no heads smaller than 32.
    SHAPES["tiny"] = LlamaConfig(**{**SHAPES["tiny"].to_diff_dict(), "head_dim": 32})
    device, dtype = torch.device(args.device), torch.float32 if args.device == "cpu" else torch.bfloat16
    model, tokenizer = load(args.model, device, dtype)
    if args.model in SHAPES:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        model.config.name_or_path = tokenizer.name_or_path = folder
        model.name_or_path = folder
    return model, tokenizer


@torch.no_grad()
def move(population, name: str) -> None:
    """New weights for one member, of the size that training gives."""
    for B in population.parameters(name)[1::2]:
        B.normal_(std=1e-3)


def make_sampler(args: argparse.Namespace, population, tokenizer):
    from trl_populora.generation.engines import EngineSampler, VLLMEngine

    class Endless(EngineSampler):
        """Rows never end early."""

        @property
        def sampling(self):
            return super().sampling | {"ignore_eos": True, "stop_token_ids": [], "stop": []}

    engine = VLLMEngine(
        max_model_len=max(512, args.prompt_tokens + args.new_tokens),
        max_num_seqs=args.rows,
        gpu_memory_utilization=0.6,
        enable_prefix_caching=False,
        enforce_eager=args.enforce_eager or args.device == "cpu",
        enable_sleep_mode=args.device == "cuda",
    )
    engine.in_memory = engine.in_memory and not args.files
    return Endless(population, tokenizer, engine=engine, max_completion_length=args.new_tokens, temperature=1.0)


def sync_times(sampler, repeats: int) -> dict[str, dict[str, float]]:
    """Seconds of a sync of all members, of one and of none; of the first, the parts of the canary and of all else."""
    names, seconds = list(sampler.population), {"all": [], "one": [], "none": []}
    canary, moved, check = {what: [] for what in seconds}, [], sampler.canary.check_members
    what = "none"  # changed now

    def check_members(*versions):
        seen, spent = timed(lambda: check(*versions))
        canary[what].append(spent)
        return seen

    sampler.canary.check_members = check_members
    sampler.sync()  # warm
    for _ in range(repeats):
        for what, changed in (("all", names), ("one", names[:1]), ("none", [])):
            for name in changed:
                move(sampler.population, name)
            seconds[what].append(timed(sampler.sync)[1])
            if what == "all":
                moved.append(seconds[what][-1] - canary[what][-1])
    return {
        **{what: statistics.median(values) for what, values in seconds.items()},
        "canary": statistics.median(canary["all"]),
        "all without the canary": statistics.median(moved),
    }


def generation_rates(args: argparse.Namespace, sampler) -> dict[str, float]:
    """Tokens per second of the same rows answered by the base, by one member and by all; medians, alternating."""
    names = list(sampler.population)
    generator = torch.Generator().manual_seed(0)
    size = len(sampler.tokenizer)
    prompts = torch.randint(2, size, (args.rows, args.prompt_tokens), generator=generator).tolist()
    variants = {
        "base": [None] * args.rows,
        "1 adapter": names[:1] * args.rows,
        f"{len(names)} adapters": [names[i % len(names)] for i in range(args.rows)],
    }
    spent = {name: [] for name in variants}
    for repeat in range(args.repeats + 1):
        for variant, members in variants.items():
            seeds = [repeat * args.rows + i for i in range(args.rows)]
            drawn, seconds = timed(lambda members=members, seeds=seeds: sampler.draw(prompts, members, seeds))
            assert sum(len(completion.ids) for completion in drawn) == args.rows * args.new_tokens
            spent[variant].append(seconds)
    rates = {
        name: args.rows * args.new_tokens / statistics.median(values[1:]) for name, values in spent.items()
    }  # the first of each is warm-up
    _, one, many = rates
    return {**rates, "many over one": rates[many] / rates[one], "one over base": rates[one] / rates["base"]}


def whole_steps(args: argparse.Namespace) -> dict[str, float]:
    """Seconds of a step of all members and of the single agent, and their ratio."""
    seconds = {}
    for members, prompts in ((1, max(1, args.members // 2)), (args.members, 1)):
        seconds[members] = statistics.median(step_of(members, prompts)[1:])
    return {
        "1 agent": seconds[1],
        f"{args.members} members": seconds[args.members],
        "members over agent": seconds[args.members] / seconds[1],
    }


def step_of(members: int, prompts: int) -> list[float]:
    """Seconds of each step of so many members with so many prompts per teacher, in a process of its own."""
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--json"]
    command += ["--steps-of", str(members), str(prompts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"The run of {members} member(s) failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])["steps"]


def step_seconds(args: argparse.Namespace, folder: str) -> list[float]:
    """Wall-clock of each step of a trainer that samples from vLLM: a round, the update, new weights in the engine."""
    from base_shapes import SHAPES
    from member_steps import Steps, varied
    from peft import LoraConfig
    from transformers import AutoTokenizer, PrinterCallback

    from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer

    save_base(args, folder)
    base = folder if args.model in SHAPES else args.model
    members, prompts = args.steps_of
    teachers = max(1, members // 2)
    rows = 6 * teachers * prompts
    config = PopulationSelfPlayConfig(
        output_dir=os.path.join(folder, "run"),
        num_teachers=teachers,
        num_students=teachers,
        shared_member=members == 1,
        prompts_per_teacher=prompts,
        num_generations=2,
        per_device_train_batch_size=max(size for size in range(1, args.batch + 1) if rows % size == 0),
        max_completion_length=args.new_tokens,
        prompt_style="compact",
        num_references=1,
        seed_tasks=8,
        evolution_interval=0,
        max_steps=args.steps,
        learning_rate=1e-5,
        use_cpu=args.device == "cpu",
        bf16=args.device == "cuda",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_vllm=True,
        vllm_max_model_length=2048,
        vllm_gpu_memory_utilization=0.4,
        vllm_engine_kwargs={"enforce_eager": True} if args.enforce_eager else None,
        model_init_kwargs={"dtype": "float32" if args.device == "cpu" else "bfloat16"},
    )
    trainer = PopulationSelfPlayTrainer(
        base,
        varied,
        config,
        processing_class=AutoTokenizer.from_pretrained(base),
        peft_config=LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules="all-linear"),
    )
    steps = Steps({})
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(steps)
    try:
        trainer.train()
    finally:
        trainer.close()
    return [seconds for seconds, _ in steps.steps]


def timed(call):
    synchronize()
    begin = time.perf_counter()
    result = call()
    synchronize()
    return result, time.perf_counter() - begin


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def vllm_version() -> str:
    import vllm

    return vllm.__version__


def table(result: dict) -> str:
    lines = [f"{result['settings']['model']} on {result['settings']['device']}, vllm {result['settings']['vllm']}"]
    lines += [f"{'start':>28} {result['start_seconds']:10.2f} s"]
    lines += [f"{'sync, ' + name:>28} {seconds:10.3f} s" for name, seconds in result["sync"].items()]
    lines += [f"{'step, ' + name:>28} {value:10.3f}" for name, value in result["whole step"].items()]
    for name, value in result["generation"].items():
        lines.append(f"{name:>28} {value:10.2f}{'' if 'over' in name else ' tokens/s'}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
