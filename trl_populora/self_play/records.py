"""Records of a round: proposals, attempts and their results, as plain frozen data.

Records hold facts and can be converted to flat rows. Other modules make all decisions (pairing, judging, rewards).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..run_files.round_table import COLUMNS
from ..tasks.task import Refusal, Task
from .ratings import Match
from .sampling import Message


PROPOSALS = ("proposals", "guest_proposals", "late_proposals")
ATTEMPTS = ("attempts", "guest_attempts", "extra_attempts")


@dataclass(frozen=True)
class Proposal:
    """One completion of a proposal prompt.

    Attributes:
        member (`str`): Teacher that wrote it.
        type (`str`): Task type of its prompt.
        completion (`str`): Text as generated.
        group (`int`): Proposals of one prompt share a group.
        task (`Task`, *optional*): The task it became, if it is valid.
        refusal (`Refusal`, *optional*): Why it is not valid. Exactly one of `task` and `refusal` is given.
        reward (`float`, *optional*): `None` before rewards are computed, or if it is valid and was not played. With
            `solvable_rounds`, it is the reward as known at the end of the round, and `late_proposals` has the final
            one.
        solve_rate (`float`, *optional*): Share of its student's attempts that solved it.
        tokens (`int`, *optional*, defaults to `0`): Length of the completion.
        prompt_tokens (`int`, *optional*, defaults to `0`): Length of the prompt.
        learned (`bool`, *optional*, defaults to `True`): Whether the teacher learns from it in this round. With
            `solvable_rounds`, it learns from the copy in the `late_proposals` of a later round instead.
        prompt (`list[Message]`, *optional*): Chat messages that it answers.
    """

    member: str
    type: str
    completion: str
    group: int
    task: Task | None = None
    refusal: Refusal | None = None
    reward: float | None = None
    tokens: int = 0
    prompt_tokens: int = 0
    learned: bool = True
    solve_rate: float | None = None
    prompt: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        if (self.task is None) == (self.refusal is None):
            raise ValueError(
                f"A proposal carries a task or a refusal, one of the two; got task={self.task!r} and "
                f"refusal={self.refusal!r} for {self.member!r}."
            )

    @property
    def valid(self) -> bool:
        return self.task is not None

    @property
    def verdict(self) -> str:
        """`"valid"`, or the reason of its refusal."""
        return "valid" if self.refusal is None else self.refusal.reason


@dataclass(frozen=True)
class Attempt:
    """One completion of a solving prompt.

    Attributes:
        member (`str`): Student that wrote it.
        task (`Task`): Task that it attempts.
        completion (`str`): Text as generated.
        group (`int`): The attempts of one student at one task share a group.
        solved (`bool`): Whether the answer was judged right.
        refusal (`Refusal`, *optional*): Why no answer could be read; such an attempt is never solved.
        opponent (`str`, *optional*):
            Teacher of the game. `None` for a fill-in (a task from the buffer), which is not a game and rewards only
            the student. A champion of the past is named by slot and version, `"teacher_1@3"`.
        reward (`float`, *optional*): `None` until rewarded.
        tokens (`int`, *optional*, defaults to `0`): Length of the completion.
        prompt_tokens (`int`, *optional*, defaults to `0`): Length of the prompt.
        learned (`bool`, *optional*, defaults to `True`): Whether it is one of the rows to learn from.
        prompt (`list[Message]`, *optional*): Chat messages that it answers.
    """

    member: str
    task: Task
    completion: str
    group: int
    solved: bool = False
    refusal: Refusal | None = None
    opponent: str | None = None
    reward: float | None = None
    tokens: int = 0
    prompt_tokens: int = 0
    learned: bool = True
    prompt: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.solved and self.refusal is not None:
            raise ValueError(f"An attempt refused for {self.refusal.reason!r} cannot be solved ({self.member!r}).")

    @property
    def valid(self) -> bool:
        return self.refusal is None

    @property
    def verdict(self) -> str:
        """`"solved"`, `"wrong"`, or the reason of its refusal."""
        if self.refusal is not None:
            return self.refusal.reason
        return "solved" if self.solved else "wrong"


@dataclass(frozen=True)
class RoundRecord:
    """Everything one round of self-play produced.

    Attributes:
        round (`int`): Number of the round, from 0.
        step (`int`): Training step at which it was played.
        proposals (`tuple[Proposal, ...]`): In the order of their prompts.
        attempts (`tuple[Attempt, ...]`): In the order of their prompts.
        matches (`tuple[Match, ...]`): Outcome of each pairing of members.
        guest_proposals (`tuple[Proposal, ...]`): Proposals of a champion of the past; nobody learns from them.
        guest_attempts (`tuple[Attempt, ...]`): A champion's attempts at members' tasks; they only reward the teacher.
        extra_attempts (`tuple[Attempt, ...]`): Attempts that only show whether somebody can solve a task. They are not
            games, and nobody learns from them.
        late_proposals (`tuple[Proposal, ...]`): Proposals of an earlier round that teachers learn from in this round.
            Those of a replaced teacher have no reward and are not `learned`.
    """

    round: int
    step: int
    proposals: tuple[Proposal, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    matches: tuple[Match, ...] = ()
    guest_proposals: tuple[Proposal, ...] = ()
    guest_attempts: tuple[Attempt, ...] = ()
    extra_attempts: tuple[Attempt, ...] = ()
    late_proposals: tuple[Proposal, ...] = ()

    @property
    def settled_proposals(self) -> tuple[Proposal, ...]:
        """Proposals with their final rewards: those of this round or, with late rewards, the `late_proposals`."""
        return (*(proposal for proposal in self.proposals if proposal.learned), *self.late_proposals)

    def rows(self, versions: Mapping[str, int] | None = None) -> Iterator[dict[str, Any]]:
        """One flat row per completion, proposals first, with the keys of `COLUMNS`.

        `versions` has the version of each member. Advantages are added later.
        """
        for role, names in (("teacher", PROPOSALS), ("student", ATTEMPTS)):
            for name in names:
                head = {"round": self.round, "step": self.step, "role": role, "kind": _kind(name)}
                yield from (_row(item, head, versions or {}) for item in getattr(self, name))


def _kind(name: str) -> str:
    """`kind` of the rows of a group of the record: its first word, if it has two."""
    return name.split("_")[0] if "_" in name else "learned"


def _row(item: Proposal | Attempt, head: dict[str, Any], versions: Mapping[str, int]) -> dict[str, Any]:
    task, refusal = item.task, item.refusal
    known = {
        "version": None if head["kind"] == "late" and not item.learned else versions.get(item.member),
        "task": task.id if task else None,
        "author": task.author if task else None,
        "task_step": task.step if task else None,
        "payload": json.dumps(task.payload.to_json()) if task else None,
        "valid": item.valid,
        "reason": refusal.reason if refusal else None,
        "detail": refusal.detail if refusal else None,
        "prompt": json.dumps(item.prompt),
    }
    if isinstance(item, Attempt):
        filled = {"learned": item.opponent is None, "guest": False}
        known |= {"type": item.task.type, "fill_in": filled.get(head["kind"])}
    values = vars(item) | head | known
    return {column: values.get(column) for column in COLUMNS}
