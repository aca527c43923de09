"""Processes for tests that need several, forked from a server that has imported the libraries once.

A fresh interpreter spends longer on imports than such a test on its work. `torch.distributed.run` itself, and ranks
that die under it, are tested in test_two_processes.py.
"""

import fcntl
import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path

import pytest


PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.training.victim", "tests.training.two_processes"])


def run_ranks(
    target: Callable[..., None], processes: int, *arguments: str, folder: Path, timeout: float = 280
) -> None:
    """Calls `target(*arguments)` in every one of some gloo processes; a test fails if one of them does.

    Args:
        target (`Callable`): At the top level of a module.
        processes (`int`): World size.
        arguments (`str`): What all ranks are given.
        folder (`Path`): Where `process0.log` and the others go, which hold what was printed.
        timeout (`float`, *optional*, defaults to 280): Seconds for all of them.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    run_forks(
        target,
        [own | {"RANK": rank, "LOCAL_RANK": rank} for rank in range(processes)],
        *arguments,
        folder=folder,
        timeout=timeout,
    )


def run_forks(
    target: Callable[..., None], environments: list[dict], *arguments: str, folder: Path, timeout: float = 280
) -> None:
    """Calls `target(*arguments)` in one process for each of these additions to the environment."""
    logs = [folder / f"process{number}.log" for number in range(len(environments))]
    ranks = [
        PROCESSES.Process(target=_fork, args=(target, arguments, environment, str(log)))
        for environment, log in zip(environments, logs)
    ]
    end = time.monotonic() + timeout
    try:
        for rank in ranks:
            rank.start()
        running = {rank.sentinel: rank for rank in ranks}
        while running and not any(rank.exitcode for rank in ranks):
            ended = wait(list(running), max(0.0, end - time.monotonic()))
            if not ended:
                break
            for sentinel in ended:
                running.pop(sentinel).join()
    finally:
        codes = [rank.exitcode for rank in ranks]
        for rank in ranks:
            if rank.is_alive():
                rank.kill()
                rank.join()
    if any(code != 0 for code in codes):
        texts = "\n".join(log.read_text(errors="replace")[-3000:] for log in logs if log.exists())
        pytest.fail(f"exit codes {codes} (None: killed after {timeout:.0f} s, or because of another rank)\n{texts}")


def _fork(target: Callable[..., None], arguments: tuple[str, ...], environment: dict, log: str) -> None:
    os.environ.update({name: str(value) for name, value in environment.items()})
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    target(*arguments)


@contextmanager
def taken(folder):
    """Context in which somebody else trains in a folder: a lock of another descriptor is as one of another process."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        os.close(descriptor)
