"""The commit that a run or an experiment was started from."""

import subprocess
from typing import Any


def git_state() -> dict[str, Any] | None:
    """Commit of the checkout in the working folder, and whether files differ from it; `None` if it is not a
    checkout."""

    def ask(*words: str) -> str:
        done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        return {"commit": ask("rev-parse", "HEAD"), "changed": bool(ask("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.SubprocessError):
        return None
