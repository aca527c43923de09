"""What a round of the tiny base pays for logging: metrics, the record in its folder, and each tracker, all offline.

    python benchmarks/logging_cost.py [--rounds 8] [--json [FILE]]

Plays real rounds of recipes/tiny/4t4s.yaml without probes, evolving and measuring weights every second round, once
without a tracker and once with each. Counts the seconds of the main thread in: summing up and recording a round,
`trainer.log` with all its callbacks, and what TRL logs of its own timings. The first round of each run, with what is
made once, does not count. A tracker's own thread or process works beside the round and is not counted.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable


RECIPE = os.path.join(os.path.dirname(__file__), "..", "recipes", "tiny", "4t4s.yaml")


class Stopwatch:
    """Seconds of calls by name, wall-clock; calls within calls count once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.running = False

    def wrap(self, name: str, call: Callable) -> Callable:
        def timed(*args, **kwargs):
            if self.running:
                return call(*args, **kwargs)
            self.running, start = True, time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
                self.running = False

        return timed


def measure(tracker: str, rounds: int, folder: str) -> dict:
    """One run. Returns the median over rounds, the first aside, of a round's seconds and of what logging took."""
    from transformers import PrinterCallback, TrainerCallback
    from trl.extras.profiling import ProfilingContext

    from trl_populora.integrations.base_models import resolve_base
    from trl_populora.recipe import parse
    from trl_populora.training import PopulationSelfPlayTrainer
    from trl_populora.training.callbacks import RoundCallback

    own = {"output_dir": os.path.join(folder, tracker), "max_steps": rounds, "report_to": tracker}
    own |= {"eval_strategy": "no", "save_strategy": "no", "evolution_interval": 2, "weight_metrics_interval": 2}
    _, args = parse(["--config", RECIPE, *(f"--{name}={value}" for name, value in own.items())])
    args.disable_tqdm = True
    trainer = PopulationSelfPlayTrainer(resolve_base("tiny"), args=args)
    trainer.remove_callback(PrinterCallback)
    watch, seen = Stopwatch(), []
    trainer.log = watch.wrap("log", trainer.log)
    (callback,) = [one for one in trainer.callback_handler.callbacks if isinstance(one, RoundCallback)]
    callback._report = watch.wrap("record", callback._report)
    log_metrics = ProfilingContext._log_metrics
    ProfilingContext._log_metrics = watch.wrap("timings of TRL", log_metrics)

    class Clock(TrainerCallback):
        def on_log(self, args, state, control, **kwargs):
            seen.append((time.perf_counter(), dict(watch.seconds)))

    trainer.add_callback(Clock())
    try:
        trainer.train()
    finally:
        ProfilingContext._log_metrics = log_metrics
    if tracker == "wandb":
        import wandb

        wandb.finish()
    seen = seen[1:rounds]  # a log is still running when the clock sees it, so the first would come with the second
    whole = [after[0] - before[0] for before, after in zip(seen, seen[1:])]
    parts = {
        name: [after[1][name] - before[1].get(name, 0.0) for before, after in zip(seen, seen[1:])]
        for name in seen[-1][1]
    }
    spent = [sum(values) for values in zip(*parts.values())]
    return {
        "round_seconds": statistics.median(whole),
        "logging_seconds": statistics.median(spent),
        "share": sum(spent) / sum(whole),
        "parts": {name: statistics.median(values) for name, values in parts.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--trackers", nargs="+", default=["none", "tensorboard", "trackio", "wandb"])
    parser.add_argument("--json", nargs="?", const="-", help="print the result as JSON, or write it to a file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": folder, "TRACKIO_DIR": folder}
        result = {name: measure(name, options.rounds, folder) for name in options.trackers}
    if options.json == "-":
        print(json.dumps(result, indent=1))
    elif options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    for name, one in result.items():
        parts = ", ".join(f"{part} {1000 * seconds:.1f} ms" for part, seconds in one["parts"].items())
        print(f"{name}: {one['share']:.2%} of a round of {one['round_seconds']:.2f} s ({parts})")


if __name__ == "__main__":
    main()
