"""An exam: questions that never change for a name and version, and the grader of the answers.

Held-out tasks, fixed tasks of other runs and public benchmarks are all exams. Other modules make the questions
(`held_out.py`, `benchmarks/`) and collect answers (`answering.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ..extras import MissingPackageError
from ..self_play.sampling import Message
from ..tasks import Run


if TYPE_CHECKING:
    from .grading import Grader


@dataclass(frozen=True)
class Question:
    """One question of an exam.

    Args:
        id (`str`): Unique in its exam.
        prompt (`list[Message]`): Chat messages, the same for all players.
        reference (`str`): Data that the grader needs to judge an answer, as JSON. No prompt shows it.
        group (`str`, *optional*): Type, subject or level, for the breakdown of scores.

    Raises:
        TypeError: If one is something else, or the content of a message is no text.
        ValueError: If a text holds half of a surrogate pair, which no tokenizer takes.
    """

    id: str
    prompt: list[Message]
    reference: str
    group: str = ""

    def __post_init__(self) -> None:
        for name in ("id", "reference", "group"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"the {name} of a question must be a str, got {getattr(self, name)!r:.100}")
        messages = self.prompt if isinstance(self.prompt, list) else []
        texts: list[Any] = [one.get(key) for one in messages for key in ("role", "content") if isinstance(one, dict)]
        if len(texts) != 2 * len(messages) or not texts or not all(isinstance(text, str) for text in texts):
            raise TypeError(
                f"the prompt of question {self.id!r} must be a list of chat messages whose role and content are "
                f"texts, got {self.prompt!r:.100}"
            )
        for text in (self.id, self.reference, self.group, *texts):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"question {self.id!r} has a text that is not Unicode ({error.reason}): {text!r:.100}"
                ) from None


@dataclass(frozen=True)
class Exam:
    """A fixed list of questions.

    Args:
        name (`str`): Name in recipes, files and trackers, such as `"gsm8k"` or `"gsm8k[:50]"`.
        questions (`tuple[Question, ...]`): At least one; ids are unique.
        grader (`Callable[[Run | None], Grader]`): Makes the grader from the function that runs programs in the
            sandbox.
        max_completion_length (`int`, *optional*): Maximum tokens of an answer; that of the run if unset.
        samples (`int`, *optional*, defaults to `1`), temperature (`float`, *optional*, defaults to `0.0`):
            Values that the literature uses for it besides greedy pass@1, such as 32 samples at 0.6. They are used only
            on request.
        source (`Mapping[str, str]`, *optional*): Origin of the questions: file and its SHA-256, or Hub id and
            revision.
        of_tasks (`bool`, *optional*, defaults to `False`): Whether the questions are tasks, with [`Task.to_json`] as
            references. Then a run can keep them out of what it learns from.

    Raises:
        ValueError: If it has no name or no question, or two questions share an id.
    """

    name: str
    questions: tuple[Question, ...]
    grader: Callable[[Run | None], Grader]
    max_completion_length: int | None = None
    samples: int = 1
    temperature: float = 0.0
    source: Mapping[str, str] = field(default_factory=dict)
    of_tasks: bool = False

    def __post_init__(self) -> None:
        ids = [question.id for question in self.questions]
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"an exam needs a name, got {self.name!r}.")
        if not ids:
            raise ValueError(f"the exam {self.name!r} has no questions.")
        if len(set(ids)) < len(ids):
            twice = next(one for one in ids if ids.count(one) > 1)
            raise ValueError(f"the exam {self.name!r} has two questions with the id {twice!r}; ids must be unique.")

    @property
    def version(self) -> str:
        """Hash of all questions (ids, prompts and references), 12 hexadecimal digits. Scores of different versions
        cannot be compared."""
        return _digest([one.id, one.prompt, one.reference] for one in self.questions)

    @property
    def prompts(self) -> str:
        """Hash of ids and prompts only. Answers depend on these, and not on the grading."""
        return _digest([one.id, one.prompt] for one in self.questions)

    @property
    def file_stem(self) -> str:
        """The name as a file name: [`plain_name`], with a hash if it has other signs."""
        plain = plain_name(self.name)
        stem = re.sub(r"[^\w.-]+", "_", plain).strip("_.")
        return stem if stem == plain else f"{stem[-60:]}-{sha256(self.name.encode()).hexdigest()[:6]}"

    def make_grader(self, run: Run | None) -> Grader:
        """The grader.

        Args:
            run (`Run`, *optional*): Runs programs in the sandbox; see [`Grader`].

        Raises:
            ValueError: If it cannot be made; a [`MissingPackageError`] if a package is missing.
        """
        from .grading import Grader

        try:
            grader = self.grader(run)
        except MissingPackageError:
            raise
        except OSError as error:
            raise ValueError(f"exam {self.name!r}: its grader cannot be made: {error}.") from error
        except Exception as error:  # a user's function
            fault = f"{type(error).__name__}: {error}"
        else:
            if not isinstance(grader, Grader):
                fault = f"it gave {grader!r:.100}"
            elif not hasattr(grader, "_run"):
                fault = f"{type(grader).__name__}.__init__ must call super().__init__(run)"
            else:
                return grader
        raise ValueError(
            f"exam {self.name!r}: its grader {self.grader!r:.100} must be a Grader class, or a function of `run` that "
            f"makes a Grader ({fault})."
        )

    def first(self, count: int) -> Exam:
        """The first `count` questions as a separate exam, `"name[:count]"`; the exam itself if it has no more."""
        if count < 1:
            raise ValueError(f"{self.name}[:{count}]: an exam needs at least one question.")
        if count >= len(self.questions):
            return self
        whole = re.sub(r"\[:\d+\]$", "", self.name)
        return replace(self, name=f"{whole}[:{count}]", questions=self.questions[:count])


def plain_name(name: str) -> str:
    """An exam's name without brackets: `"livecodebench[2024-08-01:2025-02-01][:50]"` is
    `"livecodebench_from_2024-08-01_to_2025-02-01_50"`."""

    def window(found: re.Match[str]) -> str:
        return "".join(f"_{word}_{day}" for word, day in zip(("from", "to"), found.groups(), strict=True) if day)

    return re.sub(r"\[(\d{4}-\d\d-\d\d)?:(\d{4}-\d\d-\d\d)?\]", window, re.sub(r"\[:(\d+)\]$", r"_\1", name))


def _digest(parts: Iterable[list[Any]]) -> str:
    """What `digest` gives for a list of these parts, at least one. There is no copy of the whole list as text, which
    may take gigabytes."""
    found = sha256()
    for number, part in enumerate(parts):
        found.update(f"{', ' if number else '['}{json.dumps(part)}".encode("ascii"))
    found.update(b"]")
    return found.hexdigest()[:12]
