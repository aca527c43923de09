"""Programs stay confined in odd places: in a container, as another user, without room for files, among much noise."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import suite

import trl_populora
from trl_populora.executor import Executor, Job, Limits, Status

HERE = Path(__file__).parent
ROOT = Path(trl_populora.__file__).parents[1]
ENDLESS = Job("def f(): \n while True: pass", ((),), Limits(30, 30))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes its user or its mounts")


def interpreter(uid):
    """One that this user may run: that of the tests may lie in the home folder of another user."""
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        code = "import sys; sys.exit(sys.version_info < (3, 11))"
        try:
            if subprocess.run([python, "-c", code], user=uid, group=uid, extra_groups=[], cwd="/").returncode == 0:
                return python
        except OSError:
            continue
    pytest.skip(f"no Python from 3.11 on that uid {uid} could run")


def elsewhere(*places, python=sys.executable, **arguments):
    environment = {"PYTHONPATH": f"{ROOT}:{HERE}", "PYTHONDONTWRITEBYTECODE": "1", "HOSTILE_SECRET": "of the caller"}
    script = [python, str(HERE / "elsewhere.py"), *places]
    process = subprocess.run(script, env=environment, capture_output=True, text=True, cwd="/", **arguments)
    assert process.returncode == 0, process.stderr
    seen = json.loads(process.stdout)
    assert seen["wrong"] == {} and seen["normal"] == seen["cases"] >= 90
    return seen


@pytest.fixture(scope="module")
def full():
    with Executor(1) as executor:
        return executor.isolation


@pytest.mark.slow
@needs_root
def test_root_in_docker(full):
    assert elsewhere("docker")["level"] == ("L2" if full == "L3" else "L1")


@needs_root
@pytest.mark.slow
def test_a_plain_user_in_docker(full):
    seen = elsewhere("user:65534", "no-new-privileges", "docker", python=interpreter(65534))
    assert (seen["level"], seen["uid"]) == ("L2" if full == "L3" else "L1", 65534)


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("uid", [65534, 54321], ids=["nobody", "no passwd entry"])
def test_a_plain_user(uid):
    seen = elsewhere(f"user:{uid}", python=interpreter(uid))
    assert seen["level"] in ("L1", "L2", "L3") and seen["uid"] == uid


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("place", ["full-tmp", "read-only-tmp"])
def test_nowhere_to_write(place, full):
    assert elsewhere(place)["level"] == full


def test_a_machine_without_a_table_of_calls(tmp_path, monkeypatch):
    from trl_populora.executor import server

    for file in Path(server.ZYGOTE).parent.glob("*.py"):
        text = file.read_text()
        if file.name == "zygote.py":
            assert "os.uname().machine" in text
            text = text.replace("os.uname().machine", "'riscv64'")
        (tmp_path / file.name).write_text(text)
    monkeypatch.setattr(server, "ZYGOTE", str(tmp_path / "zygote.py"))
    with pytest.raises(RuntimeError, match="no working seccomp filter.*riscv64"):
        Executor(1).run("def f(): return 1", ((),))


def running(executor):
    """The children that run a program now, which are the last in the chains below the servers."""
    found = []
    for pid in executor.pids:
        below = suite.descendants(pid)
        parents = [int(Path(f"/proc/{p}/stat").read_text().rsplit(") ", 1)[1].split()[1]) for p in below]
        found += [child for child in below if child not in parents]
    return found


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@pytest.mark.slow
@needs_root
def test_what_a_child_holds(monkeypatch):
    """Seen from outside: one descriptor, and nothing of the caller's environment."""
    monkeypatch.setenv("HOSTILE_SECRET", "of the caller")
    leak = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leak, True)
    with Executor(1) as executor:
        executor.run("def f(): return 1", ((),))
        idle = {pid for server in executor.pids for pid in suite.descendants(server)}
        thread = threading.Thread(target=lambda: executor.run_many([Job(ENDLESS.program, ((),), Limits(1.0, 2.0))]))
        thread.start()
        seen = []

        def look():
            for pid in {pid for server in executor.pids for pid in suite.descendants(server)} - idle:
                try:
                    environment = Path(f"/proc/{pid}/environ").read_bytes()
                    descriptors = sorted(os.listdir(f"/proc/{pid}/fd"))
                    filtered = "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                if filtered:  # from here on it runs the program
                    seen.append((environment, descriptors))
            return bool(seen)

        assert wait_until(look, 10.0)
        thread.join()
        server_descriptors = [
            [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()] for pid in executor.pids
        ]
    os.close(leak)
    environment, descriptors = seen[0]
    assert descriptors == ["3"]
    assert b"SECRET" not in environment and b"HOME" not in environment
    for names in server_descriptors:  # the watcher keeps the end of a pipe, too, and some libffi its own file
        assert len([name for name in names if "libffi" not in name]) <= 5


def test_everything_ends_with_the_caller():
    code = """
from trl_populora.executor import Executor, Job, Limits
executor = Executor(2)
executor.run_many([Job("def f(): return 1", ((),))] * 2)
print("ready", flush=True)
executor.run_many([Job("while True: pass", (), Limits(60, 60)) for _ in range(8)])
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)})
    with process.stdout:
        process.stdout.readline()

        def busy():
            return [pid for pid in suite.descendants(process.pid) if cpu_ticks(pid) > 3]

        assert wait_until(lambda: len(busy()) >= 2, 20.0)
        below = suite.descendants(process.pid)
        process.kill()
        process.wait()
        assert wait_until(lambda: not any(map(alive, below)), 1.0)


def cpu_ticks(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[11])
    except OSError:
        return 0


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


@pytest.mark.slow
def test_a_long_mixture():
    """Normal jobs among hostile ones, in any order: none of them wrong, and each with the same verdict every time."""
    rng = random.Random(0)
    cases = [case for category in suite.CATEGORIES.values() for case in category.values()]
    quick = [case for case in cases if not case[1] & {"cpu_timeout", "wall_timeout"}]
    jobs = []
    for _ in range(600):
        number = rng.randrange(1000)
        jobs.append((Job(f"def f(x): return [x + {number}, 'a' * {number % 7}]", ((number,),)), number))
        if rng.random() < 0.4:
            jobs.append((suite.job(*rng.choice(quick), "CANARY = '/etc/hostname'; PORT = 9\n"), None))
        if rng.random() < 0.02:
            jobs.append((Job(ENDLESS.program, ((),), Limits(0.05, 2.0)), None))
    with Executor(2, suite.LIMITS, modules=suite.MODULES_HERE) as executor:
        executions = executor.run_many([job for job, _ in jobs])
        assert executor.counts[Status.INFRA_ERROR] == 0
    wrong = [
        (number, execution)
        for (_, number), execution in zip(jobs, executions, strict=True)
        if number is not None
        and (execution.status is not Status.OK or execution.values[0].value != [2 * number, "a" * (number % 7)])
    ]
    assert wrong == []
