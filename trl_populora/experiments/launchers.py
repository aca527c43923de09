"""Other ways to run jobs: printed commands, or SLURM jobs with submitit."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..extras import require
from ..run_files.layout import SUBMITTED_FOLDER
from .plan import Experiment, Job


TIMEOUTS = 100
"""How often a run that reaches its time limit is submitted again, unless `slurm` sets `max_num_timeout`. The number is
limited because of runs that never get any further. submitit's own is 3."""
WARNING, OF_LIMIT = 300, 0.25
"""Seconds before the time limit at which SLURM tells a run to save, but at most this share of the limit, unless
`slurm` sets `slurm_signal_delay_s`. A run ends its round first. submitit's own is 90."""
TO_QUEUE = 30
"""Seconds of these that are left to submit the job again."""


def only_command(path: str, job: Job) -> list[str]:
    """The command that runs one job of an experiment's file."""
    return [sys.executable, "-m", "trl_populora.cli", "experiment", path, "--only", job.name]


def printed(path: str, job: Job) -> str:
    """The same command for a shell, usable from any folder. Paths are relative to the present folder."""
    return f"cd {shlex.quote(os.getcwd())} && {shlex.join(only_command(path, job))}"


@dataclass
class SlurmJob:
    """The function that submitit calls on the machine that SLURM chose. Before its time limit, a job ends its round,
    saves, is submitted again and continues.

    Args:
        command (`list[str]`): Its words.
        patience (`float`, *optional*, defaults to `0.0`): Seconds in which it may end its round and save.
        process (`subprocess.Popen`, *optional*): The running command, once it is called.
    """

    command: list[str]
    patience: float = 0.0
    process: subprocess.Popen | None = field(default=None, compare=False)

    def __call__(self) -> int:
        """Runs it.

        Raises:
            RuntimeError: If it fails, so that SLURM shows it as failed.
        """
        # SLURM sends submitit's signal to all processes of the job, and it would kill these.
        number = getattr(signal, f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}")
        self.process = subprocess.Popen(self.command, preexec_fn=lambda: signal.signal(number, signal.SIG_IGN))
        try:
            code = self.process.wait()
        except BaseException:  # submitit's `sys.exit`, or SLURM's SIGTERM
            self._end()
            raise
        if code:
            raise RuntimeError(f"{shlex.join(self.command)} ended with exit code {code}; the job's log says why.")
        return code

    def checkpoint(self) -> Any:
        """The job that submitit submits again after a time limit or a preemption. submitit calls this while the
        command runs, and SLURM ends what is left of it after that."""
        from submitit.helpers import DelayedSubmission

        self._end()
        return DelayedSubmission(SlurmJob(self.command, self.patience))

    def _end(self) -> None:
        """Asks the command to end, which saves its run, and waits for that, but not so long that the job could not be
        submitted again. It is called in a signal handler during `Popen.wait`, which another `wait` would block."""
        if self.process is None or self.process.returncode is not None:
            return
        deadline = time.monotonic() + self.patience
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.process.pid, signal.SIGTERM)
            while os.waitpid(self.process.pid, os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.1)
        self.process.returncode = 0


def submit(experiment: Experiment, path: str, jobs: Sequence[Job], executor: Any = None) -> dict[str, str]:
    """
    Submits jobs to SLURM and returns at once.

    Args:
        experiment ([`Experiment`]): The plan; its `slurm` are the parameters of submitit.
        path (`str`): Its file.
        jobs (`Sequence[Job]`): Jobs to run.
        executor (`submitit.Executor`, *optional*): An executor other than that of SLURM.

    Returns:
        `dict[str, str]`: Job -> its id.

    Raises:
        ValueError: If submitit is not installed, there is no SLURM, or a parameter is unknown or of a wrong type.
    """
    if executor is None:
        executor = slurm_executor(os.path.join(experiment.output, SUBMITTED_FOLDER), experiment.slurm)
    patience = max(experiment.slurm.get("slurm_signal_delay_s", warning(experiment.slurm)) - TO_QUEUE, 0)
    return {job.name: executor.submit(SlurmJob(only_command(path, job), patience)).job_id for job in jobs}


def warning(parameters: Mapping[str, Any]) -> int:
    """How many seconds before the time limit a run is told to save."""
    limit = parameters.get("timeout_min", 5)  # submitit's own
    return int(min(WARNING, 60 * limit * OF_LIMIT)) if isinstance(limit, int | float) else WARNING


def slurm_executor(folder: str, parameters: Mapping[str, Any], cluster: str = "slurm") -> Any:
    """An executor of submitit with these parameters. `cluster` may be `"local"`, for trying, or `"debug"`, to check
    parameters where there is no SLURM."""
    require("submitit", user="--launcher slurm")
    import submitit

    own = {"max_num_timeout": TIMEOUTS, "slurm_signal_delay_s": warning(parameters), **parameters}
    timeouts = own.pop("max_num_timeout")
    if type(timeouts) is not int or timeouts < 0:
        raise ValueError(f"slurm: max_num_timeout={timeouts!r} must be a whole number, at least 0.")
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster, slurm_max_num_timeout=timeouts)
    except RuntimeError as error:
        raise ValueError(f"--launcher slurm: {error}. Start it where sbatch is, or use --launcher print.") from None
    try:
        executor.update_parameters(**own)
    except (AssertionError, NameError, TypeError, ValueError) as error:  # submitit asserts types
        raise ValueError(f"slurm={dict(parameters)}: {' '.join(str(error).split())}") from None
    return executor
