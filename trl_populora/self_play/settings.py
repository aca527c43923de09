"""`RoundSettings`: size and rules of a round, and the seeds of its random numbers."""

import zlib
from dataclasses import dataclass, field

from .rewards import RewardSettings


@dataclass(frozen=True)
class RoundSettings:
    """Size and rules of a round.

    Args:
        prompts_per_teacher (`int`, *optional*, defaults to `1`): Proposal prompts per teacher, P.
        num_generations (`int`, *optional*, defaults to `8`): Completions per prompt and attempts per task, G.
        num_references (`int`, *optional*, defaults to `6`): Reference tasks that a teacher's prompt shows, K.
        pairing (`str`, *optional*, defaults to `"variance"`): Method of [`pair`].
        pairing_floor (`float`, *optional*, defaults to `0.1`): Share of uniform weights in the pairing.
        guest_probability (`float`, *optional*, defaults to `0.0`): Probability that both sides of a
            pairing play against guests.
        balance_rows (`bool`, *optional*, defaults to `False`): Each student learns from P of its tasks only.
        solvable_attempts (`int`, *optional*, defaults to `4`): With the teacher reward `"solvable"`, extra attempts
            of other students at each valid task that its own student did not solve. Nobody learns from them.
        solvable_rounds (`int`, *optional*, defaults to `0`): With `"solvable"`, the number of later rounds in which an
            unsolved task may still be solved, H. Teachers then learn from their proposals H rounds later.
        rewards ([`RewardSettings`], *optional*): Rewards of the outcomes.
        seed (`int`, *optional*, defaults to `0`): Seed of all random numbers in a round.
    """

    prompts_per_teacher: int = 1
    num_generations: int = 8
    num_references: int = 6
    pairing: str = "variance"
    pairing_floor: float = 0.1
    guest_probability: float = 0.0
    balance_rows: bool = False
    solvable_attempts: int = 4
    solvable_rounds: int = 0
    rewards: RewardSettings = field(default_factory=RewardSettings)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.guest_probability <= 1:
            raise ValueError(f"guest_probability must be between 0 and 1, got {self.guest_probability}.")
        for name in ("solvable_attempts", "solvable_rounds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative.")
        if self.solvable_rounds and self.rewards.sharing:
            raise ValueError(
                f"sharing={self.rewards.sharing} in reward_kwargs with solvable_rounds={self.solvable_rounds}: late "
                "rewards cannot be shared among the tasks of a round. Set one of them to 0."
            )
        if self.solvable_rounds and not self.rewards.asks_others:
            raise ValueError(
                f"solvable_rounds={self.solvable_rounds} with teacher_reward={self.rewards.teacher!r}: this reward "
                "does not depend on who else solves a task. Set teacher_reward to 'solvable', or solvable_rounds to 0."
            )

    @property
    def extra_attempts(self) -> int:
        """Extra attempts at each unsolved task: 0 unless the teacher's reward depends on who else solves it."""
        return self.solvable_attempts if self.rewards.asks_others else 0

    def seed_for(self, round: int, purpose: str) -> int:
        """Seed of one of the things that are random in a round."""
        return zlib.crc32(f"{self.seed}:{round}:{purpose}".encode())
