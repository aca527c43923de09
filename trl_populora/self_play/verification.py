"""From completions to proposals: parsed, checked for duplicates and held-out tasks, verified by the referee, and
measured in tokens."""

from collections.abc import Sequence

from ..tasks import INFRASTRUCTURE, Draft, Referee, Refusal, Task, TaskBuffer
from .asks import Ask
from .lengths import TokenLimits
from .records import Proposal
from .sampling import Completion


def verify(
    asks: Sequence[Ask],
    written: Sequence[Completion],
    *,
    referee: Referee,
    buffer: TaskBuffer,
    lengths: TokenLimits | None,
    group_size: int,
    step: int,
) -> tuple[Proposal, ...]:
    """What became of each completion. `group_size` completions of one prompt share a group."""
    types = [ask.type.id for ask in asks]
    drafts = referee.parse(types, [one.text for one in written], [ask.references for ask in asks])
    drafts, first = _refuse_known(asks, drafts, buffer)
    outcomes = referee.verify(types, drafts)
    proposals = []
    for i, (ask, completion, outcome) in enumerate(zip(asks, written, outcomes, strict=True)):
        if outcomes[first.get(i, i)] == INFRASTRUCTURE:
            outcome = INFRASTRUCTURE
        elif not isinstance(outcome, Refusal):
            outcome = Task.create(ask.type.id, outcome, author=ask.member, step=step)
            if lengths is not None:
                outcome = lengths.refuse(ask.type, outcome) or outcome
        kind = "refusal" if isinstance(outcome, Refusal) else "task"
        proposals.append(
            Proposal(
                ask.member,
                ask.type.id,
                completion.text,
                group=(i if ask.slot is None else ask.slot) // group_size,
                tokens=len(completion.ids),
                prompt_tokens=len(completion.prompt_ids),
                learned=ask.learns,
                prompt=ask.prompt,
                **{kind: outcome},
            )
        )
    return tuple(proposals)


def _refuse_known(
    asks: Sequence[Ask], drafts: Sequence[Draft | Refusal], buffer: TaskBuffer
) -> tuple[list[Draft | Refusal], dict[int, int]]:
    """Refuse what is reserved, what the buffer knows and what a teacher writes twice in a round.

    Who does not learn may repeat itself and the buffer, but nobody may set a reserved task: students learn from it.

    Also returns, for each of these drafts, the number of the first like it: if that is spared, so is its copy.
    """
    first: dict[tuple[str, str], int] = {}
    checked, like = [], {}
    for i, (ask, draft) in enumerate(zip(asks, drafts, strict=True)):
        if isinstance(draft, Draft) and draft.key in buffer.reserved:
            draft = Refusal("held_out", "the task belongs to an exam, up to names and layout of the program")
        elif isinstance(draft, Draft) and ask.learns:
            like[i] = first.setdefault((ask.player, draft.key), i)
            if buffer.knows(draft.key) or like[i] < i:
                draft = Refusal("duplicate", "the task exists already, up to names and layout of the program")
        checked.append(draft)
    return checked, like
