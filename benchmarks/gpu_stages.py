"""The stages of `gpu.py`: what each measures, at its size on a GPU and at toy size on the CPU.

Those about the machine and about an engine are in `gpu_machine.py` and `gpu_engine.py`.
"""

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping

from gpu_engine import canary, engine_step, sync, vllm
from gpu_machine import loss_that_runs, machine
from gpu_report import ROOT, SINGLE, Report, bases, bench
from measuring import peak, reset_peak


def equivalence(report: Report) -> None:
    """Is routing right on this device? Gradients, operators, a resumed run."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when the GPU is first used
    from gpu_equivalence import deterministic, gradients, isolation, operators, resume

    loss_that_runs(report)
    for part in (gradients, operators, deterministic, isolation, resume):
        part(report)


def update(report: Report) -> None:
    """Updates of N members against one adapter with the same rows, and the memory of both; 8 members early."""
    for name in bases(report, "qwen2.5-1.5b-shapes", "qwen2.5-7b-shapes"):
        base = bench(report, name, rows=8, tokens=1024, repeats=3)
        ratios: dict[int, float] = {}
        for members in (1, 8, 4, 16):
            with base.alone():
                alone = peak_of(report, base.one, max(base.args.rows, members))  # before there are other adapters
            population = base.population(members)
            row = base.update(population)
            row["peak_mib"] = {"one": alone, "ours": peak_of(report, base.ours, population, row["rows"])}
            report.detail(f"{name}, {members} members", row)
            seconds = row["seconds"]
            shown = f"{row['ratio']['ours']:.2f} ({seconds['ours']:.2f} s over {seconds['one']:.2f} s)"
            what = f"{name}: update of {members} members over one adapter, {row['rows']} rows of {base.args.tokens}"
            report.number(what, row["ratio"]["ours"], shown=shown, most=1.05 if members == 8 else None)
            ratios[members] = row["ratio"]["ours"]
            if members == 8:
                report.number(f"{name}: the same, 8 members over 1 member", ratios[8] / ratios[1])
            gib = {variant: size / 1024 for variant, size in row["peak_mib"].items()}
            report.number(
                f"{name}: peak memory of {members} members over one, GiB",
                gib["ours"],
                shown=f"{gib['ours']:.1f} over {gib['one']:.1f}",
            )
            del population
            gc.collect()
        del base
        gc.collect()


def peak_of(report: Report, call: Callable, *args) -> float:
    """Peak memory of a call in MiB."""
    reset_peak(report.device)
    call(*args)
    return peak(report.device)


def generation(report: Report) -> None:
    """Tokens per second of the transformers sampler: base, one adapter, eight; rows of one length, then of many."""
    import uneven_rows

    (name,) = bases(report, "qwen2.5-7b-shapes")
    base = bench(report, name, rows=64, tokens=256, new_tokens=64, repeats=3)
    row = base.generate(base.population(8))
    report.detail("equal rows", row)
    rates = row["tokens_per_s"]
    for what, key in (("base", "base"), ("1 adapter", "one"), ("8 adapters", "ours")):
        report.number(f"transformers, {name}: {what}, tokens/s", rates[key], shown=f"{rates[key]:.0f}")
    report.number("transformers: 8 adapters over 1, tokens/s", 1 / row["ratio"]["ours"], least=0.85)
    del base
    gc.collect()
    large = {"rows_per_member": 16, "generation_rows": 64, "tokens": 64, "new_tokens": 64, "repeats": 1}
    small = {"rows_per_member": 2, "generation_rows": 8, "tokens": 16, "new_tokens": 8, "repeats": 1}
    sizes = {"model": name, "device": report.device.type, "rank": 32, "layers": None} | (
        small if report.toy else large
    )
    row = uneven_rows.measured(argparse.Namespace(**sizes))
    report.detail("unequal rows", row)
    report.number("transformers: the same for rows of unequal lengths", 1 / row["ratio"]["members"], least=0.85)


def shared(report: Report) -> None:
    """An update of four groups of 8 rows with `share_prompts`, over one without: prompts of teachers and students."""
    import torch
    from base_shapes import load
    from shared_prompts import ROWS, measured

    for name in bases(report, "qwen2.5-1.5b-shapes", "qwen2.5-7b-shapes"):
        model, tokenizer = load(name, report.device, torch.float32 if report.toy else torch.bfloat16)
        kinds = [kind for kind in ROWS if not report.toy or kind == next(iter(ROWS))]
        rows = measured(model, tokenizer, repeats=1 if report.toy else 3, kinds=kinds)
        report.detail(name, rows)
        for kind, row in rows.items():
            counted = row["operations"][str(model.config.hidden_size)]
            shown = f"{row['ratio']['shared']:.2f} (operations: {counted:.2f})"
            what = f"{name}: update with shared prompts over one without, {kind}"
            report.number(what, row["ratio"]["shared"], shown=shown, most=1.0)
        del model
        gc.collect()


# A whole step --------------------------------------------------------------------------------------------------------


def step(report: Report) -> None:
    """A step of 4T+4S, and of one agent with as many rows and with an eighth of them. Where its time goes."""
    from member_steps import whole_step

    loss_that_runs(report)
    (name,) = bases(report, "qwen2.5-7b-shapes")
    base = bench(report, name, rows=16, tokens=64, new_tokens=64)
    kinds = {"members": (8, 2), "as many": (1, 8), "an eighth": (1, 1)}  # members, and prompts of each teacher
    found: dict[str, list[dict]] = {kind: [] for kind in kinds}

    def over(kind: str) -> None:
        """Said after every turn: what comes later may not end in time."""
        pairs = list(zip(found["members"], found[kind], strict=True))
        ratio, last = statistics.median(a["seconds"] / b["seconds"] for a, b in pairs), pairs[-1][0]
        shown = f"{ratio:.2f} ({last['seconds']:.1f} s, {last['rows']} rows)"
        what = f"{name}: step of 4T+4S over one agent with {SINGLE[kind]}"
        report.number(what, ratio, shown=shown, most=1.15)

    for turn in range(1 if report.toy else 2):
        if turn and time.monotonic() + 1.2 * sum(rows[0]["took"] for rows in found.values()) > report.end:
            break
        for kind, (members, prompts) in kinds.items():
            begin = time.perf_counter()
            sizes = {"generations": 2, "steps": 2} if report.toy else {"generations": 3, "steps": 2, "drawn": 96}
            row = whole_step(base, members, prompts=prompts, **sizes)
            found[kind].append(row | {"took": time.perf_counter() - begin})
            report.detail(kind, found[kind])
            if kind == "members":
                shares(report, name, row)
            else:
                over(kind)
            gc.collect()


def shares(report: Report, name: str, row: dict) -> None:
    """Of a step of 4T+4S: rows that were learned from (fewer if rewards are equal), and what takes its time."""
    shown = f"{row['learned']} of {row['rows']}"
    report.number(f"{name}: rows in the update of 4T+4S", row["learned"] / row["rows"], shown=shown, least=0.9)
    for part, seconds in sorted(row["parts"].items(), key=lambda item: -item[1]):
        share = seconds / row["seconds"]
        report.number(f"{name}: share of the step of 4T+4S, {part}", share, shown=f"{share:.1%}")
    peak, computed = row["peak_mib"] / 1024, row["computed_mib"] / 1024
    shown = f"{peak:.1f}, computed {computed:.1f}"
    report.number(f"{name}: peak memory of a step of 4T+4S, GiB", peak, shown=shown)
    share = row["overhead_share"]
    report.number(f"{name}: share of neither model nor executor", share, shown=f"{share:.1%}")


# Learning ------------------------------------------------------------------------------------------------------------


def learning(report: Report) -> None:
    """SmolLM2-135M where it is here, else the tiny base: rounds until time is up, and what changes over them."""
    from transformers import PrinterCallback, TrainerCallback

    from trl_populora import train
    from trl_populora.diagnostics import RoundSummary
    from trl_populora.integrations.base_models import SMOLLM2, local_folder

    loss_that_runs(report)
    large = "--prompts_per_teacher 3 --num_generations 8 --per_device_train_batch_size 16 --generation_rows 256"
    recipe, options = "smollm2-135m/demo", [*large.split(), "--evolution_interval", "10"]
    try:
        if report.toy:
            raise ValueError("toy size")
        local_folder(SMOLLM2)
    except ValueError as reason:
        report.detail("SmolLM2 is not used", str(reason))
        recipe, options = "tiny/4t4s", ["--eval_strategy", "no", "--save_strategy", "no"]
    if report.toy:
        small = "--num_teachers 1 --num_students 1 --evolution_interval 0 --num_generations 2 --max_steps 2"
        options += f"{small} --per_device_train_batch_size 6 --max_completion_length 16".split()
    else:
        options += ["--max_steps", "100000"]
    on_cpu = str(report.device.type == "cpu").lower()
    run, args = train.parse(
        ["--config", str(ROOT / "recipes" / f"{recipe}.yaml"), *options, "--use_cpu", on_cpu]
        + ["--bf16", "false" if report.toy else "true", "--output_dir", str(report.path.with_suffix(""))]
    )
    os.makedirs(args.output_dir, exist_ok=True)
    rounds: list[RoundSummary] = []
    begin = time.monotonic()

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            each = (time.monotonic() - begin) / max(1, state.global_step)
            control.should_training_stop |= time.monotonic() + 2 * each > report.end

    view, trainer = train.build(run, args)
    trainer.on_round = rounds.append
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Stop())
    try:
        if run.warm_start_steps:
            train.warm_up(run, args, trainer, view)
            report.detail("seconds until the first round", time.monotonic() - begin)
            begin = time.monotonic()
        trainer.train()
    finally:
        trainer.close()
    seconds = time.monotonic() - begin
    report.detail("recipe", recipe)
    report.detail("rounds", [told(summary) for summary in rounds])
    report.number(f"{recipe}: rounds", len(rounds), shown=f"{len(rounds)} in {seconds:.0f} s")
    edge = max(1, len(rounds) // 5)
    for what in ("validity", "solve_rate", "teachers_reward", "students_reward"):
        first, last = (mean([told(one)[what] for one in part]) for part in (rounds[:edge], rounds[-edge:]))
        if first is not None and last is not None:
            report.number(f"{recipe}: {what}, first and last {edge} rounds", last, shown=f"{first:.2f}, {last:.2f}")


def told(summary) -> dict[str, float | None]:
    """Means over the members of a round."""
    teachers = [member for member in summary.members if member.role == "teacher"]
    students = [member for member in summary.members if member.role == "student"]
    return {
        "validity": mean([member.validity for member in teachers]),
        "solve_rate": mean([member.solve_rate for member in students]),
        "teachers_reward": mean([member.reward for member in teachers]),
        "students_reward": mean([member.reward for member in students]),
    }


def mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


STAGES: Mapping[str, Callable[[Report], None]] = {
    one.__name__: one
    for one in (machine, equivalence, update, generation, sync, vllm, step, canary, learning, engine_step, shared)
}
