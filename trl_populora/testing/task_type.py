"""The contract of a task type, as a suite of checks that any type can be put through."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Real
from typing import Any

from trl_populora.executor import Executor, Job
from trl_populora.tasks.base import STYLES, Run, TaskType, features_of
from trl_populora.tasks.buffer import is_seed
from trl_populora.tasks.parsing import reserved_in
from trl_populora.tasks.task import Answer, Draft, Payload, Refusal, Task, content_id, is_spared
from trl_populora.testing.child import ask, fingerprint, no_execution, references_of, undeclared
from trl_populora.testing.hostile import corpus


def check_task_type(task_type: TaskType, *, run: Run | None = None, count: int = 8, timeout: float = 120.0) -> None:
    """Checks that a task type keeps its contract ([`~trl_populora.tasks.TaskType`]).

    What is checked: the declaration, seeds and their determinism in this process and in others with other string
    hashes, the round trip through JSON, prompts in both styles, that a seed's own proposal and answer are valid and
    right and others are not always right, that a failing executor does not count against anybody, features, and that
    hostile text is refused by a declared reason and never evaluated. Hostile text is met first in another process
    under watch.

    Args:
        task_type (`TaskType`): An instance. Its class stands at the top level of a module.
        run (`Run`, *optional*): Runs programs. Default: an `Executor` of this package, started when it is needed.
        count (`int`, *optional*, defaults to `8`): Seed tasks to check, at least 2.
        timeout (`float`, *optional*, defaults to `120.0`): Seconds for one process that meets hostile text.

    Raises:
        AssertionError: If the contract is broken; the message names the method and what it did.

    Example:
        ```python
        def test_my_type():
            check_task_type(MyType(min_length=3))
        ```
    """
    if count < 2:
        raise ValueError(f"count must be at least 2, got {count}")
    try:
        _check(task_type, run, count, timeout)
    except AssertionError:
        raise
    except Exception as error:
        name = _raised_by(error)
        rule = "; text that cannot be read must give a Refusal" if name.startswith("parse_") else ""
        raise AssertionError(f"{name} raised {type(error).__name__}: {str(error)[:200]!r}{rule}") from error


def check_form(task_type: TaskType) -> None:
    """Checks what no run can do without, on the simplest task: the declaration, records, keys, prompts, completions
    and features. It takes milliseconds and runs no program.

    Raises:
        ValueError: If the contract is broken; the message names the type, the method and what it did.
    """
    try:
        check_declaration(task_type)
        task = check_stock(task_type)
        check_task(task_type, task)
        shown = references_of(task_type, task, [task])
        if len(shown) >= task_type.min_references:
            _check_messages("propose_prompt", task_type.propose_prompt(shown, random.Random(0)))
    except Exception as error:  # of a user's methods
        what = str(error) if isinstance(error, AssertionError) else f"{_raised_by(error)} raised {error!r:.200}"
        raise ValueError(
            f"task type {type(task_type).__qualname__}: {what.rstrip('.')}. check_task_type of trl_populora.testing "
            "checks its whole contract."
        ) from error


def _check(task_type: TaskType, run: Run | None, count: int, timeout: float) -> None:
    check_declaration(task_type)
    tasks = check_seeds(task_type, count)
    for task in [*tasks, task_type.simplest()]:
        check_task(task_type, task)
        check_prompts(task_type, task, tasks)
    check_processes(task_type, count, timeout)  # after what costs little, and before hostile text is met here
    with _Lazy(run) as runner:
        check_proposals(task_type, tasks, runner)
        check_answers(task_type, tasks, runner)
        check_failing_executor(task_type, tasks)
        check_hostile_text(task_type, tasks[:1], runner)


def check_declaration(task_type: TaskType) -> None:
    """The class attributes, and that settings are checked."""
    cls = type(task_type)
    assert isinstance(task_type, TaskType), f"{cls.__qualname__} is no TaskType"
    assert _is_frozen(cls), f"{cls.__qualname__} must be decorated with @dataclass(frozen=True)"
    named = isinstance(task_type.id, str) and re.fullmatch("[a-z][a-z0-9_]*", task_type.id)
    assert named, f"id must be lower-case letters, digits and _, for names of files and metrics; got {task_type.id!r}"
    kind = task_type.payload
    assert isinstance(kind, type) and issubclass(kind, Payload), f"payload must be a subclass of Payload, got {kind!r}"
    assert _is_frozen(kind), f"{kind.__qualname__} must be decorated with @dataclass(frozen=True)"
    assert isinstance(task_type.reasons, Mapping), (
        f"reasons must map each reason to its meaning: {task_type.reasons!r}"
    )
    for name, meaning in task_type.reasons.items():
        assert name and meaning and isinstance(meaning, str), f"reasons[{name!r}] must say what it means"
    for name in ("families", "default_families", "easy_families", "reference_types"):
        names = getattr(task_type, name)
        fits = (
            isinstance(names, Sequence) and not isinstance(names, str) and all(isinstance(one, str) for one in names)
        )
        assert fits, f"{name} must be a tuple of names, got {names!r}"
    unknown = {*task_type.default_families, *task_type.easy_families} - {*task_type.families}
    assert not unknown, f"default_families and easy_families name {sorted(unknown)}, which `families` does not have"
    try:
        dataclasses.replace(task_type, style="no such style")
    except ValueError:
        pass
    else:
        raise AssertionError("style='no such style' must raise ValueError: __post_init__ must call that of TaskType")


def check_stock(task_type: TaskType) -> Task:
    """`generate` and `simplest` give seed tasks, the same each time; returns the simplest."""
    task = None
    for name, same, draw in (
        ("generate", "with equal states of rng", lambda: task_type.generate(random.Random(5), families=None)),
        ("simplest", "each time", task_type.simplest),
    ):
        task = draw()
        assert isinstance(task, Task), f"{name} must give a Task, got {task!r:.200}"
        assert is_seed(task), f"{name}: author must be 'seed' or 'seed:<family>', got {task.author!r}"
        assert task == draw(), f"{name} {same} must be equal"
    return task


def check_seeds(task_type: TaskType, count: int) -> list[Task]:
    """`generate`, `simplest` and `seeds`; returns the seeds."""
    check_stock(task_type)
    tasks = task_type.seeds(count)
    assert len({task.id for task in tasks}) == count, f"seeds({count}) must give {count} different tasks"
    assert tasks == task_type.seeds(count), "seeds with equal seeds must be equal"
    for family in task_type.families:
        try:
            task = task_type.generate(random.Random(5), families=[family])
        except ValueError:  # the settings do not allow this family
            continue
        check_task(task_type, task)
    try:
        task_type.seeds(1, families=["no such family"])
    except ValueError:
        return tasks
    raise AssertionError("seeds with an unknown family must raise ValueError")


def check_processes(task_type: TaskType, count: int, timeout: float) -> None:
    """Equal in processes with other string hashes, and hostile text under watch."""
    here = json.loads(json.dumps(fingerprint(task_type, count)))
    faults: list[str] = []
    for hash_seed, works in ((2, ["fingerprint"]), (1, ["fingerprint", "hostile text"])):
        there, *rest = ask(works, task_type, count, hash_seed=hash_seed, timeout=timeout)
        for name, value in here.items():
            assert value == there[name], f"{name} differs in a process with another PYTHONHASHSEED"
        faults += rest[0] if rest else []
    assert not faults, "\n".join(faults[:10])


def check_task(task_type: TaskType, task: Task) -> None:
    """One task: its record, its key and its features."""
    assert isinstance(task, Task) and task.type == task_type.id, f"a {task_type.id} task must say so, got {task!r}"
    assert type(task.payload) is task_type.payload, f"payload is a {type(task.payload).__name__}: {task!r}"
    assert task.id == content_id(task_type.id, task.payload), f"Task.create makes the id; that of {task!r} is off"
    for name in ("propose_completion", "solve_completion", "describe"):
        text = getattr(task_type, name)(task)
        assert isinstance(text, str) and text, f"{name} must give text, got {text!r:.200}"
    record = json.loads(json.dumps(task.to_json()))
    assert task_type.read_task(record) == task, f"the round trip through JSON changes {task!r}"
    try:
        task_type.read_task({**record, "id": "0" * 16})
    except ValueError:
        pass
    else:
        raise AssertionError("read_task must refuse a record whose id is not that of its content")
    for text in _texts(task.payload.to_json()):
        marker = reserved_in(text)
        assert marker is None, f"{marker!r} in {task!r} would end a block or a turn of the prompt that shows it"
    assert isinstance(key := task_type.key(task.payload), str), f"key must give a str, got {key!r}"
    asked, shown = task_type.question_keys(task.payload), task_type.shown_keys(task.payload)
    _check_keys(question_keys=asked, shown_keys=shown, reference_keys=task_type.reference_keys(task))
    shared = not set(asked).isdisjoint(shown)
    assert shared, f"question_keys and shown_keys of {task!r} share none: a run could learn from its own exam"
    _check_messages("solve_prompt", task_type.solve_prompt(task))
    size = task_type.size(task)
    assert isinstance(size, Real) and size > 0, f"size must give a number above 0, got {size!r}"
    parts = task_type.parts(task)
    of_text = isinstance(parts, frozenset) and all(isinstance(part, str) for part in parts)
    assert of_text and parts == task_type.parts(task), f"parts must be a frozenset of str, each time, got {parts!r}"
    try:
        features_of(task_type, task)
    except ValueError as error:
        raise AssertionError(str(error)) from None


def check_prompts(task_type: TaskType, task: Task, tasks: Sequence[Task]) -> None:
    """Prompts in both styles: chat messages, the same each time, and without the text of the right completion."""
    shown = references_of(task_type, task, tasks)
    for style in STYLES:
        kind = dataclasses.replace(task_type, style=style)
        prompts = {
            "propose_prompt": lambda kind=kind: kind.propose_prompt(shown, random.Random(3)),
            "solve_prompt": lambda kind=kind: kind.solve_prompt(task),
        }
        if not task_type.min_references:
            prompts["propose_prompt without references"] = lambda kind=kind: kind.propose_prompt([], random.Random(3))
        for name, prompt in prompts.items():
            _check_messages(f"{name} ({style})", prompt())
            assert prompt() == prompt(), f"{name} ({style}) is not the same each time"
        words = "\n".join(message["content"] for message in kind.solve_prompt(task))
        assert kind.solve_completion(task) not in words, (
            f"solve_prompt ({style}) holds the right completion for {task!r}"
        )
        draft = kind.parse_proposal(kind.propose_completion(task), shown)
        assert isinstance(draft, Draft | Refusal), f"parse_proposal must give a Draft or a Refusal, got {draft!r}"
        assert isinstance(draft, Draft), f"propose_completion ({style}) of {task!r} is refused: {draft}"
        answer = kind.parse_answer(task, kind.solve_completion(task))
        assert isinstance(answer, Answer | Refusal), f"parse_answer must give an Answer or a Refusal, got {answer!r}"
        assert isinstance(answer, Answer), f"solve_completion ({style}) of {task!r} is refused: {answer}"


def check_proposals(task_type: TaskType, tasks: Sequence[Task], run: Run) -> None:
    """Proposing a seed task gives that task, in a batch as alone."""
    drafts = _drafts(task_type, tasks)
    for task, draft in zip(tasks, drafts, strict=True):
        assert draft.key == task_type.key(task.payload), f"the draft of {task!r} has the key {draft.key!r}"
    verified = task_type.verify(drafts, run)
    _one_for_each("verify", verified, drafts)
    for task, payload in zip(tasks, verified, strict=True):
        assert payload == task.payload, f"proposing {task!r} gave {payload!r}"
    assert task_type.verify(drafts[:1], run) == verified[:1], "verify decides otherwise when given one draft"
    assert task_type.verify([], run) == [], "verify([]) must be []"


def check_answers(task_type: TaskType, tasks: Sequence[Task], run: Run) -> None:
    """The right answer is right, those to other tasks are not all right, in a batch as alone."""
    answers = _answers(task_type, tasks)
    judged = task_type.judge(tasks, answers, run)
    _one_for_each("judge", judged, answers)
    for task, result in zip(tasks, judged, strict=True):
        assert result is True, f"the right answer to {task!r} was judged {result!r}"
    assert task_type.judge(tasks[:1], answers[:1], run) == [True], "judge decides otherwise when given one answer"
    assert task_type.judge([], [], run) == [], "judge([]) must be []"
    others = [task_type.parse_answer(task, task_type.solve_completion(tasks[i - 1])) for i, task in enumerate(tasks)]
    pairs = [(task, answer) for task, answer in zip(tasks, others, strict=True) if isinstance(answer, Answer)]
    judged = task_type.judge([task for task, _ in pairs], [answer for _, answer in pairs], run)
    assert not pairs or not all(judged), "judge takes the answers to other tasks as right"


def check_failing_executor(task_type: TaskType, tasks: Sequence[Task]) -> None:
    """Where the executor fails, a proposal and an answer are spared, unless they are decided without it."""
    for task, result in zip(tasks, task_type.verify(_drafts(task_type, tasks), no_execution), strict=True):
        spared = isinstance(result, Refusal) and is_spared(result)
        assert spared or result == task.payload, f"verify with a failing executor gave {result!r} for {task!r}"
    answers = _answers(task_type, tasks)
    for task, result in zip(tasks, task_type.judge(tasks, answers, no_execution), strict=True):
        spared = isinstance(result, Refusal) and is_spared(result)
        assert spared or result is True, f"judge with a failing executor gave {result!r} for the answer to {task!r}"


def check_hostile_text(task_type: TaskType, tasks: Sequence[Task], run: Run) -> None:
    """Hostile text with programs really run: what is accepted is a task like any other, and talk solves nothing."""
    for task in tasks:
        shown = references_of(task_type, task, tasks)
        proposals = [task_type.parse_proposal(text, shown) for text in corpus([task_type.propose_completion(task)])]
        drafts = [draft for draft in proposals if isinstance(draft, Draft)]
        for payload in task_type.verify(drafts, run):
            if isinstance(payload, Refusal):
                assert not undeclared(task_type, payload), f"reason {payload.reason!r} is not declared in `reasons`"
            else:
                check_task(task_type, Task.create(task_type.id, payload))
        texts = corpus([])
        answers = [task_type.parse_answer(task, text) for text in texts]
        read = [(text, answer) for text, answer in zip(texts, answers, strict=True) if isinstance(answer, Answer)]
        judged = task_type.judge([task] * len(read), [answer for _, answer in read], run)
        for (text, _), result in zip(read, judged, strict=True):
            assert result is not True, f"{ascii(text[:60])} is judged a right answer to {task!r}"


def _one_for_each(method: str, results: Sequence, items: Sequence) -> None:
    assert len(results) == len(items), f"{method} gave {len(results)} results for {len(items)}: give one for each"


def _raised_by(error: Exception) -> str:
    """Name of the task type's method that raised an error: of several, the one that was called last."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return next((name for name in reversed(names) if name[0] != "_" and hasattr(TaskType, name)), "calling it")


def _is_frozen(cls: type) -> bool:
    """Whether a class itself, not only a parent, is a frozen dataclass."""
    parameters = vars(cls).get("__dataclass_params__")
    return parameters is not None and parameters.frozen


def _drafts(task_type: TaskType, tasks: Sequence[Task]) -> list[Draft]:
    """The drafts of seed tasks; that none is refused was checked before."""
    shown = [references_of(task_type, task, tasks) for task in tasks]
    read = [task_type.parse_proposal(task_type.propose_completion(t), s) for t, s in zip(tasks, shown, strict=True)]
    return [draft for draft in read if isinstance(draft, Draft)]


def _answers(task_type: TaskType, tasks: Sequence[Task]) -> list[Answer]:
    """The right answers to seed tasks; that none is refused was checked before."""
    read = [task_type.parse_answer(task, task_type.solve_completion(task)) for task in tasks]
    return [answer for answer in read if isinstance(answer, Answer)]


def _check_keys(**found: Any) -> None:
    for name, keys in found.items():
        fits = isinstance(keys, Collection) and not isinstance(keys, str) and all(isinstance(key, str) for key in keys)
        assert fits, f"{name} must give a tuple or set of str, got {keys!r:.200}"


def _check_messages(name: str, messages: Any) -> None:
    assert isinstance(messages, list) and messages, f"{name} must give a list of messages, got {messages!r}"
    for message in messages:
        fits = isinstance(message, dict) and set(message) == {"role", "content"}
        assert fits, f"{name}: a message is a dict of role and content, got {message!r}"
        role, content = message["role"], message["content"]
        assert role in ("system", "user", "assistant"), f"{name}: role must be system, user or assistant, got {role!r}"
        assert isinstance(content, str) and content, f"{name}: content must be text, got {content!r}"
    assert messages[-1]["role"] == "user", f"{name}: the last message must be the user's"


def _texts(value: Any) -> list[str]:
    """All strings in a record."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [text for item in inner for text in _texts(item)]


class _Lazy:
    """`run`, or an executor that starts with the first job."""

    def __init__(self, run: Run | None) -> None:
        self._run: Callable | None = run
        self._executor: Executor | None = None

    def __call__(self, jobs: Sequence[Job]) -> list:
        if self._run is None:
            self._executor = Executor(1)
            self._run = self._executor.run_many
        return self._run(jobs)

    def __enter__(self) -> _Lazy:
        return self

    def __exit__(self, *error: object) -> None:
        if self._executor is not None:
            self._executor.close()
