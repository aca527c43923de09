"""What a task type is. A user adds one by writing one class with these methods, in one file.

Here: the interface, and the settings that all types share. Not here: any particular type, the list of those that come
with the package (`registry.py`), and who asks a type what in which order (`referee.py`).
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from trl_populora.executor import Execution, Job
from trl_populora.tasks.task import Answer, Draft, Payload, Refusal, Task, content_id


STYLES = ("full", "compact")
MAX_DRAWS = 200  # draws of the seed generator for each task that is wanted

Message = dict[str, str]
Run = Callable[[Sequence[Job]], list[Execution]]
"""Runs programs in the sandbox, order kept. Every rank calls it with the same jobs and gets the same executions."""


class Features(NamedTuple):
    """What diagnostics sees of a task: only what its teacher wrote itself.

    Attributes:
        measures (`Mapping[str, float]`): Complexity by name of the measure; means over a round are logged.
        space (`str`): Types whose points can be compared share a space.
        point (`tuple[float, ...]`): Place in the unit cube, 4 numbers in [0, 1], for the coverage archive.
    """

    measures: Mapping[str, float]
    space: str
    point: tuple[float, float, float, float]


@dataclass(frozen=True)
class TaskType(ABC):
    """One kind of task: its prompts, how completions are read, what is valid and what counts as solved.

    A type is a frozen dataclass without state; its settings are numbers, text, booleans, lists or mappings of these.
    Whatever a model wrote is data here: nothing of it is evaluated in this process; programs run through `run` in the
    sandbox. All its answers are functions of its arguments, so that every process of a run and every resumed run
    decides alike.

    Args:
        style (`str`, *optional*, defaults to `"full"`):
            `"full"` spells out every rule, for capable models. `"compact"` uses a few short words, for small models
            and CPU. Completions are read the same way.
        num_references (`int`, *optional*):
            How many reference tasks a proposal prompt shows at most. Default: 6 in the full style (AZR), 1 in the
            compact style (our choice).
    """

    id: ClassVar[str]
    """Name in recipes, logs and files."""
    payload: ClassVar[type[Payload]]
    """The type's own frozen record."""
    reasons: ClassVar[Mapping[str, str]] = {}
    """What this type refuses for, beside the shared `REASONS`: short name -> what it means."""
    families: ClassVar[tuple[str, ...]] = ()
    """Names of the kinds of seed tasks, if there are several."""
    default_families: ClassVar[tuple[str, ...]] = ()
    """Those of `families` that are drawn from where none are named; all of them if empty."""
    easy_families: ClassVar[tuple[str, ...]] = ()
    """Those of `families` that a small base learns first; all of them if empty."""
    reference_types: ClassVar[tuple[str, ...]] = ()
    """Types whose tasks a proposer is shown; its own if empty."""
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
        if self.num_references is not None:
            return self.num_references
        return 6 if self.style == "full" else 1

    # Proposing -------------------------------------------------------------------------------------------------

    @abstractmethod
    def propose_prompt(self, references: Sequence[Task], rng: random.Random) -> list[Message]:
        """Chat messages that ask for a new task. `rng` decides which references are shown and in which order."""

    @abstractmethod
    def parse_proposal(self, completion: str, references: Sequence[Task]) -> Draft | Refusal:
        """Reads a proposal and applies every rule that needs no execution. `references` as given to the prompt.

        Total: any text gives a `Draft` or a `Refusal`, in time linear in its length.
        """

    @abstractmethod
    def verify(self, drafts: Sequence[Draft], run: Run) -> list[Payload | Refusal]:
        """What each draft becomes: the payload of a valid task, or why it is none.

        `run` may be called any number of times, preferably once with the jobs of all drafts. Where an execution failed
        for reasons that are not the program's, the refusal is `refused_by(execution)`, which is then spared.
        """

    @abstractmethod
    def propose_completion(self, task: Task) -> str:
        """The completion that proposes exactly this task; target of the supervised warm start."""

    def example_references(self, task: Task, references: Sequence[Task]) -> Sequence[Task]:
        """The references under which `propose_completion(task)` is a right answer; all that are given, by default."""
        return references

    # Solving ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def solve_prompt(self, task: Task) -> list[Message]:
        """Chat messages that ask for the solution."""

    @abstractmethod
    def parse_answer(self, task: Task, completion: str) -> Answer | Refusal:
        """Reads an answer; total, as `parse_proposal`. A `Refusal` means badly formed: worth less than a wrong one."""

    @abstractmethod
    def judge(self, tasks: Sequence[Task], answers: Sequence[Answer], run: Run) -> list[bool | Refusal]:
        """Whether `answers[i]` solves `tasks[i]`.

        A `Refusal` may only say that the executor failed (`refused_by`). The comparison itself is made here, in the
        caller, on plain values: no object of a model decides.
        """

    @abstractmethod
    def solve_completion(self, task: Task) -> str:
        """A right answer in the wanted format; target of the supervised warm start."""

    # Stock -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def generate(self, rng: random.Random, *, families: Sequence[str] | None = None) -> Task:
        """One verified seed task, of one of the families. Equal states of `rng` give equal tasks."""

    @abstractmethod
    def simplest(self) -> Task:
        """The one task from which a run without seed tasks starts."""

    @abstractmethod
    def features(self, task: Task) -> Features | None:
        """Complexity and place of what the task's author wrote itself; `None` if it cannot be measured."""

    def key(self, payload: Any) -> str:
        """A key that payloads share only if they are the same task; by default only equal payloads do."""
        return content_id(self.id, payload)

    def describe(self, task: Task) -> str:
        """What was found to be right about a task, for people; a right answer, by default."""
        return self.solve_completion(task)

    def size(self, task: Task) -> int:
        """How long a task is as a reference, in any unit: the shortest is shown where prompts must be short."""
        return sum(len(message["content"]) for message in self.solve_prompt(task))

    def seeds(self, count: int, *, seed: int = 0, families: Sequence[str] | None = None) -> list[Task]:
        """A fixed set of `count` different seed tasks; what a buffer starts from. Equal seeds give equal lists.

        Raises:
            ValueError: If a family is unknown, or the families do not hold that many different tasks.
        """
        self.check_families(families)
        rng, found = random.Random(f"{seed}/{self.id}"), {}
        for _ in range(MAX_DRAWS * max(count, 1)):
            if len(found) >= count:
                return list(found.values())
            task = self.generate(rng, families=families)
            found.setdefault(task.id, task)
        raise ValueError(f"{self.id} has fewer than {count} different seed tasks, found {len(found)}; ask for fewer")

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


def refused_by(execution: Execution) -> Refusal:
    """The refusal that stands for an execution that is not `ok`: its status, `infra_error` being nobody's fault."""
    return Refusal(execution.status.value, execution.error or "")
