"""Runs untrusted Python in confined processes and says, as plain data, what it did.

Standard library only, Linux only. Nothing a model writes is evaluated in the caller's process: programs run in
children of a fork server, and what comes back is compared as canonical bytes. `docs/security.md` lists what is
covered.
"""

from . import canonical, literals
from .executor import Executor
from .records import Execution, Job, Limits, SandboxError, Status, Value
from .settings import ExecutorSettings


__all__ = [
    "Execution",
    "Executor",
    "ExecutorSettings",
    "Job",
    "Limits",
    "SandboxError",
    "Status",
    "Value",
    "canonical",
    "literals",
]
