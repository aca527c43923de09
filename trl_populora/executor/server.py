"""The caller's side of one fork server: starts it, sends it jobs, and collects the reports.

What arrives here is neither evaluated nor unpickled. `verdict.py` interprets it.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from .records import SandboxError


_DESCRIPTORS = struct.Struct("ii")
REPORT = struct.Struct("<idq")  # wait status, CPU seconds, peak memory: what `zygote.py` sends for each child
ZYGOTE = str(Path(__file__).with_name("zygote.py"))
OURS = str(Path(__file__).resolve().parents[2])  # the folder that holds this package
START_SECONDS = 60.0  # what a job imports may be large, and the machine busy
GRACE_SECONDS = 2.0  # beyond a job's wall limit, which the child's own timer enforces
JOBS_PER_LIFE = 50_000
_QUIET_MS = 5  # in which most children end


class ServerLost(Exception):
    """The fork server has ended, or cannot be started. The job can be run again on a new one."""


class End(NamedTuple):
    """How one child ended, and its report.

    Args:
        data (`bytes`):
            Everything that it wrote, up to a little more than the limit.
        flooded (`bool`):
            Whether it wrote more than the limit.
        overdue (`bool`):
            Whether it exceeded its wall-clock limit, so that its server was killed.
        status (`int`):
            Wait status from the kernel.
        seconds (`float`):
            CPU seconds.
        peak_memory (`int`):
            Bytes.
    """

    data: bytes
    flooded: bool = False
    overdue: bool = False
    status: int = 0
    seconds: float = 0.0
    peak_memory: int = 0


class Server:
    """One fork server.

    Attributes:
        held (`list[str]`):
            Names of the measures, as in `levels.ADVICE`, that its self-test found working.

    Args:
        settings (`dict`):
            Settings of `zygote.py`: `hash_seed`, `modules`, `third_party` (whether they may come from the caller's
            `sys.path`), `recursion_limit`, `memory_share`, `heap`, `gc_threshold`, `ballast`, `accept_unsafe` and
            `without` (measures to leave out, for `benchmarks/executor.py`).
    """

    def __init__(self, settings: dict) -> None:
        self.settings = settings
        self.held: list[str] = []
        self.jobs = 0
        self._process: subprocess.Popen | None = None
        self._control: socket.socket | None = None

    @property
    def alive(self) -> bool:
        """Whether a server process was started and, as far as is known, still runs."""
        return self._control is not None

    @property
    def pid(self) -> int | None:
        """Id of the server process, while it is `alive`."""
        process = self._process  # which another thread may end
        return process.pid if process is not None and self.alive else None

    def start(self) -> None:
        """Starts the process. Raises `SandboxError` if it cannot work on this machine, `ServerLost` if it failed."""
        try:
            self.held = self._launch()
        except OSError as error:
            self.close()
            raise ServerLost(f"no fork server could be started: {error}") from None
        except BaseException:
            self.close()
            raise
        self.jobs = 0

    def _launch(self) -> list[str]:
        # Symbols are bound at the start, and not again in each child.
        environment = {"PYTHONHASHSEED": str(self.settings["hash_seed"]), "LD_BIND_NOW": "1"}
        if "LD_LIBRARY_PATH" in os.environ:  # some interpreters do not start without it
            environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        flags = ["-s", "-S", "-P", "-X", "utf8", "-W", "ignore"]
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            theirs.setblocking(True)  # whatever default the caller has set for its own sockets
            self._process = subprocess.Popen(
                [sys.executable, *flags, ZYGOTE],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        self._control.settimeout(START_SECONDS)
        # Our own package, too, which an editable install finds in another way.
        path = [os.path.abspath(folder) for folder in (*sys.path, OURS)] if self.settings["third_party"] else []
        settings = self.settings | {"client": os.getpid(), "path": path}
        self._control.send(marshal.dumps(settings), socket.MSG_NOSIGNAL)
        answer = self._control.recv(1 << 16)
        if not answer:
            raise ServerLost("the fork server ended while it started")
        word, _, text = answer.decode("utf-8", "replace").partition(" ")
        if word == "missing":
            raise SandboxError(
                f"Modules that programs may import are missing: {text}. Install it where {sys.executable} finds it, "
                "or leave it out of `modules`."
            )
        if word == "refused":
            raise SandboxError(f"Programs cannot be confined here: {text}.")
        if word != "ready":
            raise ServerLost(f"the fork server failed to start: {text}")
        return text.split()

    def execute(self, payload: bytes, wall_seconds: float, max_bytes: int) -> End:
        """
        Runs one job.

        Args:
            payload (`bytes`):
                The job in the format of `child.run`.
            wall_seconds (`float`):
                Its wall-clock limit.
            max_bytes (`int`):
                Maximum bytes of its report.

        Returns:
            `End`: How the child ended, and its report.

        Raises:
            `ServerLost`: if the server died.
        """
        if self.jobs >= JOBS_PER_LIFE:
            self.close()
        if not self.alive:
            self.start()
        assert self._control is not None
        self.jobs += 1
        try:
            channel = _submit(self._control, payload)
            try:
                deadline = time.monotonic() + wall_seconds + GRACE_SECONDS
                return self._collect(self._control, channel, deadline, max_bytes)
            finally:
                os.close(channel)
        except OSError as error:
            self.close()
            raise ServerLost(str(error)) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the process and its children."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)  # closing is not enough: a fork of the caller holds it too
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(timeout=0.2)  # it ends by itself, unless it waits for a child
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _collect(self, control: socket.socket, channel: int, deadline: float, max_bytes: int) -> End:
        # Most children end before their output fills the pipe: waiting for the end alone saves a wake-up per frame.
        poll = select.poll()
        poll.register(control, select.POLLIN)
        data = bytearray()
        if not poll.poll(_QUIET_MS):
            poll.register(channel, select.POLLIN)
            while not (events := poll.poll(50)) or events[0][0] == channel:
                if time.monotonic() > deadline:
                    self.interrupt()
                    self.close()
                    return End(bytes(data), overdue=True)
                if events and len(data) <= max_bytes and (chunk := _read(channel)) != b"":
                    data += chunk or b""
                elif events:
                    poll.unregister(channel)
                    _discard(channel)
        report = control.recv(REPORT.size)
        if not report:
            raise ServerLost("the fork server ended during a job")
        # The child is gone: what is left in the pipe is all there will be. Its other end may still be open, in a
        # process that the caller forked meanwhile, so do not wait for the end of the stream.
        while len(data) <= max_bytes and (chunk := _read(channel)):
            data += chunk
        return End(bytes(data), len(data) > max_bytes, False, *REPORT.unpack(report))

    def interrupt(self) -> None:
        """Kills the process. May be called from another thread. Then `execute` raises `ServerLost`."""
        process = self._process
        if process is not None:
            process.kill()


def _read(channel: int) -> bytes | None:
    """What is in a pipe: no bytes at its end, and `None` if it is empty for now.

    It can be so although `poll` says that it is not: in older kernels (6.1, not 6.18), a write from a bad address
    leaves a page without bytes.
    """
    try:
        return os.read(channel, 1 << 16)
    except BlockingIOError:
        return None


def _discard(channel: int) -> None:
    """Stops reading from a pipe. Then the next write of the child kills it."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, channel, inheritable=False)
    os.close(nothing)


def _submit(control: socket.socket, payload: bytes) -> int:
    """Sends the descriptors of a new job: its text and its result channel. Returns the caller's end of the channel."""
    channel, theirs = os.pipe()
    job = -1
    try:
        os.set_blocking(channel, False)
        job = os.memfd_create("job")
        os.pwrite(job, payload, 0)
        descriptors = _DESCRIPTORS.pack(theirs, job)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
        control.sendmsg([len(payload).to_bytes(8, "little")], ancillary, socket.MSG_NOSIGNAL)
    except BaseException:
        os.close(channel)
        raise
    finally:
        os.close(theirs)
        if job >= 0:
            os.close(job)
    return channel
