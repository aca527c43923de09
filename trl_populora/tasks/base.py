"""The definition of a task type. Users add one by writing one class with these methods, in one file.

This module has the interface and the settings that all types share. `registry.py` has the list of types in the
package. `referee.py` calls the methods of types.
"""

from __future__ import annotations

import math
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, NamedTuple

from trl_populora.executor import Execution, Job, Status
from trl_populora.tasks.task import Answer, Draft, Payload, Refusal, Task, content_id


STYLES = ("full", "compact")
MAX_DRAWS = 200  # draws of the seed generator for each task that is wanted

Message = dict[str, str]
Run = Callable[[Sequence[Job]], list[Execution]]
"""Runs programs in the sandbox, order kept. Every rank calls it with the same jobs and gets the same executions."""


class Features(NamedTuple):
    """Data about a task for diagnostics. It covers only what the teacher wrote itself.

    Attributes:
        measures (`Mapping[str, float]`): Complexity by name of the measure; means over a round are logged.
        space (`str`): Name of the space of `point`. Types with comparable points share a space.
        point (`tuple[float, ...]`): Position in the unit cube, 4 numbers in [0, 1], for the coverage archive.
    """

    measures: Mapping[str, float]
    space: str
    point: tuple[float, float, float, float]


@dataclass(frozen=True)
class TaskType(ABC):
    """One kind of task: its prompts, how completions are read, what is valid and what counts as solved.

    A type is a frozen dataclass without state. Its settings are numbers, text, booleans, lists or mappings of these.
    The text of a model is only data: nothing of it is evaluated in this process, and programs run in the sandbox
    through `run`. All results depend only on the arguments, so that every process of a run and every resumed run makes
    the same decisions.

    Args:
        style (`str`, *optional*, defaults to `"full"`):
            `"full"` prompts state every rule, for capable models. `"compact"` prompts are short, for small models and
            CPUs. Completions are parsed in the same way.
        num_references (`int`, *optional*):
            Maximum number of reference tasks in a teacher's prompt. Default: 6 in the full style (AZR), 1 in the
            compact style (our choice).
    """

    id: ClassVar[str]
    """Name in recipes, logs and files."""
    payload: ClassVar[type[Payload]]
    """The type's own frozen record."""
    reasons: ClassVar[Mapping[str, str]] = {}
    """Reasons for refusals of this type, besides the shared `REASONS`: short name -> meaning."""
    families: ClassVar[tuple[str, ...]] = ()
    """Names of the kinds of seed tasks, if there are several."""
    default_families: ClassVar[tuple[str, ...]] = ()
    """The `families` that are used if none are named; all of them if empty."""
    easy_families: ClassVar[tuple[str, ...]] = ()
    """Those of `families` that a small base learns first; all of them if empty."""
    reference_types: ClassVar[tuple[str, ...]] = ()
    """Types whose tasks are references in the proposal prompt; only the type itself if empty."""
    min_references: ClassVar[int] = 0
    """References that a proposal prompt cannot do without."""

    style: str = "full"
    num_references: int | None = None

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise ValueError(f"style must be one of {STYLES}, got {self.style!r}")
        if self.num_references is not None and self.num_references < 0:
            raise ValueError(f"num_references must be 0 or more, got {self.num_references}")

    @property
    def max_references(self) -> int:
        """Largest number of reference tasks in a teacher's prompt, K. Unless `num_references` gives it: 6 in the style
        `full`, 1 in others."""
        if self.num_references is not None:
            return self.num_references
        return 6 if self.style == "full" else 1

    # Proposing -------------------------------------------------------------------------------------------------

    @abstractmethod
    def propose_prompt(self, references: Sequence[Task], rng: random.Random) -> list[Message]:
        """Chat messages for proposing a new task. `rng` decides which references are shown and in which order."""

    @abstractmethod
    def parse_proposal(self, completion: str, references: Sequence[Task]) -> Draft | Refusal:
        """Parses a proposal and applies every rule that needs no execution. `references` are those of the prompt.

        Every text gives a `Draft` or a `Refusal`, in time linear in its length. Texts of more than 65,536 characters
        were refused before.
        """

    @abstractmethod
    def verify(self, drafts: Sequence[Draft], run: Run) -> list[Payload | Refusal]:
        """For each draft, the payload of a valid task, or the refusal.

        `run` may be called any number of times, preferably once with the jobs of all drafts. If an execution failed
        for reasons that are not the program's, return `refused_by(execution)`. The proposal is then spared: it is not
        counted.
        """

    @abstractmethod
    def propose_completion(self, task: Task) -> str:
        """The completion that proposes exactly this task. It is a target of the supervised warm start."""

    def example_references(self, task: Task, references: Sequence[Task]) -> Sequence[Task]:
        """The references with which `propose_completion(task)` is a right answer. Default: all."""
        return references

    # Solving ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def solve_prompt(self, task: Task) -> list[Message]:
        """Chat messages for solving the task."""

    @abstractmethod
    def parse_answer(self, task: Task, completion: str) -> Answer | Refusal:
        """Parses an answer. Like `parse_proposal`, it accepts every text. A `Refusal` means badly formed, with a lower
        reward than a wrong answer."""

    @abstractmethod
    def judge(self, tasks: Sequence[Task], answers: Sequence[Answer], run: Run) -> list[bool | Refusal]:
        """Whether `answers[i]` solves `tasks[i]`.

        A `Refusal` may only mean that the executor failed (`refused_by`). The comparison itself happens in this
        process, on plain values. No object that a model made takes part in it.
        """

    @abstractmethod
    def solve_completion(self, task: Task) -> str:
        """A right answer in the required format. It is a target of the supervised warm start."""

    # Stock -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def generate(self, rng: random.Random, *, families: Sequence[str] | None = None) -> Task:
        """One verified seed task from one of the families. Equal states of `rng` give equal tasks."""

    @abstractmethod
    def simplest(self) -> Task:
        """The single task from which a run without seed tasks starts."""

    @abstractmethod
    def features(self, task: Task) -> Features | None:
        """Complexity and position of what the task's author wrote itself; `None` if it cannot be measured."""

    def parts(self, task: Task) -> frozenset[str]:
        """Parts of what the author wrote, by which tasks are compared (`sharing` of `reward_kwargs`).

        Default: pairs of neighbouring words and signs in the proposal, in which all numbers are the same.
        """
        return word_pairs(self.propose_completion(task))

    def key(self, payload: Any) -> str:
        """A key that is equal for two payloads only if they are the same task. By default, only equal payloads are."""
        return content_id(self.id, payload)

    def question_keys(self, payload: Any) -> Collection[str]:
        """Keys that an exam with this task reserves: of the task, and of all that show its question and its answer."""
        return (self.key(payload),)

    def shown_keys(self, payload: Any) -> Collection[str]:
        """Keys of exam questions that this task shows with their answers. Runs learn from no task with a reserved key.

        By default, a task shows itself only.
        """
        return (self.key(payload),)

    def reference_keys(self, task: Task) -> Collection[str]:
        """Keys that every proposal from this reference would show. A reference with a reserved one is shown only if
        there is no other.

        Default: none.
        """
        return ()

    def describe(self, task: Task) -> str:
        """The right result of a task, as text to read. Default: a right answer."""
        return self.solve_completion(task)

    def size(self, task: Task) -> int:
        """Length of a task as a reference, in any unit. The shortest tasks are shown if prompts must be short."""
        return sum(len(message["content"]) for message in self.solve_prompt(task))

    def seeds(
        self, count: int, *, seed: int = 0, families: Sequence[str] | None = None, fewer: bool = False
    ) -> list[Task]:
        """A fixed list of `count` different seed tasks for the start of a buffer. Equal seeds give equal lists.

        Args:
            count (`int`): Number of tasks.
            seed (`int`, *optional*, defaults to `0`): Seed of the list.
            families (`Sequence[str]`, *optional*): Families of the tasks; default: `default_families`, or all.
            fewer (`bool`, *optional*, defaults to `False`): Whether fewer are right, if the families have no more.

        Raises:
            ValueError: If a family is unknown, or the families do not have that many different tasks.
        """
        self.check_families(families)
        rng, found = random.Random(f"{seed}/{self.id}"), {}
        for _ in range(MAX_DRAWS * count):
            if len(found) == count:
                break
            task = self.generate(rng, families=families)
            found.setdefault(task.id, task)
        if len(found) < count and not fewer:
            raise ValueError(f"{self.id}: {count} different seed tasks asked for, {len(found)} found; ask for fewer")
        return list(found.values())

    def check_families(self, families: Sequence[str] | None) -> tuple[str, ...]:
        """The families to draw from: those given, or the default ones.

        Raises:
            ValueError: For an unknown family, or an empty list.
        """
        unknown = sorted(set(families or ()) - set(self.families))
        if unknown or (families is not None and not families):
            raise ValueError(f"{self.id} has no seed families {unknown}; choose from {list(self.families)}")
        return tuple(families or self.default_families or self.families)

    def read_task(self, record: Mapping[str, Any]) -> Task:
        """Inverse of `Task.to_json`.

        Raises:
            ValueError: If the record is of another type, or its id does not belong to its content.
        """
        task = Task(**{**record, "payload": self.payload.from_json(record["payload"])})
        expected = content_id(self.id, task.payload)
        if (task.type, task.id) != (self.id, expected):
            raise ValueError(
                f"task {task.id!r} of type {task.type!r} does not match its content ({expected!r} of {self.id!r}): "
                "the record was altered"
            )
        return task


def features_of(task_type: TaskType, task: Task) -> Features | None:
    """What `features` of the type gives.

    Raises:
        ValueError: If it is nothing that can be measured; the message names the type.
    """
    found = task_type.features(task)
    if found is None:
        return None
    if not (isinstance(found, tuple) and len(found) == 3 and isinstance(found[0], Mapping)):
        raise ValueError(f"{task_type.id}: features must be (measures, space, point) or None, got {found!r:.200}")
    measures, space, point = found
    numbers = all(isinstance(x, Real) and math.isfinite(x) for x in measures.values())
    if not (numbers and all(isinstance(name, str) for name in measures)):
        raise ValueError(f"{task_type.id}: measures must be numbers by name, got {measures!r:.200}")
    if not (isinstance(space, str) and space):
        raise ValueError(f"{task_type.id}: space must be a name, got {space!r:.200}")
    if not (isinstance(point, Sequence) and len(point) == 4 and all(0 <= x <= 1 for x in point)):
        raise ValueError(f"{task_type.id}: point must be 4 numbers in [0, 1], got {point!r:.200}")
    return Features(
        {name: float(x) for name, x in measures.items()},
        space,
        (float(point[0]), float(point[1]), float(point[2]), float(point[3])),
    )


def on_scale(value: float, low: float, high: float) -> float:
    """A coordinate of [`Features`]: the place of a value on a scale from 0 at `low` to 1 at `high`."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


def refused_by(execution: Execution) -> Refusal:
    """The refusal for an execution that is not `ok`. Its reason is the status, and its detail the first error.
    `infra_error` means that the executor failed.

    Raises:
        ValueError: If the execution is `ok`.
    """
    if execution.status is Status.OK:
        raise ValueError("This execution is ok, so nothing is refused: read `execution.values`.")
    errors = (value.error for value in execution.values if value.status is execution.status)
    return Refusal(execution.status.value, execution.error or next(errors, None) or "")


def word_pairs(text: str) -> frozenset[str]:
    """Pairs of neighbouring words and signs of a text, in which all numbers are the same; of one word, the word."""
    words = ["0" if word.isdigit() else word for word in re.findall(r"[^\W\d]+|\d+|[^\w\s]", text)]
    return frozenset(map(" ".join, zip(words, words[1:], strict=False))) or frozenset(words)
