"""Limits that the machine sets for every process, as `ulimit` does: they are kept, or told with the way out."""

import subprocess
import sys

import pytest


RUN = """
import resource, sys
from trl_populora.executor import Executor, Job, Limits, SandboxError
name, most, memory_mb = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(getattr(resource, name), (most, most))
try:
    with Executor(1, Limits(memory_mb=memory_mb)) as executor:
        print(executor.run("def f(x): return x", ((1,),)).status)
        print(executor.run_many([Job("def f(x): return x", ((1,),), Limits(memory_mb=4096))])[0].status)
except SandboxError as error:
    print(error)
"""
TOLD = "memory_mb={} is more than a process may have here: the hard limit of its address space is {} MiB."


@pytest.mark.parametrize(
    "name, most, memory_mb, lines",
    [
        ("RLIMIT_NOFILE", 48, 256, ["ok", "ok"]),
        ("RLIMIT_CORE", 0, 256, ["ok", "ok"]),
        ("RLIMIT_AS", 400 << 20, 256, ["ok", TOLD.format(4096, 400)]),  # also of a job with its own limits
        ("RLIMIT_AS", 400 << 20, 512, [TOLD.format(512, 400)]),
    ],
)
def test_a_limit_of_the_machine(name, most, memory_mb, lines):
    command = [sys.executable, "-c", RUN, name, str(most), str(memory_mb)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = done.stdout.splitlines()
    assert len(told) == len(lines) and all(map(str.startswith, told, lines)), (told, done.stderr)
