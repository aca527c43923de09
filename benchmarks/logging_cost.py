"""What a round of the tiny base pays for logging: metrics, the record in its folder, and each tracker, all offline.

    python benchmarks/logging_cost.py [--rounds 8] [--json [FILE]]

Plays real rounds of recipes/tiny/4t4s.yaml without probes, evolving and measuring weights every second round, once
without a tracker and once with each. Counts wall-clock and processor time of the main thread in: summing up a round,
recording it, `trainer.log` with all its callbacks, and what TRL logs of its own timings. The first round of each run,
with what is made once, does not count. A tracker's own thread or process works beside the round and is not counted.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable

import numpy as np


RECIPE = os.path.join(os.path.dirname(__file__), "..", "recipes", "tiny", "4t4s.yaml")


class Stopwatch:
    """Seconds of calls by name, wall-clock and processor time of this thread; calls within calls count once."""

    def __init__(self) -> None:
        self.seconds: dict[str, np.ndarray] = {}
        self.running = False

    @staticmethod
    def now() -> np.ndarray:
        return np.array([time.perf_counter(), time.thread_time()])

    def wrap(self, name: str, call: Callable) -> Callable:
        def timed(*args, **kwargs):
            if self.running:
                return call(*args, **kwargs)
            self.running, start = True, self.now()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + self.now() - start
                self.running = False

        return timed


def measure(tracker: str, rounds: int, folder: str, **more) -> dict:
    """One run. Returns means over its rounds: seconds of a round, and of what logging took."""
    from transformers import PrinterCallback, TrainerCallback
    from trl.extras.profiling import ProfilingContext

    from trl_populora.integrations.base_models import resolve_base
    from trl_populora.recipe import parse
    from trl_populora.training import PopulationSelfPlayTrainer
    from trl_populora.training.callbacks import RoundCallback

    own = {"output_dir": os.path.join(folder, tracker), "max_steps": rounds, "report_to": tracker}
    own |= {"eval_strategy": "no", "save_strategy": "no", "evolution_interval": 2, "weight_metrics_interval": 2}
    own |= {name: value for name, value in more.items() if value is not None}
    _, args = parse(["--config", RECIPE, *(f"--{name}={value}" for name, value in own.items())])
    args.disable_tqdm = True
    trainer = PopulationSelfPlayTrainer(resolve_base("tiny"), args=args)
    trainer.remove_callback(PrinterCallback)
    watch, seen = Stopwatch(), []
    trainer.log = watch.wrap("log", trainer.log)
    (callback,) = [one for one in trainer.callback_handler.callbacks if isinstance(one, RoundCallback)]
    callback._report = watch.wrap("record", callback._report)
    trainer.source.summary = watch.wrap("summary", trainer.source.summary)
    log_metrics = ProfilingContext._log_metrics
    ProfilingContext._log_metrics = watch.wrap("timings of TRL", log_metrics)

    class Clock(TrainerCallback):
        def on_log(self, args, state, control, **kwargs):
            seen.append((watch.now(), dict(watch.seconds)))

    trainer.add_callback(Clock())
    try:
        trainer.train()
    finally:
        ProfilingContext._log_metrics = log_metrics
    if tracker == "wandb":
        import wandb

        wandb.finish()
    seen = seen[1:rounds]  # a log is still running when the clock sees it, so the first would come with the second
    whole = seen[-1][0] - seen[0][0]
    parts = {name: seconds - seen[0][1].get(name, 0.0) for name, seconds in seen[-1][1].items()}
    count = len(seen) - 1
    return {
        "round_seconds": whole[0] / count,
        "round_cpu_seconds": whole[1] / count,
        "share": sum(parts.values())[0] / whole[0],
        "cpu_share": sum(parts.values())[1] / whole[1],
        "parts_seconds": {name: seconds[0] / count for name, seconds in parts.items()},
        "parts_cpu_seconds": {name: seconds[1] / count for name, seconds in parts.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--max_completion_length", type=int, help="fewer tokens make rounds quick on a busy machine")
    parser.add_argument("--trackers", nargs="+", default=["none", "tensorboard", "trackio", "wandb"])
    parser.add_argument("--json", nargs="?", const="-", help="print the result as JSON, or write it to a file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": folder, "TRACKIO_DIR": folder}
        own = {"max_completion_length": options.max_completion_length}
        result = {name: measure(name, options.rounds, folder, **own) for name in options.trackers}
    if options.json == "-":
        print(json.dumps(result, indent=1))
    elif options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    for name, one in result.items():
        parts = ", ".join(f"{part} {1000 * seconds:.1f} ms" for part, seconds in one["parts_cpu_seconds"].items())
        print(
            f"{name}: {one['share']:.2%} of {one['round_seconds']:.2f} s, "
            f"{one['cpu_share']:.2%} of {one['round_cpu_seconds']:.2f} s of the processor ({parts})"
        )


if __name__ == "__main__":
    main()
