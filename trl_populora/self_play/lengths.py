"""Limits in tokens: of a student's prompt, the right answer, and a teacher's prompt. And whether tokens keep a text.

The caller passes the functions that count tokens and read a text back, so this module needs no tokenizer.
"""

import os
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
        read (`Callable[[str], str]`, *optional*): A text as members read and write it: encoded and decoded. Some
            tokenizers change a text. Those of Qwen turn the Kelvin sign into a K, for instance. Then a student would
            be asked about another program than the one that ran.

    Raises:
        ValueError: If a limit is below 1.
    """

    count: Callable[[str | list[Message]], int]
    prompt: int
    answer: int
    read: Callable[[str], str] = str

    def __post_init__(self) -> None:
        for name in ("prompt", "answer"):
            if getattr(self, name) < 1:
                raise ValueError(f"The {name} limit must be at least 1 token, got {getattr(self, name)}.")

    def refuse(self, task_type: TaskType, task: Task) -> Refusal | None:
        """The refusal of a task whose right answer, or whose prompt for the student, is too long or changed by the
        tokenizer; `None` if it fits."""
        answer = self.count(task_type.solve_completion(task))
        if answer > self.answer:
            return Refusal("answer_too_long", f"the answer has {answer} tokens, at most {self.answer} are allowed")
        prompt = self.count(task_type.solve_prompt(task))
        if prompt > self.prompt:
            return Refusal("prompt_too_long", f"the prompt has {prompt} tokens, at most {self.prompt} are allowed")
        return self.changed(task_type, task)

    def changed(self, task_type: TaskType, task: Task) -> Refusal | None:
        """The refusal of a task whose prompt or right answer is another text after the tokenizer; `None` if not."""
        for text in (
            *(message["content"] for message in task_type.solve_prompt(task)),
            task_type.solve_completion(task),
        ):
            if (read := self.read(text)) != text:
                place = len(os.path.commonprefix([text, read]))
                before, after = (ascii(one[place : place + 12]) for one in (text, read))
                return Refusal("reserved_text", f"the tokenizer turns {before} into {after}")
        return None

    def fits(self, task_type: TaskType, task: Task) -> bool:
        """Whether the task's prompt for the student fits, and the tokenizer keeps it."""
        return self.count(task_type.solve_prompt(task)) <= self.prompt and self.changed(task_type, task) is None

    def playable(self, task_type: TaskType, tasks: Iterable[Task]) -> list[Task]:
        """The tasks whose prompt for the student fits.

        Raises:
            ValueError: If none does.
        """
        fitting = [task for task in tasks if self.fits(task_type, task)]
        if not fitting:
            raise ValueError(
                f"max_prompt_tokens={self.prompt} is too small for every {task_type.id} task of the start. Raise it; "
                "if you have not set it, raise the length of the sampler, or lower max_completion_length."
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
