"""`RewardRatings`: fitness by the reward earned, where there are no games to rate."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from ..self_play import Rating


class RewardRatings:
    """Mean reward of each member over its last rounds.

    It has the methods of [`Ratings`] that evolution calls. A member's `mu` is the mean of its last `window` rounds
    with a reward, `sigma` is the standard error of that mean (0 for a single round), and its fitness is `mu`. (Our
    choice: all members are measured equally often, so subtracting the uncertainty would change little.)

    Args:
        names (`Sequence[str]`): Members.
        window (`int`): Rounds that count.
    """

    def __init__(self, names: Sequence[str], *, window: int) -> None:
        self.window = window
        self._rewards = {name: deque(maxlen=window) for name in names}

    def __getitem__(self, name: str) -> Rating:
        rewards = self._rewards[name]
        mu = fmean(rewards) if rewards else math.nan
        sigma = stdev(rewards) / math.sqrt(len(rewards)) if len(rewards) > 1 else 0.0
        return Rating(mu, sigma)

    def fitness(self, name: str) -> float:
        """Mean reward; NaN for a member that no reward function has scored yet."""
        return self[name].mu

    def update(self, rewards: Mapping[str, Sequence[float]]) -> None:
        """Adds a round: the rewards of each member's rows. What is not finite (NaN: not scored) does not count."""
        for name, values in rewards.items():
            scored = [value for value in values if math.isfinite(value)]
            if scored:
                self._rewards[name].append(fmean(scored))

    def inherit(self, child: str, parents: Sequence[str], *, begin: bool = True) -> Rating:
        """Gives the new member of a slot the mean of its parents as its only observation, if a parent has rewards.

        `begin` is not used, because these ratings have no intervals.
        """
        known = [self[parent].mu for parent in parents if self._rewards[parent]]
        self._rewards[child] = deque([fmean(known)] if known else [], maxlen=self.window)
        return self[child]

    def state_dict(self) -> dict:
        return {"rewards": {name: list(values) for name, values in self._rewards.items()}}

    def load_state_dict(self, state: dict) -> None:
        """Restores what [`RewardRatings.state_dict`] gave; refuses a state of other members."""
        if state["rewards"].keys() != self._rewards.keys():
            raise ValueError(
                f"The state rates {sorted(state['rewards'])}, but this population has {sorted(self._rewards)}. Build "
                "it with the same members."
            )
        self._rewards = {name: deque(state["rewards"][name], maxlen=self.window) for name in self._rewards}
