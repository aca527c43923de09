"""Checks that run in a separate process: that results do not depend on the process, and handling of hostile text.

Hostile text is parsed and judged under an audit hook. A hook cannot be removed, so it is never set in the caller's
process. No sandbox is used here: every execution returns an infrastructure error.
"""

from __future__ import annotations

import builtins
import json
import os
import pickle
import random
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trl_populora.executor import Execution, Job, Status
from trl_populora.tasks.base import TaskType
from trl_populora.tasks.task import REASONS, Answer, Draft, Payload, Refusal, Task, is_spared
from trl_populora.testing.hostile import MARK, corpus


_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from trl_populora.testing.child import main; "
    "main(*sys.argv[2:])"
)
WATCHED = ("open", "import", "os.", "subprocess.", "socket.", "shutil.", "ctypes.", "pickle.", "pty.", "marshal.")


def ask(works: Sequence[str], task_type: TaskType, count: int, *, hash_seed: int, timeout: float) -> list[Any]:
    """Does some of `WORKS` in turn in a fresh interpreter, with another seed of string hashes, in an empty folder.

    Raises:
        AssertionError: If the type cannot be pickled, or the process failed, exceeded the timeout, printed or left
            files.
    """
    try:
        sent = pickle.dumps(task_type)
    except Exception as error:
        raise AssertionError(
            f"{type(task_type).__qualname__} cannot be sent to another process ({error}): define the class at the top "
            "level of a module, with plain values only"
        ) from error
    path, work = json.dumps([entry or os.getcwd() for entry in sys.path]), ", ".join(works)
    script = getattr(sys.modules["__main__"], "__file__", "") if type(task_type).__module__ == "__main__" else ""
    with tempfile.TemporaryDirectory() as room:
        result, folder = Path(room, "result"), Path(room, "empty")
        folder.mkdir()
        arguments = [path, json.dumps(works), str(count), str(result), script and os.path.abspath(script)]
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        try:
            done = subprocess.run(
                [sys.executable, "-c", _START, *arguments],
                input=sent,
                capture_output=True,
                cwd=folder,
                env=environment,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{work}: not done after {timeout} s; parse_proposal and parse_answer must take time linear in the "
                "length of the text"
            ) from None
        last = done.stderr.decode(errors="replace")[-2000:]
        assert not done.returncode and result.exists(), f"{work}: exit code {done.returncode}; last words: {last}"
        assert not done.stdout, f"{work}: something was printed: {done.stdout[:200]!r}"
        left = sorted(path.name for path in folder.iterdir())
        assert not left, f"{work}: files were left behind: {left}"
        return json.loads(result.read_text())


def main(works: str, count: str, result: str, script: str) -> None:
    """Entry point of the process."""
    if script:  # the type's class is in the script that the caller started
        vars(sys.modules["__main__"]).update(runpy.run_path(script, run_name="__checked__"))
    task_type = pickle.load(sys.stdin.buffer)
    Path(result).write_text(json.dumps([WORKS[work](task_type, int(count)) for work in json.loads(works)]))


def fingerprint(task_type: TaskType, count: int) -> dict[str, Any]:
    """All that must be the same in every process, as plain data."""
    tasks = task_type.seeds(count, seed=1)
    rng = random.Random(1)
    return {
        "seeds": [task.to_json() for task in tasks],
        "generate": [task_type.generate(rng).to_json() for _ in range(count)],
        "simplest": task_type.simplest().to_json(),
        "propose_prompt": [
            task_type.propose_prompt(references_of(task_type, task, tasks), random.Random(2)) for task in tasks
        ],
        "solve_prompt": [task_type.solve_prompt(task) for task in tasks],
        "propose_completion": [task_type.propose_completion(task) for task in tasks],
        "solve_completion": [task_type.solve_completion(task) for task in tasks],
        "key": [task_type.key(task.payload) for task in tasks],
        "features": [repr(task_type.features(task)) for task in tasks],
        "size": [task_type.size(task) for task in tasks],
    }


def references_of(task_type: TaskType, task: Task, tasks: Sequence[Task]) -> Sequence[Task]:
    """References under which proposing `task` is a right answer."""
    others = [other for other in tasks if task_type.key(other.payload) != task_type.key(task.payload)]
    return task_type.example_references(task, others)


def no_execution(jobs: Sequence[Job]) -> list[Execution]:
    """A `Run` whose executor always fails."""
    assert all(isinstance(job, Job) for job in jobs), "run takes a sequence of Job"
    return [Execution(Status.INFRA_ERROR, (), 0.0, 0) for _ in jobs]


def undeclared(task_type: TaskType, refusal: Refusal) -> bool:
    """Whether a type refuses for a reason that it did not declare."""
    return refusal.reason not in {*task_type.reasons, *REASONS}


def meet_hostile_text(task_type: TaskType, count: int) -> list[str]:
    """Parses and judges hostile text under watch; returns what went wrong, in words."""
    tasks = task_type.seeds(count)[:2]
    _handle(task_type, tasks, [task_type.propose_completion(task) for task in tasks], [])  # loads what is loaded late
    _handle(task_type, tasks, [task_type.solve_completion(task) for task in tasks], [])
    texts = [text for task in tasks for text in corpus([task_type.propose_completion(task)])]
    texts += [text for task in tasks for text in corpus([task_type.solve_completion(task)])]
    faults: list[str] = []
    acts = _watch()
    _handle(task_type, tasks, list(dict.fromkeys(texts)), faults)
    evaluated = [f"a completion was evaluated or reached the system: {act}" for act in acts]
    if hasattr(builtins, MARK):
        evaluated.append("a completion was evaluated: it set an attribute of builtins")
    return list(dict.fromkeys([*evaluated, *faults]))


def _handle(task_type: TaskType, tasks: Sequence[Task], texts: Sequence[str], faults: list[str]) -> None:
    """Every text as a proposal and as an answer, as far as it goes."""
    for task in tasks:
        shown = references_of(task_type, task, tasks)
        for text in texts:
            draft = _call(faults, text, "parse_proposal", (Draft, Refusal), task_type.parse_proposal, text, shown)
            answer = _call(faults, text, "parse_answer", (Answer, Refusal), task_type.parse_answer, task, text)
            verified = judged = None
            if isinstance(draft, Draft):
                verified = _call(faults, text, "verify", list, task_type.verify, [draft], no_execution)
            if isinstance(answer, Answer):
                judged = _call(faults, text, "judge", list, task_type.judge, [task], [answer], no_execution)
            _check_results(task_type, [draft, answer, *(verified or [])], judged or [], text, faults)


def _check_results(task_type: TaskType, read: Sequence, judged: Sequence, text: str, faults: list[str]) -> None:
    for one in read:
        if isinstance(one, Refusal) and undeclared(task_type, one):
            faults.append(f"reason {one.reason!r} is not declared in `reasons`")
    for one in read[2:]:
        if not isinstance(one, (Payload, Refusal)):
            faults.append(f"verify gave a {type(one).__name__} for {_short(text)}, not a Payload or a Refusal")
    for one in judged:
        if not isinstance(one, bool) and not (isinstance(one, Refusal) and is_spared(one)):
            faults.append(f"judge gave {one!r} for {_short(text)}, not a bool or the Refusal of a failed execution")


def _call(faults: list[str], text: str, name: str, kinds: Any, method: Callable, *arguments: Any) -> Any:
    try:
        result = method(*arguments)
    except BaseException as error:  # SystemExit and KeyboardInterrupt are what hostile text would like
        faults.append(f"{name} raised {type(error).__name__}: {str(error)[:100]!r} on {_short(text)}")
        return None
    if not isinstance(result, kinds):
        faults.append(f"{name} returned a {type(result).__name__} for {_short(text)}")
        return None
    return result


def _short(text: str) -> str:
    return f"{ascii(text[:60])} ({len(text)} characters)"


def _watch() -> list[str]:
    """Records, and stops, the evaluation of text and every access to the system that names the mark."""
    acts: list[str] = []

    def hook(event: str, arguments: tuple) -> None:
        act = None
        if event == "exec":
            code = arguments[0]
            if not (os.path.exists(code.co_filename) or code.co_filename.startswith("<frozen")):
                act = f"exec of code from {code.co_filename!r}"
        elif event.startswith(WATCHED) and MARK in ascii(arguments):
            act = f"{event}{ascii(arguments)[:100]}"
        if act is not None:
            acts.append(act)
            raise PermissionError(f"watched by check_task_type: {act}")

    sys.addaudithook(hook)
    return acts


WORKS: dict[str, Callable[[TaskType, int], Any]] = {
    "fingerprint": fingerprint,
    "hostile text": meet_hostile_text,
}
