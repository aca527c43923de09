"""Guests: champions of the past as opponents in a round. Where they are kept is not known here.

In a crossed pairing the guest student attempts what the teacher proposed, and the student gets what the guest teacher
wrote to the same prompts. Members' rows are as many as ever and nobody learns from a guest's; games with guests are
recorded, not rated.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..tasks import TaskType
from .records import Proposal
from .requests import Request, solve_request
from .settings import RoundSettings


class Guest(NamedTuple):
    """A champion of the past that plays one round, and does not learn.

    Attributes:
        player (`str`): Who it is to the sampler, such as `"guest_0"`.
        name (`str`): Who it is in the record, such as `"teacher_1@3"`.
    """

    player: str
    name: str


class Guests(NamedTuple):
    """The guests of one round: the teacher that crossed students meet, the student that crossed teachers meet."""

    teacher: Guest
    student: Guest


class Crossing(NamedTuple):
    """What guests do in a round; nothing, if there are none.

    Attributes:
        guests ([`Guests`] or `None`): Who they are.
    """

    guests: Guests | None = None

    def probability(self, settings: RoundSettings) -> float:
        """How often a pairing is crossed."""
        return settings.guest_probability if self.guests else 0.0

    def requests(self, own: Sequence[Request], slots: Sequence[int]) -> list[Request]:
        """The guest teacher gets the prompts of the crossed slots."""
        return [
            own[i]._replace(player=self.guests.teacher.player, name=self.guests.teacher.name, slot=i, learns=False)
            for i in slots
        ]

    def games(
        self, proposals: Sequence[Proposal], slots: Sequence[int], task_types: Mapping[str, TaskType], group_size: int
    ) -> list[Request]:
        """The guest student gets the valid tasks of crossed slots, `group_size` attempts at each."""
        games: list[Request] = []
        for slot in slots:
            proposal = proposals[slot]
            if proposal.task is not None:
                rest = {"opponent": proposal.member, "slot": slot, "name": self.guests.student.name, "learns": False}
                game = solve_request(self.guests.student.player, task_types[proposal.type], proposal.task, **rest)
                games += [game] * group_size
        return games


NOBODY = Crossing()
