"""The runs of an experiment as processes: their progress, their next step, and running several at the same time.

A run is trained, and then its members take the exams. Both continue after a kill: training from its newest checkpoint
(without one it starts again), exams with the next question. The state of a run is only in its folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import IO, Any, Protocol

from ..run_files.files import open_log, write_file
from ..run_files.layout import (
    EVALUATION_FOLDER,
    HISTORY_FILE,
    JOB_LOG,
    JOB_RECIPE,
    POPULATION_FILE,
    left_by_a_run,
)
from ..run_files.run import AVERAGE, read_scores, read_table
from .plan import Asked, Experiment, Job


GRACE = 600.0
"""Seconds that processes have to end after a request: a run ends its round first, and saves."""
POLL = 0.2
"""Seconds between looks at the processes."""


class Stage(Enum):
    """What a job does next."""

    TRAIN = "training"
    EXAMS = "exams"
    DONE = "done"


Command = Callable[[Job, Stage], Sequence[str]]


@dataclass(frozen=True)
class Commands:
    """The processes of a job: the ordinary entry of a recipe, then `populora evaluate`.

    Args:
        experiment ([`Experiment`]): The plan.
        base (`Mapping`): The recipe that all arms share.
    """

    experiment: Experiment
    base: Mapping[str, Any]

    def __call__(self, job: Job, stage: Stage) -> list[str]:
        """The command for a stage. For training, it also writes the complete recipe of the run into its folder."""
        plan = self.experiment
        if stage is Stage.TRAIN:
            import yaml

            path = os.path.join(job.folder, JOB_RECIPE)
            write_file(path, yaml.safe_dump(plan.run_recipe(self.base, job), sort_keys=False))
            return [sys.executable, "-m", "trl_populora.train", "--config", path]
        command = [sys.executable, "-m", "trl_populora.cli", "evaluate", job.folder, "--exams", *plan.exams]
        command += ["--output", os.path.join(job.folder, EVALUATION_FOLDER)]
        command += ["--samples", str(plan.exam_samples), "--temperature", str(plan.exam_temperature)]
        command += ["--average"] * plan.averages
        sandbox = plan.run_recipe(self.base, job).get("executor_kwargs")  # of the user's own recipe
        command += ["--accept-unsafe"] * bool(isinstance(sandbox, Mapping) and sandbox.get("accept_unsafe"))
        return command + (["--data", plan.exam_data] if plan.exam_data else [])


def stage(job: Job, asked: Asked) -> Stage:
    """The next step of a job, from the files in its folder."""
    if not os.path.isfile(os.path.join(job.folder, POPULATION_FILE)):
        return Stage.TRAIN
    return Stage.EXAMS if untaken(job.folder, asked) else Stage.DONE


def untaken(folder: str, asked: Asked) -> str:
    """Which exam a finished run still has to take, and why; empty if it took all as they are asked. `populora
    evaluate` may have replaced the scores."""
    taken = {exam["exam"]: exam for exam in read_scores(folder).get("exams", ())}
    students = [row["id"] for row in read_table(folder)["members"] if row["role"] != "teacher"]
    players = [*students, *([AVERAGE] if asked.average and len(students) > 1 else [])]
    for name in asked.exams:
        if name not in taken:
            return f"{name} was not taken"
        decoding = taken[name].get("decoding", {})
        how = decoding.get("samples"), decoding.get("temperature")
        if how != (asked.samples, asked.temperature):
            return (
                f"{name} was last taken with samples={how[0]} and temperature={how[1]} instead of {asked.samples} and "
                f"{asked.temperature}"
            )
        if absent := [player for player in players if player not in taken[name]["scores"]]:
            return f"{name} was last taken without {', '.join(absent)}"
    return ""


def state(job: Job, asked: Asked) -> tuple[Stage | None, str]:
    """The next step of a job, and what is damaged in its folder: then there is none until that is mended."""
    try:
        return stage(job, asked), ""
    except (OSError, ValueError) as error:
        return None, str(error)


def rounds_done(job: Job) -> int:
    """Rounds in the run's record so far: its lines. Of a record that cannot be read, none."""
    try:
        with open(os.path.join(job.folder, HISTORY_FILE), "rb") as file:
            return file.read().count(b"\n")
    except OSError:
        return 0


def begun(job: Job) -> bool:
    """Whether a run has written anything yet."""
    return bool(left_by_a_run(job.folder))


class View(Protocol):
    """Receives the events of jobs."""

    def note(self, text: str) -> None: ...

    def progress(self, done: Mapping[str, int], running: Sequence[str]) -> None:
        """Rounds done of every job, and the jobs that run."""


@dataclass
class _Running:
    job: Job
    stage: Stage
    process: subprocess.Popen
    log: IO[bytes]
    slot: int


def run_jobs(
    jobs: Sequence[Job],
    asked: Asked,
    command: Command,
    view: View,
    *,
    slots: int = 1,
    environment: Callable[[int], Mapping[str, str]] = lambda slot: os.environ,
    wait: bool = True,
) -> dict[str, str]:
    """
    Runs jobs until each is done or has failed. A failure does not stop other jobs, nor does a folder that cannot be
    read or written.

    Args:
        jobs (`Sequence[Job]`): Jobs in the order of their start. Finished ones are skipped.
        asked ([`Asked`]): The exams.
        command (`Callable`): Returns the command (a list of words) for a job and stage.
        view ([`View`]): Receives the events.
        slots (`int`, *optional*, defaults to `1`): Number of jobs at the same time.
        environment (`Callable`, *optional*): Slot -> variables of its processes.
        wait (`bool`, *optional*, defaults to `True`): Whether to wait for a job that other processes run. If not, it
            counts as failed.

    Returns:
        `dict[str, str]`: Name of each failed job -> reason.
    """
    return _Jobs(asked, command, view, slots, environment, wait).run(jobs)


@dataclass
class _Jobs:
    """The jobs of one call of [`run_jobs`]."""

    asked: Asked
    command: Command
    view: View
    slots: int
    environment: Callable[[int], Mapping[str, str]]
    wait: bool
    running: list[_Running] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    told: set[Job] = field(default_factory=set)  # those that wait for other processes

    def run(self, jobs: Sequence[Job]) -> dict[str, str]:
        waiting, spoken = list(jobs), 0.0
        done = {job.name: rounds_done(job) for job in jobs}
        try:
            while waiting or self.running:
                for job in list(waiting):
                    if len(self.running) < self.slots and self._begin(job):
                        waiting.remove(job)
                for one in [one for one in self.running if one.process.poll() is not None]:
                    self.running.remove(one)
                    self._end(one)
                    done[one.job.name] = rounds_done(one.job)
                if time.monotonic() - spoken > 1:
                    spoken = time.monotonic()
                    done |= {one.job.name: rounds_done(one.job) for one in self.running}
                    self.view.progress(done, [one.job.name for one in self.running])
                if self.running or waiting:
                    time.sleep(POLL)
        finally:
            if any(one.stage is Stage.TRAIN and one.process.poll() is None for one in self.running):
                self.view.note("Waiting for the runs to end their rounds and to save. Ctrl-C ends them at once.")
            _stop(self.running)
        self.view.progress(done, [])
        return self.problems

    def _begin(self, job: Job) -> bool:
        """Starts a job that waits; whether it waits no longer."""
        with self._failing(job):
            if stage(job, self.asked) is Stage.DONE:
                self.view.note(f"{job.name}: done already")
            elif os.path.islink(job.folder):  # of another experiment, which is not to be changed
                self._fail(job, f"the run that {job.folder} links to is not finished any more; remove the link")
            elif (log := open_log(os.path.join(job.folder, JOB_LOG))) is None:  # processes of another call are at it
                return not self._waits_for_others(job)
            elif stage(job, self.asked) is Stage.DONE:  # by others, just now
                log.close()
                return False
            else:
                self._start(job, log, min(set(range(self.slots)) - {one.slot for one in self.running}))
        return True

    def _waits_for_others(self, job: Job) -> bool:
        if self.wait:
            if job not in self.told:
                self.view.note(f"{job.name}: other processes already run it; waiting for them")
            self.told.add(job)
        else:
            self.problems[job.name] = "other processes run it"
            self.view.note(f"{job.name}: other processes already run it")
        return self.wait

    def _end(self, one: _Running) -> None:
        """Goes on with a job whose process has ended: starts its exams, or says how it ended."""
        goes_on = False
        with self._failing(one.job):
            code, following = one.process.returncode, stage(one.job, self.asked)
            goes_on = code == 0 and following is Stage.EXAMS and one.stage is Stage.TRAIN
            if goes_on:
                self._start(one.job, one.log, one.slot)
            elif code == 0 and following is Stage.DONE:
                self.view.note(f"{one.job.name}: done")
            else:
                self._fail(one.job, failure(one.stage, code, one.job))
        if not goes_on:
            one.log.close()

    @contextmanager
    def _failing(self, job: Job) -> Iterator[None]:
        """Context in which a folder that cannot be read or written, or a damaged file in it, ends only this job."""
        try:
            yield
        except (OSError, ValueError) as error:
            self._fail(job, str(error))

    def _fail(self, job: Job, why: str) -> None:
        self.problems[job.name] = why
        self.view.note(f"{job.name}: failed: {why}")

    def _start(self, job: Job, log: IO[bytes], slot: int) -> None:
        """Starts the next process of a job. It has the log; if it cannot be started, the log is closed."""
        with _interrupts_later(), ExitStack() as unless_started:
            unless_started.callback(log.close)
            now = stage(job, self.asked)
            words = list(self.command(job, now))
            with suppress(OSError):  # a full disk is no reason not to run
                log.write(f"\n$ {' '.join(words)}\n".encode())
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(slot),
                start_new_session=True,
            )
            unless_started.pop_all()
            again = "resumed" if now is Stage.TRAIN and begun(job) else "started"
            self.view.note(f"{job.name}: {now.value} {again}, log in {log.name}")
            self.running.append(_Running(job, now, process, log, slot))


def failure(ended: Stage, code: int, job: Job) -> str:
    """Why a job is not done, in one line: how its process ended, and the last line of its log."""
    if code == 0 and ended is Stage.TRAIN:
        return f"training was stopped before its last round; the same command continues it; {last_words(job)}"
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{ended.value} ended with {how}; {last_words(job)}"


def last_words(job: Job) -> str:
    """In words, the last line of a job's log, and where that is."""
    path = os.path.join(job.folder, JOB_LOG)
    with open(path, "rb") as file:
        file.seek(max(os.path.getsize(path) - 4096, 0))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    lines = lines[-1:] if lines and not lines[-1].startswith("$ ") else []  # that is the command
    return f"its log ends with: {lines[-1][:300]} ({path})" if lines else f"it said nothing ({path})"


def shares(slots: int, *, cores: int, gpus: Sequence[str] = ()) -> Callable[[int], dict[str, str]]:
    """
    The environment of a slot's processes: their share of the cores as `OMP_NUM_THREADS`, unless that is set, and one
    of several GPUs.

    Args:
        slots (`int`): Jobs at once.
        cores (`int`): Cores of this process.
        gpus (`Sequence[str]`, *optional*): Names of GPUs, as `CUDA_VISIBLE_DEVICES` has them.
    """

    def environment(slot: int) -> dict[str, str]:
        own = {"OMP_NUM_THREADS": str(max(1, cores // slots))} | os.environ
        return own | ({"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if len(gpus) > 1 else {})

    return environment


def visible_gpus() -> list[str]:
    """GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` has them."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Context whose interrupts come at its end: a process that is being started would be known to nobody."""
    if threading.current_thread() is not threading.main_thread():  # which alone gets them
        yield
        return
    caught: list[int] = []
    before = {
        one: signal.signal(one, lambda number, _: caught.append(number)) for one in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    if caught:
        raise KeyboardInterrupt


def _stop(running: Sequence[_Running]) -> None:
    """Ends all running processes and their children. An interrupt ends them at once."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        for one in running:
            if one.process.poll() is None:
                os.killpg(one.process.pid, signum)
        deadline = time.monotonic() + GRACE
        for one in running:
            try:
                one.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue
            except KeyboardInterrupt:
                break
    for one in running:
        one.log.close()
