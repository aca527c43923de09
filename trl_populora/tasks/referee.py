"""The referee judges proposals and answers, for self-play, evaluation, warm start and the command line.

An answer is solved, wrong, refused (badly formed) or spared. Spared means that its execution failed for reasons that
are not the program's, so it is not known whether it is right. Rewards are computed in other modules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from trl_populora.tasks.base import Run, TaskType
from trl_populora.tasks.parsing import MAX_COMPLETION
from trl_populora.tasks.task import INFRASTRUCTURE, Answer, Draft, Payload, Refusal, Task, is_spared


Item = TypeVar("Item", Draft, Answer)


class Verdict(NamedTuple):
    """Verdict on one answer. Exactly one of solved, wrong, refused and spared is true.

    Attributes:
        solved (`bool`): The answer is right.
        refusal (`Refusal` or `None`): Why no answer could be read or, if it is spared, judged.
    """

    solved: bool
    refusal: Refusal | None = None

    @property
    def spared(self) -> bool:
        """Whether the executor failed, and not the program."""
        return is_spared(self.refusal)

    @property
    def refused(self) -> bool:
        """No answer could be read."""
        return self.refusal is not None and not self.spared

    @property
    def wrong(self) -> bool:
        """An answer was read, judged and found wrong."""
        return not self.solved and self.refusal is None


class Referee:
    """Calls the task types, with all completions of one type in one batch.

    Args:
        task_types (`Mapping[str, TaskType]`): Types by id.
        run (`Run`): Runs programs, such as `Executor.run_many`.
    """

    def __init__(self, task_types: Mapping[str, TaskType], run: Run) -> None:
        self.task_types, self.run = dict(task_types), run

    def parse(
        self, types: Sequence[str], completions: Sequence[str], references: Sequence[Sequence[Task]]
    ) -> list[Draft | Refusal]:
        """Parses proposals. No program runs."""
        return [
            _too_long(text) or self.task_types[name].parse_proposal(text, shown)
            for name, text, shown in zip(types, completions, references, strict=True)
        ]

    def verify(self, types: Sequence[str], drafts: Sequence[Draft | Refusal]) -> list[Payload | Refusal]:
        """Verifies the drafts. Refusals stay refusals."""
        payloads = self._by_type(types, drafts, Draft, "verify", lambda kind, _, own: kind.verify(own, self.run))
        for name, payload in zip(types, payloads, strict=True):
            if not isinstance(payload, (self.task_types[name].payload, Refusal)):
                raise TypeError(f"{name}: `verify` gave {payload!r:.100}: give a payload of the type, or a Refusal.")
        return payloads

    def judge(self, tasks: Sequence[Task], completions: Sequence[str]) -> list[Verdict]:
        """Parses and judges `completions[i]` as an answer to `tasks[i]`.

        Raises:
            ValueError: If lengths differ, or the type of a task is unknown.
        """
        if len(tasks) != len(completions):
            raise ValueError(f"{len(tasks)} tasks and {len(completions)} completions: give one completion per task.")
        unknown = sorted({task.type for task in tasks} - set(self.task_types))
        if unknown:
            raise ValueError(f"Tasks of type {unknown} cannot be judged; known types are {sorted(self.task_types)}.")
        answers = [
            _too_long(text) or self.task_types[task.type].parse_answer(task, text)
            for task, text in zip(tasks, completions, strict=True)
        ]
        judged = self._by_type(
            [task.type for task in tasks],
            answers,
            Answer,
            "judge",
            lambda kind, places, own: kind.judge([tasks[i] for i in places], own, self.run),
        )
        judged = [one.item() if hasattr(one, "item") else one for one in judged]  # of NumPy's
        for task, one in zip(tasks, judged, strict=True):
            if not isinstance(one, (bool, Refusal)):
                raise TypeError(f"{task.type}: `judge` gave {one!r:.100}: give True, False or a Refusal.")
        return [Verdict(False, one) if isinstance(one, Refusal) else Verdict(one) for one in judged]

    def _by_type(
        self,
        types: Sequence[str],
        items: Sequence[Item | Refusal],
        wanted: type,
        method: str,
        call: Callable[[TaskType, list[int], list[Item]], list],
    ) -> list[Any]:
        """`items` without changes to refusals, and all others replaced by the results of `method` of their types.

        Raises:
            TypeError: If a type breaks its contract: an item is not `wanted`, or there is not one result for each.
        """
        own: dict[str, tuple[list[int], list[Item]]] = defaultdict(lambda: ([], []))
        for i, (name, item) in enumerate(zip(types, items, strict=True)):
            if not isinstance(item, Refusal):
                if not isinstance(item, wanted):
                    raise TypeError(
                        f"{name}: a completion was read as {item!r:.100}: give {wanted.__name__} or Refusal."
                    )
                own[name][0].append(i)
                own[name][1].append(item)
        results: list[Any] = list(items)
        for name, (places, several) in own.items():
            given = call(self.task_types[name], places, several)
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise TypeError(f"{name}: `{method}` gave {given!r:.100}: give a list with one result for each.")
            given = list(given)
            if len(given) != len(places):
                raise TypeError(f"{name}: `{method}` gave {len(given)} results for {len(places)}: give one for each.")
            for i, result in zip(places, given, strict=True):
                spared = isinstance(result, Refusal) and is_spared(result)
                results[i] = INFRASTRUCTURE if spared else result
        return results


def _too_long(completion: str) -> Refusal | None:
    return Refusal("too_large", "the completion") if len(completion) > MAX_COMPLETION else None
