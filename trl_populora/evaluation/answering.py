"""Members answer an exam, all in one batch and the base separately. Then the answers are graded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..run_files.run import BASE
from ..self_play.sampling import SampleFunc
from .exam import Exam
from .grading import Grade, Grader


@dataclass(frozen=True)
class Sample:
    """One answer.

    Attributes:
        player (`str`): Member that wrote it, or `"base"`.
        question (`int`): Index of the question in its exam.
        number (`int`): Which of the player's samples of this question it is, from 0.
        text (`str`): The completion.
        tokens, prompt_tokens (`int`): Length of the completion and of its prompt.
        grade ([`Grade`] or `None`): Its grade; `None` before grading.
    """

    player: str
    question: int
    number: int
    text: str
    tokens: int
    prompt_tokens: int
    grade: Grade = None  # pyright: ignore[reportAssignmentType]  # only until `grade` has been called


def collect_answers(
    exam: Exam,
    members: Sequence[str],
    sampler: SampleFunc,
    *,
    base: bool = True,
    samples: int = 1,
    seed: int = 0,
    rows_per_call: int = 64,
    answered: Sequence[Sample] = (),
    on_answers: Callable[[list[Sample]], None] | None = None,
) -> list[Sample]:
    """Lets members answer an exam.

    A call of the sampler has rows of similar length, and the rows of all members for a question.

    Args:
        exam ([`Exam`]): The questions.
        members (`Sequence[str]`): Names, as the sampler knows them.
        sampler ([`SampleFunc`]): Samples completions. Temperature and length must already be set
            ([`Sampler.decoding`]). Member `None` is the frozen base, which answers in separate calls.
        base (`bool`, *optional*, defaults to `True`): Whether the base answers, too, under the name `"base"`.
        samples (`int`, *optional*, defaults to `1`): Completions per question and player.
        seed (`int`, *optional*, defaults to `0`): Seed of sampling, if the temperature is not 0.
        rows_per_call (`int`, *optional*, defaults to `64`): Rows in one call of the sampler.
        answered (`Sequence[Sample]`, *optional*): Rows of an earlier, interrupted call with the same arguments.
        on_answers (`Callable`, *optional*): Called with the new samples after each call of the sampler.

    Returns:
        `list[Sample]`: By player, question and number; not graded.
    """
    lengths = [sum(len(message["content"]) for message in one.prompt) for one in exam.questions]
    by_length = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    known = {(one.player, one.question, one.number): one for one in answered}
    for players in (list(members), [BASE] if base else []):
        rows = [(player, i, k) for i in by_length for k in range(samples) for player in players]
        for start in range(0, len(rows), rows_per_call):
            wanted = [row for row in rows[start : start + rows_per_call] if row not in known]
            if not wanted:
                continue
            written = sampler(
                [exam.questions[i].prompt for _, i, _ in wanted],
                [None if player == BASE else player for player, _, _ in wanted],
                seed=seed,
                streams=[i * samples + k for _, i, k in wanted],  # a row's noise depends on the row alone
            )
            new = [
                Sample(*row, one.text, tokens=len(one.ids), prompt_tokens=len(one.prompt_ids))
                for row, one in zip(wanted, written, strict=True)
            ]
            known.update(((one.player, one.question, one.number), one) for one in new)
            if on_answers is not None:
                on_answers(new)
    players = [*members, *([BASE] if base else [])]
    return [known[player, i, k] for player in players for i in range(len(exam.questions)) for k in range(samples)]


def grade(exam: Exam, answers: Sequence[Sample], grader: Grader) -> list[Sample]:
    """The samples with their grades. Equal answers to a question are judged once."""
    unique = dict.fromkeys((one.question, one.text) for one in answers)
    grades = grader.grade([text for _, text in unique], [exam.questions[i].reference for i, _ in unique])
    known = dict(zip(unique, grades, strict=True))
    return [replace(one, grade=known[one.question, one.text]) for one in answers]
