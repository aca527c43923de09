"""`RoundSettings`: the shape of a round, and where its random numbers come from."""

import zlib
from dataclasses import dataclass, field

from .rewards import RewardSettings


@dataclass(frozen=True)
class RoundSettings:
    """Shape of a round.

    Args:
        prompts_per_teacher (`int`, *optional*, defaults to `1`): Proposal prompts per teacher, P.
        num_generations (`int`, *optional*, defaults to `8`): Completions per prompt and attempts per task, G.
        num_references (`int`, *optional*, defaults to `6`): Reference tasks shown to a proposer, K.
        pairing (`str`, *optional*, defaults to `"variance"`): Method of [`pair`].
        pairing_floor (`float`, *optional*, defaults to `0.1`): Uniform share in the pairing.
        guest_probability (`float`, *optional*, defaults to `0.0`): Chance that both sides of a pairing meet guests.
        balance_rows (`bool`, *optional*, defaults to `False`): Each student learns from P of its tasks only.
        rewards ([`RewardSettings`], *optional*): What outcomes are worth.
        seed (`int`, *optional*, defaults to `0`): Seed of everything random in a round.
    """

    prompts_per_teacher: int = 1
    num_generations: int = 8
    num_references: int = 6
    pairing: str = "variance"
    pairing_floor: float = 0.1
    guest_probability: float = 0.0
    balance_rows: bool = False
    rewards: RewardSettings = field(default_factory=RewardSettings)
    seed: int = 0

    def __post_init__(self):
        if not 0 <= self.guest_probability <= 1:
            raise ValueError(f"guest_probability lies in [0, 1], got {self.guest_probability}.")

    def seed_for(self, round: int, purpose: str) -> int:
        """Seed of one of the things that are random in a round."""
        return zlib.crc32(f"{self.seed}:{round}:{purpose}".encode())
