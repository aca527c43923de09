"""The stages of `gpu.py` about an engine: "sync", which needs none, and those that start vLLM."""

import importlib.util
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from gpu_report import SINGLE, NotRun, Report, bases, bench, versions
from measuring import synchronize


def sync(report: Report) -> None:
    """Our part of a sync, without an engine: cast, move to the host, hash. All of eight members, one, none."""
    from generation import move

    from trl_populora.generation.engines.adapters import AdapterStore

    (name,) = bases(report, "qwen2.5-7b-shapes")
    population = bench(report, name, rows=1, tokens=16).population(8)
    store = AdapterStore(population, dtype=torch.bfloat16, in_memory=True)
    report.detail("bytes of two versions", store.needed)
    seconds: dict[str, list[float]] = {"eight": [], "one": [], "none": []}
    try:
        for _ in range(1 if report.toy else 3):
            for what, changed in (("eight", list(population)), ("one", list(population)[:1]), ("none", [])):
                for member in changed:
                    move(population, member)
                synchronize(report.device)
                begin = time.perf_counter()
                taken = store.take_changed()
                seconds[what].append(time.perf_counter() - begin)
                assert {version.member for version in taken} == set(changed)
    finally:
        store.close()
    report.detail("seconds", seconds)
    for what, values in seconds.items():
        aim = {"most": 0.5} if what == "eight" else {}
        what = f"{name}: our part of a sync, {what} changed of eight adapters, s"
        report.number(what, statistics.median(values), **aim)


def with_vllm(report: Report, model: str):
    """`generation.py`, with its options in `sys.argv`; a folder for the base; `NotRun` without vLLM."""
    if importlib.util.find_spec("vllm") is None:
        raise NotRun(f"vLLM is not installed for {sys.executable} (--vllm-python, docs/gpu.md)")
    import generation as ours

    report.detail("versions", versions())
    if report.toy:
        os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    small = ["--rows", "8", "--repeats", "1", "--rank", "8"]
    sys.argv[1:] = ["--device", report.device.type, "--model", model]
    sys.argv += small if report.toy else ["--enforce-eager", "--repeats", "3"]
    report.path.with_suffix("").mkdir(exist_ok=True)
    return ours


@contextmanager
def base_with_engine(report: Report, model: str) -> Iterator[tuple]:
    """`generation.py`, its settings, a population and a tokenizer, while the base lies where an engine reads it."""
    ours, folder = with_vllm(report, model), report.path.with_suffix("")
    args = ours.parse()
    try:
        yield (ours, args, *ours.make_population(args, str(folder)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def vllm(report: Report) -> None:
    """One engine: the canary, tokens per second, a whole sync, sleep and wake twice."""
    with base_with_engine(report, *bases(report, "qwen2.5-7b-shapes")) as (ours, args, population, tokenizer):
        sampler, seconds = ours.timed(lambda: ours.make_sampler(args, population, tokenizer))
        report.number("vLLM: start with the proof of its adapters, s", seconds)
        try:
            report.detail("model runner", runner(sampler.engine))
            times = ours.sync_times(sampler, args.repeats)
            report.detail("sync", times)
            report.number("vLLM: sync of eight changed adapters, s", times["all"], most=0.5)
            report.number("vLLM: of which the canary, s", times["canary"])
            report.number("vLLM: of which all else, s", times["all without the canary"])
            difference(report, sampler, "vLLM")
            if report.device.type == "cuda":
                sleep_twice(report, sampler)
            rates = ours.generation_rates(args, sampler)
            report.detail("generation", rates)
            for name, rate in list(rates.items())[:3]:
                report.number(f"vLLM: {name}, tokens/s", rate, shown=f"{rate:.0f}")
            report.number("vLLM: 8 adapters over 1, tokens/s", rates["many over one"], least=0.85)
        finally:
            sampler.close()


def runner(engine) -> str:
    """vLLM's model runner, V1 or V2, found as `log_version` has it."""
    return f"V{1 + bool(getattr(engine.llm.llm_engine.vllm_config, 'use_v2_model_runner', False))}"


def difference(report: Report, sampler, where: str) -> None:
    """What the canary saw after the last sync, beside its tolerance, and which adapters the engine has in memory."""
    what = f"{where}: the canary's largest difference, nats"
    report.number(what, max(sampler.liveness.values()), most=sampler.canary.tolerance(None))
    report.detail("canary of the base", sampler.canary.base_error)
    report.detail("the engine repeats its answers", sampler.engine.repeats)
    versions = list(sampler.serving.values())
    held = sampler.engine.held(versions)
    alike = sum(sums == sampler.canary.sums(one.member) for sums, one in zip(held, versions, strict=True))
    report.number(f"{where}: adapters in its memory that are the trainer's, bit for bit", alike / len(held), least=1)


def sleep_twice(report: Report, sampler) -> None:
    """Sleep and wake, with the canary after each. The same seeds must draw the same tokens as often as without sleep.

    Not always: vLLM's kernels for adapters add parts in any order, so rounding differs from call to call.
    """
    names, prompts = list(sampler.population), [list(range(2, 34))] * len(sampler.population)

    def draw():
        return [completion.ids for completion in sampler.draw(prompts, names, range(len(names)))]

    def same(rows):
        """Share of rows as in `rows`, for the one of the two draws before that is nearer."""
        return max(sum(a == b for a, b in zip(one, rows, strict=True)) / len(names) for one in before)

    before = [draw()]
    again = draw()
    usual = same(again)
    report.number("vLLM: rows drawn twice as before, without sleep", usual)
    before.append(again)
    for turn in (1, 2):
        held = torch.cuda.mem_get_info()[0]
        asleep, seconds = timed(sampler.rest)
        freed = (torch.cuda.mem_get_info()[0] - held) / 1e9
        woken, again = timed(sampler.sync)[1], draw()
        shown = f"{seconds:.1f} and {woken:.1f}, {freed:.1f} GB freed"
        report.number(f"vLLM: sleep and wake {turn}, s", seconds + woken, shown=shown)
        report.number(f"vLLM: rows drawn as before after wake {turn}", same(again), least=usual)


def engine_step(report: Report) -> None:
    """Whole steps with vLLM: 4T+4S, and one agent with as many rows and with an eighth of them.

    Each run has a process of its own, which reads the base again and starts an engine.
    """
    (name,) = bases(report, "qwen2.5-1.5b-shapes")
    ours, folder = with_vllm(report, name), report.path.with_suffix("")
    os.environ["TMPDIR"] = str(folder)  # removed by `gpu.py`
    sizes = ["--steps", "2", "--new-tokens", "8"] if report.toy else ["--steps", "4", "--new-tokens", "256"]
    sys.argv += ["--batch", "16", *sizes]
    prompts = 2 if report.toy else 16  # of each teacher: 6 rows each
    seconds = {}
    for kind, (members, each) in {
        "members": (8, prompts),
        "as many": (1, 4 * prompts),
        "an eighth": (1, prompts // 2),
    }.items():
        steps = ours.step_of(members, each)
        report.detail(kind, {"rows": 6 * each * max(1, members // 2), "seconds": steps})
        seconds[kind] = statistics.median(steps[1:])
        if kind != "members":
            ratio = seconds["members"] / seconds[kind]
            shown = f"{ratio:.2f} ({seconds['members']:.1f} s, {24 * prompts} rows)"
            what = f"vLLM, {name}: step of 4T+4S over one agent with {SINGLE[kind]}"
            report.number(what, ratio, shown=shown, most=1.15)


def timed(call: Callable) -> tuple:
    synchronize(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    begin = time.perf_counter()
    return call(), time.perf_counter() - begin


def canary(report: Report) -> None:
    """A small engine in the finest dtype that its adapters can have: the canary passes, and notices old weights."""
    from trl_populora.generation.engines import EngineSampler, VLLMEngine

    dtype = torch.float32 if report.toy else torch.float16
    name = f"vLLM, {str(dtype).removeprefix('torch.')}, small shapes"
    with base_with_engine(report, *bases(report, "small")) as (ours, _, population, tokenizer):
        population.model.float()
        engine = VLLMEngine(max_model_len=512, max_num_seqs=16, gpu_memory_utilization=0.3, enforce_eager=True)
        sampler = EngineSampler(population, tokenizer, engine=engine, dtype=dtype, max_completion_length=8)
        try:
            report.detail("model runner", runner(engine))
            for _ in range(2):
                for member in population:
                    ours.move(population, member)
                sampler.sync()
            difference(report, sampler, name)
            report.number(f"{name}: old weights are noticed after a small step", int(notices(sampler)), least=1)
        finally:
            sampler.close()
    if report.device.type == "cuda":
        why = "on a GPU, adapters of vLLM 0.31.0 are float16 or bfloat16 (lora_shrink_op.py)"
        report.left_out("vLLM, float32: the canary", why)


def notices(sampler) -> bool:
    """Whether a sync fails if vLLM keeps a member's old weights, as it does where a new version has the old id."""
    from trl_populora.generation.engines import LivenessError

    member = next(iter(sampler.population))
    engine, old, request = sampler.engine, sampler.serving[member], sampler.engine.request
    engine.request = lambda version: request(version._replace(id=old.id) if version.member == member else version)
    engine.llm.llm_engine.add_lora = lambda request: True
    with torch.no_grad():
        for B in sampler.population.parameters(member)[1::2]:
            B.mul_(1.01)
    try:
        sampler.sync()
    except LivenessError:
        return True
    return False
