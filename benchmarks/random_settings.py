"""Random settings: each run is trained whole, resumed in its middle, and repeated with three workers of the executor.

    OMP_NUM_THREADS=1 python -m benchmarks.random_settings --count 100     # from the root of a clone; 20 s a run
    OMP_NUM_THREADS=1 python -m benchmarks.random_settings --first 7 --count 1

All three must end with the same weights, optimizer, ratings, buffer, lineage, logs and history, bit by bit. The runs
are tiny self-play on a random base. Each of `SETTINGS` is set with a probability of a third; all are drawn again until
the configuration accepts them. Completions are replaced by texts that make tasks and sometimes solve them. What
differs is printed; the last line is JSON. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tests.training.conftest import Altered, build_trainer, make_config
from tests.training.test_resume import files, outcome
from tests.training.victim import plausible


SETTINGS: dict[str, tuple] = {
    "num_teachers": (1, 2, 3, 4),
    "num_students": (1, 2, 3, 4),
    "num_generations": (2, 3, 4),
    "prompts_per_teacher": (1, 2, 3),
    "per_device_train_batch_size": (2, 3, 6, 8, 12),
    "task_types": (["code_o"], ["code_i", "countdown"], ["sql", "code_o"], ["code_f", "code_i", "code_o"]),
    "shared_init": (True,),
    "num_iterations": (2, 3),
    "beta": (0.01, 0.1),
    "balance_rows": (True,),
    "advantage": ("role_task",),
    "teacher_reward": ("learnability", "frontier", "solvable"),
    "solvable_rounds": (1, 2),
    "solvable_attempts": (0, 1, 3),
    "reward_kwargs": ({"sharing": 0.5}, {"invalid": 0.0}, {"malformed": -0.5}),
    "pairing": ("hard", "uniform", "fixed"),
    "evolution_interval": (1, 2, 3),
    "evolution_kwargs": (
        {"fraction": 0.5, "max_age": 2, "mutate_learning_rate": True},
        {"selection": "tournament", "mutate_temperature": True, "min_age": 1},
        {"islands": 2, "migration_interval": 2},
        {"operators": ["svd_structured", "component_masking", "dare"]},
    ),
    "recombination_interval": (1, 2),
    "recombination_roles": ("teachers", "students"),
    "hall_of_fame_probability": (0.3, 1.0),
    "hall_of_fame_size": (2, 3),
    "weight_metrics_interval": (0, 1),
    "learning_rate_spread": (2.0, 8.0),
    "student_learning_rate": (1e-3,),
    "loss_type": ("grpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo"),
    "scale_rewards": ("none",),
    "importance_sampling_level": ("sequence",),
    "mask_truncated_completions": (True,),
    "temperature": (0.7, 1.3),
    "top_p": (0.9,),
    "lr_scheduler_type": ("linear", "cosine", "constant_with_warmup"),
    "warmup_steps": (2,),
    "optim": ("sgd", "adafactor"),
    "max_grad_norm": (1e9, 0.1),
    "weight_decay": (0.1,),
    "gradient_checkpointing": (True,),
    "buffer_capacity": (8, 20),
    "seed_tasks": (0, 1, 30),
    "num_references": (0, 3),
    "max_unsolved_tries": (0, 1, 4),
    "generation_rows": (1, 3),
    "eval_strategy": ("steps",),
    "eval_steps": (1, 2),
    "probe_kwargs": ({"exams": ["held_out[:2]"], "founders": 1},),
    "seed": tuple(range(100)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="number of the first run, which its settings depend on")
    parser.add_argument("--count", type=int, default=20, help="number of runs")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    found = {}
    for number in range(options.first, options.first + options.count):
        settings, differences = play(number)
        print(f"{number}: {'; '.join(differences) or 'equal'}", flush=True)
        if differences:
            found[number] = settings
            print(f"   {json.dumps(settings)}", flush=True)
    print(json.dumps({"runs": options.count, "different": found}))
    return 1 if found else 0


def play(number: int) -> tuple[dict[str, Any], list[str]]:
    """Settings of a run, and what differs when it is resumed or has three workers."""
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet):
        settings = draw(random.Random(number), Path(folder))
        step = settings["save_steps"]
        expected, checkpoint = train(settings, Path(folder, "whole")), Path(folder, f"whole/run/checkpoint-{step}")
        resumed = train(settings, Path(folder, "whole"), noise=0.5, checkpoint=str(checkpoint))
        workers = train(settings | {"executor_kwargs": {"workers": 3}}, Path(folder, "workers"))
    texts = [f"resumed at {step}: {text}" for text in islice(unequal(expected, resumed), 5)]
    return settings, texts + [f"three workers: {text}" for text in islice(unequal(expected, workers), 5)]


def draw(chance: random.Random, folder: Path) -> dict[str, Any]:
    """Settings that are accepted together."""
    while True:
        drawn = {name: chance.choice(values) for name, values in SETTINGS.items() if chance.random() < 1 / 3}
        if "code_f" not in drawn.get("task_types", ["code_f"]):
            drawn["task_kwargs"] = {}
        each = drawn.get("num_iterations", 1)
        drawn |= {"max_steps": 4 * each, "save_strategy": "steps", "save_steps": 2 * each}
        with contextlib.suppress(ValueError):
            make_config(folder, **drawn)
            return drawn


def train(settings: dict[str, Any], folder: Path, *, noise: float = 0.1, checkpoint: str | None = None) -> tuple:
    """Ends of a run: of the trainer, and of its files."""
    trainer: Any = build_trainer(make_config(folder, **settings), noise=noise)
    try:
        trainer.source.sampler = Altered(trainer.source.sampler, plausible)
        trainer.source.self_play.lengths = None  # eight tokens would hold none of the answers that `plausible` writes
        trainer.train(resume_from_checkpoint=checkpoint)
        return outcome(trainer), files(trainer.args.output_dir)
    finally:
        trainer.close()


def unequal(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """Where two states differ, down to the values."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys(), key=str):
            yield from unequal(a.get(key), b.get(key), f"{path}.{key}")
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        for place, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from unequal(x, y, f"{path}[{place}]")
    elif a != b and not (a != a and b != b):  # NaN is NaN
        yield f"{path}: {a!r:.100} and {b!r:.100}"


if __name__ == "__main__":
    sys.exit(main())
