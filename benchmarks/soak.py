"""A long run on the tiny base: do memory, step time and files stay bounded?

    python benchmarks/soak.py [--rounds 500] [--json [FILE]]

Plays real rounds (proposals, executor, replacement every ten rounds, a checkpoint every fifty) and reports resident
memory and CPU seconds of a round early and late, the sizes of what the run leaves, and what it should not have left.
Memory is after a garbage collection and without free heap, in MiB: of this process, and of the executor's, which start
a second set of fork servers when a program first keeps the first ones waiting, and never more.
"""

import argparse
import ctypes
import gc
import json
import os
import statistics
import tempfile
import time

import psutil


WARM = 50  # rounds after which nothing should grow
DECLARED = {
    "README.md", "history.jsonl", "lineage.jsonl", "rounds", "run.json", "population.json", "self_play.json", "runs",
    "training_args.bin", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
}  # fmt: skip


def soak(rounds: int, folder: str, *, capacity: int = 64) -> dict:
    """Runs that many rounds and says what grew.

    Returns:
        `dict`: `memory_growth` and `step_time_growth` (late / early, 1 is flat), `memory_mib` and `executor_mib` every
        ten rounds, `undeclared` files, `largest_file_mb`, `checkpoint_mb`, and the fullness of the buffers.
    """
    from transformers import PrinterCallback

    from trl_populora.integrations.base_models import resolve_base
    from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer

    memory, clocks = [], []

    def on_round(summary):
        clocks.append(time.process_time())
        if (summary.round + 1) % 10 == 0:
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)  # what is free is not counted: the heap's holes are no leak
            memory.append((summary.round + 1, *resident_mib()))

    args = PopulationSelfPlayConfig(
        output_dir=folder, num_teachers=2, num_students=2, num_generations=2, per_device_train_batch_size=12,
        max_completion_length=64, prompt_style="compact", num_references=1, seed_tasks=32,
        task_kwargs={"code_f": {"num_inputs": 4}}, buffer_capacity=capacity, lora_r=4, lora_alpha=8, max_steps=rounds,
        learning_rate=1e-4, evolution_interval=10, save_steps=50, save_total_limit=2, logging_steps=1,
        report_to="none", disable_tqdm=True, use_cpu=True, bf16=False, executor_kwargs={"workers": 1},
    )  # fmt: skip
    trainer = PopulationSelfPlayTrainer(resolve_base("tiny"), args=args, on_round=on_round)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_model()
    trainer.create_model_card()
    steps = [after - before for before, after in zip(clocks, clocks[1:])]
    early = [mib for number, mib, _ in memory if WARM <= number < WARM + 50]
    late = [mib for number, mib, _ in memory if number > rounds - 50]
    names = set(os.listdir(folder))
    members = set(trainer.population)
    undeclared = {n for n in names - DECLARED - members if not n.startswith("checkpoint-")}
    checkpoint = os.path.join(folder, f"checkpoint-{rounds - rounds % 50}")
    return {
        "rounds": rounds,
        "memory_growth": statistics.median(late) / statistics.median(early),
        "trainer_growth": trainer_growth([(number, mib) for number, mib, _ in memory]),
        "memory_mib": [round(mib) for _, mib, _ in memory],
        "executor_mib": [round(mib) for *_, mib in memory],
        "step_time_growth": statistics.median(steps[-50:]) / statistics.median(steps[WARM : WARM + 50]),
        "cpu_seconds_per_round": statistics.median(steps),
        "undeclared": sorted(undeclared),
        "checkpoints": sorted(n for n in names if n.startswith("checkpoint-")),
        "largest_file_mb": max(sizes(folder)) / 1e6,
        "history_mb": os.path.getsize(os.path.join(folder, "history.jsonl")) / 1e6,
        "rounds_mb": sum(sizes(os.path.join(folder, "rounds"))) / 1e6,
        "checkpoint_mb": sum(sizes(checkpoint)) / 1e6,
        "trainer_state_mb": os.path.getsize(os.path.join(checkpoint, "trainer_state.json")) / 1e6,
        "buffers": {name: len(trainer.source.buffer.tasks(name)) for name in args.task_types},
        "newest_task_step": max(task.step for kind in args.task_types for task in trainer.source.buffer.tasks(kind)),
        "replacements": len(trainer.lineage),
        "capacity": capacity,
    }


def trainer_growth(memory: list[tuple[int, float]]) -> float:
    """The trainer's memory in its worst fifty rounds, relative to the first fifty after the warm ones. Unlike the
    growth from early to late, it shows a step that is undone before the end.

    Args:
        memory (`list[tuple[int, float]]`): Numbers of rounds, every tenth, and MiB after them.
    """
    warm = [mib for number, mib in memory if number >= WARM]
    medians = [statistics.median(warm[i : i + 5]) for i in range(len(warm) - 4)]
    return max(medians) / medians[0]


def resident_mib() -> tuple[float, float]:
    own = psutil.Process()
    children = sum(process.memory_info().rss for process in own.children(recursive=True))
    return own.memory_info().rss / 2**20, children / 2**20


def sizes(folder: str) -> list[int]:
    return [os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names]


def main() -> None:
    from measuring import machine

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--json", nargs="?", const="-", help="print the result as JSON, or write it to a file")
    options = parser.parse_args()
    if options.rounds < 2 * WARM + 50:
        parser.error(f"--rounds {options.rounds}: at least {2 * WARM + 50}, or there is no early and late")
    with tempfile.TemporaryDirectory() as folder:
        result = {"machine": machine()} | soak(options.rounds, folder)
    if options.json == "-":
        print(json.dumps(result, indent=1))
    elif options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    for name, value in result.items():
        if options.json != "-" and not name.endswith("_mib"):
            print(f"{name:22} {value:.4g}" if isinstance(value, float) else f"{name:22} {value}")


if __name__ == "__main__":
    main()
