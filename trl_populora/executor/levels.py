"""Isolation levels: a name for the protections that work, and advice about those that do not."""

from __future__ import annotations

from collections.abc import Iterable


ADVICE = {
    "seccomp": (
        "use Linux on x86_64 or aarch64 with a kernel, and a container profile, that allow seccomp filters "
        "(Docker's and Kubernetes' default profiles do)"
    ),
    "unprivileged": (
        "start as an ordinary user, or as root that may change its user (CAP_SETUID, CAP_SETGID) or has no capability"
    ),
    "landlock": "use Linux 5.13 or newer with `landlock` in /sys/kernel/security/lsm; gVisor has none",
    "namespaces": (
        "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 (Debian), "
        "kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), or a container profile that allows unshare"
    ),
}
"""What each measure needs, by its name."""


def level(held: Iterable[str]) -> str:
    """
    The isolation level, as `docs/security.md` defines it.

    Args:
        held (`Iterable[str]`):
            Names of the protections, as in `ADVICE`, that a fork server has tested successfully.

    Returns:
        `str`: `"L3"` (all) to `"L0"` (no filter, or privileges that could not be given up).
    """
    held = set(held)
    if not {"seccomp", "unprivileged"} <= held:
        return "L0"
    return f"L{1 + len(held & {'landlock', 'namespaces'})}"


def missing(held: Iterable[str]) -> dict[str, str]:
    """The protections that do not work, and what to do about each."""
    return {name: advice for name, advice in ADVICE.items() if name not in set(held)}
