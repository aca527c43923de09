"""`this_process` and `has_ended`: which process makes a run, and whether it is still there."""

import hashlib
import os
from collections.abc import Mapping
from typing import Any


def this_process() -> dict[str, Any]:
    """Process id, start in clock ticks since boot, and a hash by which a reader knows the same boot and container."""
    return {"id": os.getpid(), "start": _start(os.getpid()), "machine": _machine()}


def has_ended(process: Mapping[str, Any]) -> bool:
    """Whether a process of this machine that `this_process` described is gone. `False` if that cannot be known."""
    if not process or not process.get("machine") or process["machine"] != _machine():
        return False
    try:
        os.kill(process["id"], 0)  # signal 0 only asks: /proc may hide processes of other users
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _start(process["id"]) != process["start"]


def _start(process: int) -> int | None:
    """When it started, which tells it from a later process with its id. `None` if it is gone, or a zombie."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            state = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state[0] in "ZX" else int(state[19])


def _machine() -> str:
    """Empty where /proc does not say it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            place = file.read() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return hashlib.sha256(place.encode()).hexdigest()[:16]
