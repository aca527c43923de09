"""How far `populora doctor RECIPE` is off: its seconds of a round, beside those of rounds that are really played.

    python benchmarks/doctor_error.py recipes/tiny/4t4s.yaml --rounds 2 --cpu

With `--cpu` both count CPU seconds of this process, which other work on the machine does not change; what runs in the
sandbox is then not counted by either.
"""

import argparse
import tempfile
import time
from statistics import fmean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="CPU seconds of this process instead of the clock's")
    options, rest = parser.parse_known_args()
    if options.cpu:
        time.perf_counter = time.process_time
    from transformers import AutoTokenizer

    from trl_populora import train
    from trl_populora.cli.needs import counter
    from trl_populora.integrations.base_models import resolve_base
    from trl_populora.training.forecast import phases
    from trl_populora.training.stopwatch import round_seconds

    with tempfile.TemporaryDirectory() as folder:
        own = ["--output_dir", folder, "--eval_strategy", "no", "--save_strategy", "no", "--warm_start_steps", "0"]
        own += ["--max_steps", str(options.rounds), "--evolution_interval", "0"]
        run, args = train.parse(["--config", options.recipe, *own, *rest])
        base = resolve_base(run.model_name_or_path)
        tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
        means, most = round_seconds(base, args, tokenizer, phases(args, counter(tokenizer, args)))
        print("doctor", {name: round(seconds, 1) for name, seconds in means.items()}, flush=True)
        print("limit ", {name: round(seconds, 1) for name, seconds in most.items()}, flush=True)
        played = []
        _, trainer = train.build(run, args)
        trainer.on_round = lambda summary: played.append(summary.seconds)
        trainer.train()
        trainer.close()
    seen = {name: fmean(one.get(name, 0.0) for one in played) for name in played[-1]}
    print("played", {name: round(seconds, 1) for name, seconds in seen.items()})
    seen["programs"] = seen.pop("verify", 0.0) + seen.pop("judge", 0.0)
    for name, seconds in means.items():
        print(f"{name:<9} doctor {seconds:8.2f} s   played {seen[name]:8.2f} s")
    told, whole = sum(means.values()), sum(seen.values())
    print(f"round     doctor {told:8.2f} s   played {whole:8.2f} s   ratio {told / whole:.2f}")


if __name__ == "__main__":
    main()
