"""Limits in tokens: of a student's prompt, of the right answer, and of a teacher's prompt.

The caller passes the function that counts tokens, so this module needs no tokenizer.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..tasks import Refusal, Task, TaskBuffer, TaskType
from .sampling import Message


@dataclass(frozen=True)
class TokenLimits:
    """Limits in tokens (our choice).

    Args:
        count (`Callable[[str | list[Message]], int]`): Number of tokens of a text, or of a rendered conversation.
        prompt (`int`): Maximum tokens of a prompt, of a teacher or a student.
        answer (`int`): Maximum tokens of a task's right answer in its block.

    Raises:
        ValueError: If a limit is below 1.
    """

    count: Callable[[str | list[Message]], int]
    prompt: int
    answer: int

    def __post_init__(self) -> None:
        for name in ("prompt", "answer"):
            if getattr(self, name) < 1:
                raise ValueError(f"The {name} limit must be at least 1 token, got {getattr(self, name)}.")

    def refuse(self, task_type: TaskType, task: Task) -> Refusal | None:
        """The refusal of a task whose right answer, or whose prompt for the student, is too long; `None` if it
        fits."""
        answer = self.count(task_type.solve_completion(task))
        if answer > self.answer:
            return Refusal("answer_too_long", f"the answer has {answer} tokens, at most {self.answer} are allowed")
        prompt = self.count(task_type.solve_prompt(task))
        if prompt > self.prompt:
            return Refusal("prompt_too_long", f"the prompt has {prompt} tokens, at most {self.prompt} are allowed")
        return None

    def fits(self, task_type: TaskType, task: Task) -> bool:
        """Whether the task's prompt for the student fits."""
        return self.count(task_type.solve_prompt(task)) <= self.prompt

    def playable(self, task_type: TaskType, tasks: Iterable[Task]) -> list[Task]:
        """The tasks whose prompt for the student fits.

        Raises:
            ValueError: If none does.
        """
        fitting = [task for task in tasks if self.fits(task_type, task)]
        if not fitting:
            raise ValueError(
                f"max_prompt_tokens={self.prompt} is too small for every {task_type.id} task of the start. Raise it."
            )
        return fitting

    def check(self, task_types: Mapping[str, TaskType], buffer: TaskBuffer) -> None:
        """Raises `ValueError` if the shortest teacher's prompt of some type does not fit."""
        for task_type in task_types.values():
            self._smallest(task_type, buffer, random.Random(0))

    def fit(
        self, task_type: TaskType, references: Sequence[Task], buffer: TaskBuffer, rng: random.Random
    ) -> tuple[list[Message], Sequence[Task]]:
        """A teacher's prompt that fits, and its references.

        References are dropped from the end until the prompt fits. A type that needs a reference, such as `code_f`,
        gets the shortest program in play instead.
        """
        while True:
            prompt = task_type.propose_prompt(references, rng)
            if self.count(prompt) <= self.prompt:
                return prompt, references
            if len(references) <= task_type.min_references:
                return self._smallest(task_type, buffer, rng)
            references = references[:-1]

    def _smallest(
        self, task_type: TaskType, buffer: TaskBuffer, rng: random.Random
    ) -> tuple[list[Message], Sequence[Task]]:
        references = buffer.shortest(task_type.id, task_type.min_references)
        prompt = task_type.propose_prompt(references, rng)
        needed = self.count(prompt)
        if needed > self.prompt:
            raise ValueError(
                f"max_prompt_tokens={self.prompt} is too small: the shortest prompt that asks for a {task_type.id} "
                f"task has {needed} tokens. Raise it, or set prompt_style='compact'."
            )
        return prompt, references
