"""One round of self-play: ratings, matchmaking, rewards and the records of what happened.

No tensors and no optimisation live here: a round reads and writes plain data, and is tested with a scripted sampler.
"""

from .ratings import Match, Rating, Ratings
from .records import Attempt, Proposal, RoundRecord
from .rewards import RewardSettings
from .round import PlayedRound, RoundSettings, Row, SelfPlay
from .sampling import Completion, Sampler


__all__ = [
    "Attempt",
    "Completion",
    "Match",
    "PlayedRound",
    "Proposal",
    "Rating",
    "Ratings",
    "RewardSettings",
    "RoundRecord",
    "RoundSettings",
    "Row",
    "Sampler",
    "SelfPlay",
]
