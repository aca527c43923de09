"""Lets a team of players take exams. It can be interrupted and resumed, and it combines the results.

A *team* is a population, or only the base. `populora evaluate` and the final exams of a run use this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

import torch

from ..generation import Sampler
from ..run_files.run import BASE
from ..tasks import Run
from .answering import Sample, collect_answers, grade
from .answers import AnswerFile
from .exam import Exam
from .results import ExamResult


class GradingError(ValueError):
    """Answers were sampled and stored, but could not be graded."""


@dataclass(frozen=True)
class Decoding:
    """Settings of sampling.

    Args:
        samples (`int`, *optional*, defaults to `1`): Answers per question and player.
        temperature (`float`, *optional*, defaults to `0.0`): Sampling temperature; 0 is greedy decoding.
        max_completion_length (`int`, *optional*): Maximum tokens of an answer. If unset, that of the exam, or else
            that of the sampler.
        seed (`int`, *optional*, defaults to `0`): Seed of sampling.
        rows_per_call (`int`, *optional*, defaults to `64`): Rows in one call of the sampler.

    Raises:
        ValueError: If a number is out of its range, or several samples would all be the same.
    """

    samples: int = 1
    temperature: float = 0.0
    max_completion_length: int | None = None
    seed: int = 0
    rows_per_call: int = 64

    def __post_init__(self) -> None:
        for name in ("samples", "max_completion_length", "rows_per_call"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1.")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature={self.temperature} must be a number of at least 0.")
        if self.samples > 1 and not self.temperature:
            raise ValueError(
                f"samples={self.samples} at temperature 0 would all be the same. Set a temperature above 0, such as "
                "0.6, or take one sample."
            )

    def for_exam(self, exam: Exam, sampler: Sampler) -> Decoding:
        """These settings with the maximum length for this exam and sampler."""
        length = self.max_completion_length or exam.max_completion_length or sampler.max_completion_length
        return replace(self, max_completion_length=length)


@dataclass(frozen=True)
class ExamRun:
    """One team's graded answers to one exam.

    Args:
        result ([`ExamResult`]): Answers and grades.
        decoding ([`Decoding`]): Settings of sampling.
        generation, grading (`float`): Seconds of each.
        files (`tuple[AnswerFile, ...]`): Files with the answers, until they are saved in a table.
    """

    result: ExamResult
    decoding: Decoding
    generation: float
    grading: float
    files: tuple[AnswerFile, ...]


def check_length(exam: Exam, sampler: Sampler, *, max_completion_length: int | None = None) -> None:
    """Refuses an exam whose prompts cannot be rendered, or do not fit into the sampler beside an answer.

    Args:
        exam ([`Exam`]): The exam.
        sampler ([`Sampler`]): Samples the answers.
        max_completion_length (`int`, *optional*): Maximum tokens of an answer; that of the exam or the run if unset.

    Raises:
        ValueError: If it cannot be given.
    """
    limit = sampler.max_length
    try:
        longest = max(sampler.count_tokens(one.prompt) for one in exam.questions[: 1 if limit is None else None])
    except Exception as error:  # a chat template is a program of its author
        raise ValueError(
            f"the prompts of {exam.name!r} cannot be rendered ({' '.join(str(error).split())[:200]}). Use a model "
            "with a chat template that takes user messages, or in self-play prompt_template='base'."
        ) from None
    answer = max_completion_length or exam.max_completion_length or sampler.max_completion_length
    if limit is not None and longest + answer > limit:
        raise ValueError(
            f"the longest prompt of {exam.name!r} has {longest} tokens and an answer up to {answer}, more than "
            f"the {limit} of the engine. Raise vllm_max_model_length (`populora evaluate`: max_model_len in "
            "--vllm-engine-kwargs), or ask for shorter answers (probe_kwargs.max_completion_length, "
            "--max-completion-length)."
        )


def take_exam(
    exam: Exam,
    members: Sequence[str],
    sampler: Sampler,
    run: Run,
    *,
    folder: str,
    decoding: Decoding = Decoding(),
    base: bool = True,
    identity: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> ExamRun:
    """Lets a team take or continue an exam, and grades the answers.

    Args:
        exam ([`Exam`]): The questions.
        members (`Sequence[str]`): Members of the sampler's population.
        sampler ([`Sampler`]): Samples the answers.
        run (`Run`): Runs programs in the sandbox.
        folder (`str`): Folder for the answers during the exam.
        decoding ([`Decoding`], *optional*): Settings of sampling.
        base (`bool`, *optional*, defaults to `True`): Whether the base answers, too.
        identity (`Mapping`, *optional*): Other data that determine the answers: fingerprints of the weights, and
            versions.
        on_progress (`Callable`, *optional*): Called with the number of existing answers and of all answers.

    Raises:
        ValueError: If the grader cannot be made, or another process takes this exam in this folder; no answer is
            sampled then.
        GradingError: If the grader fails on every answer. The answers stay in their file.
    """
    decoding, grader = decoding.for_exam(exam, sampler), exam.make_grader(run)
    header = {
        "exam": exam.name,
        "prompts": exam.prompts,
        "players": [*members, *([BASE] if base else [])],
        "decoding": asdict(decoding),
        "template": sampler.template,
        **({"chat_template": sampler.tokenizer.chat_template} if sampler.template == "chat" else {}),
        **({"chat_template_kwargs": sampler.chat_template_kwargs} if sampler.chat_template_kwargs else {}),
        **(identity or {}),
    }
    file = AnswerFile(folder, exam.file_stem, header)
    total = len(header["players"]) * len(exam.questions) * decoding.samples
    done, clock = len(file.answered), time.monotonic()
    tell, progress = on_progress or (lambda done, total: None), sampler.progress
    tell(done, total)
    progress.begin(exam.name, total, "answers", done=done)

    def keep(new: list[Sample]) -> None:
        nonlocal done, clock
        now = time.monotonic()
        file.add(new, now - clock)
        done, clock = done + len(new), now
        progress.reach(done)
        tell(done, total)

    try:
        with sampler.decoding(temperature=decoding.temperature, max_completion_length=decoding.max_completion_length):
            answers = collect_answers(
                exam,
                members,
                sampler,
                base=base,
                samples=decoding.samples,
                seed=decoding.seed,
                rows_per_call=decoding.rows_per_call,
                answered=file.answered,
                on_answers=keep,
            )
    finally:
        file.release()
    started = time.monotonic()
    progress.begin(f"{exam.name}, grading")
    graded = grade(exam, answers, grader)
    if all(one.grade.broke_the_grader for one in graded):
        raise GradingError(
            f"{exam.name}: {graded[0].grade.detail.rstrip('.')}, on every answer. The answers are kept in "
            f"{file.path}; correct the grader or its data, and run the same command to grade them."
        )
    return ExamRun(ExamResult(exam, graded), decoding, file.seconds, time.monotonic() - started, (file,))


def merged(runs: Mapping[str, ExamRun], *, named: bool) -> ExamRun:
    """Combines several teams' answers to one exam, with those of the base last.

    Args:
        runs (`Mapping[str, ExamRun]`): Results by name of the team. Only one of them may include the base.
        named (`bool`): Call player `"student_0"` of team `"run"` `"run/student_0"`.
    """
    samples = [
        replace(one, player=f"{team}/{one.player}" if named and one.player != BASE else one.player)
        for team, run in runs.items()
        for one in run.result.samples
    ]
    first = next(iter(runs.values()))
    return ExamRun(
        ExamResult(first.result.exam, sorted(samples, key=lambda one: one.player == BASE)),
        first.decoding,
        sum(run.generation for run in runs.values()),
        sum(run.grading for run in runs.values()),
        tuple(file for run in runs.values() for file in run.files),
    )


def base_fingerprint(sampler: Sampler) -> str:
    """A hash of the base's weights as float32, 16 hexadecimal digits: the same in whatever precision they are kept."""
    weights, digest = sampler.population.base_model.state_dict(), sha256()
    for name in sorted(weights):
        if ".lora_" not in name:
            tensor = weights[name].detach().to(device="cpu", dtype=torch.float32).contiguous()
            digest.update(f"{name.replace('.base_layer.', '.')}{tuple(tensor.shape)}".encode())
            digest.update(tensor.numpy())
    return digest.hexdigest()[:16]
