"""What a round of the tiny base pays for logging: metrics, the record in its folder, and each tracker, all offline.

    python benchmarks/logging_cost.py [--rounds 8] [--json [FILE]]

Plays real rounds of recipes/tiny/4t4s.yaml without probes, evolving and measuring weights every second round, and
reports them to TensorBoard, trackio and wandb at once. Counts wall-clock and processor time of the main thread, each
part without the parts within it. The first round, with what is made once, does not count. A tracker's own thread or
process works beside the round and is not counted.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable

import numpy as np


RECIPE = os.path.join(os.path.dirname(__file__), "..", "recipes", "tiny", "4t4s.yaml")
TRACKERS = {"TensorBoardCallback": "tensorboard", "TrackioCallback": "trackio", "WandbCallback": "wandb"}


class Stopwatch:
    """Seconds of calls by name, each without calls within it: wall-clock, and processor time of this thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, np.ndarray] = {}
        self.inner = [np.zeros(2)]

    @staticmethod
    def now() -> np.ndarray:
        return np.array([time.perf_counter(), time.thread_time()])

    def wrap(self, name: str, call: Callable) -> Callable:
        def timed(*args, **kwargs):
            self.inner.append(np.zeros(2))
            start = self.now()
            try:
                return call(*args, **kwargs)
            finally:
                spent = self.now() - start
                self.seconds[name] = self.seconds.get(name, 0.0) + spent - self.inner.pop()
                self.inner[-1] += spent

        return timed


def measure(folder: str, rounds: int, **settings) -> dict:
    """One run. Returns means over its rounds: seconds of a round and of each part, wall-clock and of the processor."""
    from transformers import PrinterCallback, TrainerCallback
    from trl.extras.profiling import ProfilingContext

    from trl_populora.integrations.base_models import resolve_base
    from trl_populora.recipe import parse
    from trl_populora.training import PopulationSelfPlayTrainer
    from trl_populora.training.callbacks import RoundCallback
    from trl_populora.training.trackers import Service, TensorBoard

    own = {"output_dir": os.path.join(folder, "run"), "max_steps": rounds, "eval_strategy": "no"}
    own |= {"save_strategy": "no", "evolution_interval": 2, "weight_metrics_interval": 2} | settings
    _, args = parse(["--config", RECIPE, *(f"--{name}={value}" for name, value in own.items() if value is not None)])
    args.disable_tqdm, args.report_to = True, list(TRACKERS.values())
    trainer = PopulationSelfPlayTrainer(resolve_base("tiny"), args=args)
    trainer.remove_callback(PrinterCallback)
    watch, seen = Stopwatch(), []
    for callback in trainer.callback_handler.callbacks:
        if type(callback).__name__ in TRACKERS:
            callback.on_log = watch.wrap(TRACKERS[type(callback).__name__], callback.on_log)
        if isinstance(callback, RoundCallback):
            callback._report = watch.wrap("record", callback._report)
    trainer.log = watch.wrap("log", trainer.log)
    trainer.source.summary = watch.wrap("summary", trainer.source.summary)
    ProfilingContext._log_metrics = watch.wrap("timings that TRL sends", ProfilingContext._log_metrics)
    for kind in (TensorBoard, Service):

        def show(tracker, *args, call=kind.show, **kwargs):
            watch.wrap(TRACKERS[type(tracker.callback).__name__], call)(tracker, *args, **kwargs)

        kind.show = show

    class Clock(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            seen.append((watch.now(), dict(watch.seconds)))

        def on_train_end(self, args, state, control, **kwargs):
            seen.append((watch.now(), dict(watch.seconds)))

    trainer.add_callback(Clock())
    trainer.train()
    (began, before), (ended, after) = seen[1], seen[-1]
    parts = {name: (after[name] - before.get(name, 0.0)) / (rounds - 1) for name in after}
    wall, cpu = (ended - began) / (rounds - 1)
    return {
        "rounds": rounds - 1,
        "seconds": wall,
        "cpu_seconds": cpu,
        "parts": {name: {"seconds": one[0], "cpu_seconds": one[1]} for name, one in parts.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--max_completion_length", type=int, help="fewer tokens make rounds quick on a busy machine")
    parser.add_argument("--json", nargs="?", const="-", help="print the result as JSON, or write it to a file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": folder, "TRACKIO_DIR": folder}
        result = measure(folder, options.rounds, max_completion_length=options.max_completion_length)
    if options.json == "-":
        print(json.dumps(result, indent=1))
        return
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    print(f"a round: {result['seconds']:.2f} s, {result['cpu_seconds']:.2f} s of the processor")
    for name, one in result["parts"].items():
        print(f"{name}: {1000 * one['seconds']:.1f} ms, {1000 * one['cpu_seconds']:.1f} ms of the processor")


if __name__ == "__main__":
    main()
