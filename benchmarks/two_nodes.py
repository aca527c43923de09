"""Bytes that a step sends between two machines: two network namespaces of this one, and the counters of their link.

    sudo python benchmarks/two_nodes.py --json benchmarks/results/two_nodes.json

Each namespace has one process of the same run, and its own end of a link with limited bandwidth. The run is repeated
with several ranks of LoRA. So what is proportional to the adapters (the all-reduce, docs/scaling.md) is told from the
rest: the completions and results that the processes exchange, and the headers of the network.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import TrainerCallback

from trl_populora.quiet import filter_messages


ROOT = Path(__file__).resolve().parent.parent
LINK, PORT = "nodes", 29517
PROCESSES = 2
RUN = {
    "model_name_or_path": "tiny", "num_teachers": 2, "num_students": 2, "prompts_per_teacher": 1, "num_generations": 2,
    "per_device_train_batch_size": 3, "max_completion_length": 16, "seed_tasks": 8, "num_references": 1,
    "evolution_interval": 0, "warm_start_steps": 0, "save_strategy": "no", "eval_strategy": "no", "plots": False,
    "use_cpu": True, "bf16": False,
}  # fmt: skip


class Counter(TrainerCallback):
    """Bytes that this process has sent, at the end of each step."""

    def __init__(self):
        self.sent = []

    def on_step_end(self, args, state, control, **kwargs):
        self.sent.append(sent())


def sent() -> int:
    """Bytes that this namespace has sent over its link, with the headers of the network."""
    with open("/proc/net/dev", encoding="utf-8") as file:
        return next(int(line.split()[9]) for line in file if line.split()[0] == f"{LINK}:")


def work(folder: str, ranks: list[int], steps: int) -> None:
    """One process of the runs; leaves `sent_<process>.json`."""
    from trl_populora.train import build, parse

    filter_messages()
    found = []
    for rank in ranks:
        place = {"output_dir": os.path.join(folder, f"run_{rank}"), "max_steps": steps}
        settings = RUN | place | {"lora_r": rank, "lora_alpha": rank}
        recipe = ROOT / "recipes" / "tiny" / "4t4s.yaml"
        run, args = parse(["--config", str(recipe), *(f"--{name}={value}" for name, value in settings.items())])
        _, trainer = build(run, args)
        counter = Counter()
        trainer.add_callback(counter)
        trainer.train()
        parameters = sum(p.numel() for name in trainer.population for p in trainer.population.parameters(name))
        found.append({"rank": rank, "adapter_parameters": parameters, "sent": counter.sent})
        trainer.close()
    with open(os.path.join(folder, f"sent_{trainer.ranks.index}.json"), "w", encoding="utf-8") as file:
        json.dump(found, file)
    trainer.accelerator.end_training()


def ip(*words: object) -> None:
    subprocess.run(["ip", *map(str, words)], check=True)


def lay(spaces: list[str], megabits: float) -> None:
    """Two namespaces with a link between them, which sends at most so many megabits per second in each direction."""
    for space in spaces:
        ip("netns", "add", space)
    ip("link", "add", "name", LINK, "netns", spaces[0], "type", "veth", "peer", "name", LINK, "netns", spaces[1])
    for number, space in enumerate(spaces):
        ip("-n", space, "address", "add", f"10.77.0.{number + 1}/24", "dev", LINK)
        ip("-n", space, "link", "set", LINK, "up")
        ip("-n", space, "link", "set", "lo", "up")
        limit = f"rate {megabits}mbit burst 256kb latency 100ms".split()
        subprocess.run(["tc", "-n", space, "qdisc", "add", "dev", LINK, "root", "tbf", *limit], check=True)


def measure(spaces: list[str], *, ranks: list[int], steps: int) -> list[dict]:
    """Mean bytes that each process sends in a step, after the first, which has the start of the run in it."""
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for number, space in enumerate(spaces):
            place = {"RANK": number, "WORLD_SIZE": PROCESSES, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
            place |= {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": PORT, "GLOO_SOCKET_IFNAME": LINK}
            words = ["ip", "netns", "exec", space, sys.executable, __file__, "--work", folder]
            words += ["--steps", str(steps), "--ranks", *map(str, ranks)]
            environment = os.environ | {name: str(value) for name, value in place.items()}
            processes.append(subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL))
        try:
            if any(process.wait() for process in processes):
                sys.exit("A process failed; its message is above.")
        finally:
            for process in processes:
                process.kill()
        found = [json.loads(Path(folder, f"sent_{number}.json").read_text()) for number in range(PROCESSES)]
    return [
        {
            "rank": one["rank"],
            "adapter_parameters": one["adapter_parameters"],
            "sent_per_step": [(sent[-1] - sent[0]) / (steps - 1) for sent in (one["sent"], other["sent"])],
            "formula": 2 * (PROCESSES - 1) / PROCESSES * 4 * one["adapter_parameters"],
        }
        for one, other in zip(*found, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64], help="of LoRA, at least two, one run each")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--megabits", type=float, default=100.0, help="per second, in each direction")
    parser.add_argument("--json", help="where to write the result")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work, args.ranks, args.steps)
        return
    if os.geteuid():
        sys.exit("Network namespaces need root.")
    spaces = [f"populora-{os.getpid()}-{number}" for number in range(PROCESSES)]
    try:
        lay(spaces, args.megabits)
        runs = measure(spaces, ranks=args.ranks, steps=args.steps)
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "delete", space], check=False, stderr=subprocess.DEVNULL)
    first, last = runs[0], runs[-1]
    more = last["adapter_parameters"] - first["adapter_parameters"]
    result = {"megabits": args.megabits, "steps": args.steps, "runs": runs}
    result["bytes_per_adapter_parameter"] = [
        (b - a) / more for a, b in zip(first["sent_per_step"], last["sent_per_step"], strict=True)
    ]
    text = json.dumps(result, indent=1)
    sys.stdout.write(text + "\n")
    if args.json:
        Path(args.json).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
