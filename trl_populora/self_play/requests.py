"""`Request`: one prompt for one player in a round; prompts for proposals and solutions; sampling the completions."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..tasks import Task, TaskBuffer, TaskType
from .lengths import TokenLimits
from .pairing import scheduled_type
from .sampling import Completion, Message, SampleFunc
from .settings import RoundSettings


class Request(NamedTuple):
    """One prompt for one player.

    Attributes:
        player (`str`): Name of the player for the sampler. name (`str`): Its name in the record, if that differs.
        type ([`TaskType`]): Type of the proposed task, or of `task`.
        prompt (`list[Message]`): Chat messages.
        references (`Sequence[Task]`): Tasks that a teacher's prompt shows. task (`Task`): Task that a student must
            solve.
        opponent (`str` or `None`): Author of the task, if this attempt is a game.
        slot (`int` or `None`): Number of the proposal that a student attempts, in whose place it fills in, or whose
            prompt a guest answers.
        learns (`bool`): Whether the player may learn from it.
    """

    player: str
    type: TaskType
    prompt: list[Message]
    references: Sequence[Task] = ()
    task: Task | None = None
    opponent: str | None = None
    slot: int | None = None
    name: str = ""
    learns: bool = True

    @property
    def member(self) -> str:
        return self.name or self.player


def proposal_requests(
    teachers: Sequence[str],
    task_types: Mapping[str, TaskType],
    buffer: TaskBuffer,
    *,
    round: int,
    settings: RoundSettings,
    lengths: TokenLimits | None,
) -> Iterator[Request]:
    """G requests per teacher and prompt, with the schedule of types that all teachers share."""
    types, P = list(task_types), settings.prompts_per_teacher
    for teacher in teachers:
        for p in range(P):
            rng = random.Random(settings.seed_for(round, f"ask:{teacher}:{p}"))
            task_type = task_types[scheduled_type(types, round=round, prompt=p, prompts_per_teacher=P)]
            request = proposal_request(teacher, task_type, buffer, rng, settings=settings, lengths=lengths)
            yield from [request] * settings.num_generations


def proposal_request(
    teacher: str,
    task_type: TaskType,
    buffer: TaskBuffer,
    rng: random.Random,
    *,
    settings: RoundSettings,
    lengths: TokenLimits | None,
) -> Request:
    """The prompt that asks for a task of a type, with references drawn from the buffer."""
    most = max(settings.num_references, task_type.min_references)
    references = buffer.references(task_type.id, most, rng)
    if lengths is None:
        prompt = task_type.propose_prompt(references, rng)
    else:
        prompt, references = lengths.fit(task_type, references, buffer, rng)
    return Request(teacher, task_type, prompt, references)


def solve_request(player: str, task_type: TaskType, task: Task, **rest: Any) -> Request:
    """The prompt that asks for a solution of a task."""
    return Request(player, task_type, task_type.solve_prompt(task), task=task, **rest)


def draw(sampler: SampleFunc, requests: Sequence[Request], seed: int) -> list[Completion]:
    """One completion for each request.

    Raises:
        ValueError: If the sampler returns another number of completions.
    """
    written = sampler([request.prompt for request in requests], [request.player for request in requests], seed=seed)
    if len(written) != len(requests):
        raise ValueError(f"The sampler returned {len(written)} completions for {len(requests)} prompts.")
    return written
