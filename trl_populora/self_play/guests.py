"""Guests: champions of the past as opponents in a round. (Other modules store the champions.)

In a crossed pairing, the guest student attempts the teacher's tasks. The student attempts tasks that the guest teacher
wrote for the same prompts. Members have as many rows as without guests, and nobody learns from a guest's rows. Games
with guests are recorded but not rated.
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
        player (`str`): Its name for the sampler, such as `"guest_0"`.
        name (`str`): Its name in the record, such as `"teacher_1@3"`.
    """

    player: str
    name: str


class Guests(NamedTuple):
    """The guests of one round: a teacher for crossed students, and a student for crossed teachers."""

    teacher: Guest
    student: Guest


class Crossing(NamedTuple):
    """The part of guests in a round. Without guests, it does nothing.

    Attributes:
        guests ([`Guests`] or `None`): The guests of the round.
    """

    guests: Guests | None = None

    def probability(self, settings: RoundSettings) -> float:
        """Probability that a pairing is crossed."""
        return settings.guest_probability if self.guests else 0.0

    def requests(self, own: Sequence[Request], slots: Sequence[int]) -> list[Request]:
        """Requests for the guest teacher, with the prompts of the crossed proposals."""
        if self.guests is None:
            return []
        player, name = self.guests.teacher
        return [own[i]._replace(player=player, name=name, slot=i, learns=False) for i in slots]

    def games(
        self, proposals: Sequence[Proposal], slots: Sequence[int], task_types: Mapping[str, TaskType], group_size: int
    ) -> list[Request]:
        """Requests for the guest student, with `group_size` attempts at each valid crossed task."""
        games: list[Request] = []
        if self.guests is None:
            return games
        guest = self.guests.student
        for slot in slots:
            proposal = proposals[slot]
            if proposal.task is not None:
                rest = {"opponent": proposal.member, "slot": slot, "name": guest.name, "learns": False}
                game = solve_request(guest.player, task_types[proposal.type], proposal.task, **rest)
                games += [game] * group_size
        return games


NOBODY = Crossing()
