"""From completions to proposals: parsed, checked for duplicates and held-out tasks, verified by the referee, and
measured in tokens."""

from collections.abc import Sequence

from ..tasks import INFRASTRUCTURE, Draft, Referee, Refusal, Task, TaskBuffer
from .lengths import TokenLimits
from .records import Proposal
from .requests import Request
from .sampling import Completion


HELD_OUT = Refusal("held_out", "the task shows a question of an exam with an answer")


def verify(
    requests: Sequence[Request],
    written: Sequence[Completion],
    *,
    referee: Referee,
    buffer: TaskBuffer,
    lengths: TokenLimits | None,
    group_size: int,
    step: int,
) -> tuple[Proposal, ...]:
    """Makes a proposal from each completion. `group_size` completions of one prompt share a group."""
    types = [request.type.id for request in requests]
    drafts = referee.parse(types, [one.text for one in written], [request.references for request in requests])
    drafts, first = _refuse_known(requests, drafts, buffer)
    outcomes = referee.verify(types, drafts)
    proposals = []
    for i, (request, completion, outcome) in enumerate(zip(requests, written, outcomes, strict=True)):
        if outcomes[first.get(i, i)] == INFRASTRUCTURE:
            outcome = INFRASTRUCTURE
        elif not isinstance(outcome, Refusal):
            outcome = Task.create(request.type.id, outcome, author=request.member, step=step)
            if buffer.reserves(outcome):  # by its outputs, which were not known before, or one of its pairs
                outcome = HELD_OUT
            elif lengths is not None:
                outcome = lengths.refuse(request.type, outcome) or outcome
        proposals.append(
            Proposal(
                request.member,
                request.type.id,
                completion.text,
                group=(i if request.slot is None else request.slot) // group_size,
                tokens=len(completion.ids),
                prompt_tokens=len(completion.prompt_ids),
                learned=request.learns,
                prompt=request.prompt,
                task=None if isinstance(outcome, Refusal) else outcome,
                refusal=outcome if isinstance(outcome, Refusal) else None,
            )
        )
    return tuple(proposals)


def _refuse_known(
    requests: Sequence[Request], drafts: Sequence[Draft | Refusal], buffer: TaskBuffer
) -> tuple[list[Draft | Refusal], dict[int, int]]:
    """Refuses tasks that are reserved, that the buffer knows, or that a teacher writes twice in a round.

    A guest, which does not learn, may repeat itself and the buffer. But it may not propose a reserved task, because
    students learn from it.

    Also returns the number of the first equal draft for each of these drafts. If that one is spared, its copy is
    spared, too.
    """
    first: dict[tuple[str, str], int] = {}
    checked, like = [], {}
    for i, (request, draft) in enumerate(zip(requests, drafts, strict=True)):
        if isinstance(draft, Draft) and draft.key in buffer.reserved:
            draft = HELD_OUT
        elif isinstance(draft, Draft) and request.learns:
            like[i] = first.setdefault((request.player, draft.key), i)
            if buffer.knows(draft.key) or like[i] < i:
                draft = Refusal("duplicate", "the task exists already, up to names and layout of the program")
        checked.append(draft)
    return checked, like
