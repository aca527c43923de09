"""Guests: champions of the past as opponents in a round. Where they are kept is not known here."""

from typing import NamedTuple


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
