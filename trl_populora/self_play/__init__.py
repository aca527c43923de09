"""One round of self-play: ratings, matchmaking, rewards and the records of what happened.

There are no tensors and no optimisation here. A round reads and writes plain data, and tests play it with prepared
texts.
"""

from .evidence import Outcome
from .guests import Crossing, Guest, Guests
from .late import Row
from .lengths import TokenLimits
from .ratings import Match, Rating, Ratings
from .records import Attempt, Proposal, RoundRecord
from .rewards import RewardSettings
from .round import PlayedRound, SelfPlay
from .sampling import Completion, SampleFunc
from .settings import RoundSettings


__all__ = [
    "Attempt",
    "Completion",
    "Crossing",
    "Guest",
    "Guests",
    "Match",
    "Outcome",
    "PlayedRound",
    "Proposal",
    "Rating",
    "Ratings",
    "RewardSettings",
    "RoundRecord",
    "RoundSettings",
    "Row",
    "SampleFunc",
    "SelfPlay",
    "TokenLimits",
]
