"""Output that cannot be written: work goes on, and the exit code says how the work ended."""

import copy
import io
import logging
import os
import pty
import subprocess
import sys

import pytest

from trl_populora.output import SteadyStream, is_first_rank, settle, steady


FULL = OSError(28, "No space left on device")


class Broken(io.StringIO):
    """A stream that cannot be written for a while."""

    error: Exception | None = FULL

    def write(self, text: str) -> int:
        if self.error is not None:
            raise self.error
        return super().write(text)

    def flush(self) -> None:
        if self.error is not None:
            raise self.error


WORK = """
import signal, sys
from trl_populora.output import steady_output
signal.signal(signal.SIGHUP, signal.SIG_IGN)
sys.stdin.readline()
with steady_output():
    for _ in range(3):
        print("a round")
        sys.stdout.flush()
    print("the end")
    with open(sys.argv[1], "w") as file:
        file.write("saved")
sys.exit(3)
"""


@pytest.mark.parametrize("error", [FULL, BrokenPipeError(32, "Broken pipe"), ValueError("I/O on closed file")])
def test_the_first_error_is_told_and_later_text_is_written(error, caplog):
    stream = Broken()
    stream.error = error
    told = steady(stream)
    assert steady(told) is told
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert told.write("lost") == 4
            told.writelines(["lost", "too"])
            told.flush()
    told_once = [f"The output to  is lost from here on: {error}. The work itself continues."]
    assert [record.getMessage() for record in caplog.records] == told_once * isinstance(error, OSError)
    stream.error = None
    told.write("there is space again")
    assert told.getvalue() == "there is space again" and not told.isatty()


def test_a_copy_of_a_stream_writes_to_the_same_place():
    stream = SteadyStream(io.StringIO())
    copied = copy.copy(stream)
    copied.write("text")
    assert stream.getvalue() == "text"


def test_a_stream_that_was_closed_before_the_start():
    stream = SteadyStream(None)
    assert stream.write("gone") == 4
    settle(stream)


def run(tmp_path, stdout, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", WORK, str(tmp_path / "result")]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.parametrize("place", ["full", "pipe", "terminal", "closed"])
def test_work_ends_well_without_its_output(place, tmp_path):
    ours = None
    if place == "full":
        stdout = os.open("/dev/full", os.O_WRONLY)
    elif place == "terminal":
        ours, stdout = pty.openpty()
    else:
        ours, stdout = os.pipe()
    closed = {"preexec_fn": lambda: os.close(1)} if place == "closed" else {}
    process = run(tmp_path, stdout, **closed)
    os.close(stdout)
    if ours is not None:
        os.close(ours)
    _, told = process.communicate("go\n")
    assert (process.returncode, (tmp_path / "result").read_text()) == (3, "saved"), told
    assert told.count("\n") == (place != "closed") and told.startswith("The output to <stdout>" if told else "")


def test_both_streams_on_a_full_disk(tmp_path):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", WORK, str(tmp_path / "result")]
        done = subprocess.run(command, input="go\n", stdout=full, stderr=full, text=True)
    assert (done.returncode, (tmp_path / "result").read_text()) == (3, "saved")


@pytest.mark.parametrize(
    "environment, first",
    [
        ({}, True),
        ({"RANK": "1"}, True),  # of a program that has ended
        ({"RANK": "1", "WORLD_SIZE": "1"}, True),
        ({"RANK": "1", "WORLD_SIZE": "2"}, False),
        ({"RANK": "0", "WORLD_SIZE": "2"}, True),
    ],
)
def test_one_process_writes(environment, first, monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_first_rank() is first
