"""`MemberUpdates`: one optimizer for the whole population, with separate scale, clipping and moments for each
member."""

import math
from collections import Counter, defaultdict

import torch
from accelerate.utils import broadcast
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..population import Population
from .guard import Guard
from .scored_rows import ScoredRows


class MemberUpdates:
    """Makes each member's update equal to that of a trainer with only its rows.

    Args:
        population ([`Population`]): Members.
        guard ([`Guard`]): Decides which members take no step.
        max_grad_norm (`float`): Each member's gradient is clipped to this norm, separately.
        by_token (`bool`): Whether TRL normalises the loss by tokens (dapo, cispo, vespo) or by rows (grpo, dr_grpo,
            sapo, luspo).

    Attributes:
        scales (`dict[str, float]`): Factor on each member's gradient in this round.
        idle (`set[str]`): Members of which no row has a reward in this round. They take no step: there is nothing to
            learn, and Adam's moments would move them, and age (our choice).
        grad_norms (`dict[str, float]`): Norms before clipping in the newest step, for members that took it.
        norms (`dict[str, list[float]]`): The same in all steps of this round.
        counts (`Counter[str]`): Optimizer steps that each member took in this round.
    """

    def __init__(self, population: Population, guard: Guard, *, max_grad_norm: float, by_token: bool) -> None:
        self.population, self.guard = population, guard
        self.max_grad_norm, self.by_token = max_grad_norm, by_token
        self.scales: dict[str, float] = {}
        self.idle: set[str] = set()
        self.grad_norms: dict[str, float] = {}
        self.begin_round()

    def groups(self, *, weight_decay: float) -> list[dict]:
        """Parameter groups of the optimizer: one per member, with its own learning rate."""
        return [
            {
                "params": self.population.parameters(name),
                "lr": member.learning_rate,
                "weight_decay": weight_decay,
                "member": name,
            }
            for name, member in self.population.items()
        ]

    def check(self, optimizer: Optimizer) -> None:
        """Raises `ValueError` if the optimizer has no group for each member, as one that a subclass makes."""
        members = [group.get("member") for group in optimizer.param_groups]
        if members != list(self.population):
            raise ValueError(
                "The optimizer must have one group of parameters for each member, in their order, with its name as "
                f"'member'; the groups have {members}. In create_optimizer, start from super().create_optimizer(), or "
                "from trainer.updates.groups(weight_decay=...)."
            )

    def rescale(self, rows: ScoredRows) -> None:
        """Sets the scales for a round, and which members are idle.

        TRL divides the loss by all tokens of the round, or by all rows. A member's gradient comes only from its own
        rows. So the factor total / own gives exactly the loss of a trainer with only these rows.
        """
        own = Counter(dict.fromkeys(self.population, 0))
        for name, tokens in zip(rows.members, rows.loss_tokens, strict=True):
            own[name] += tokens if self.by_token else 1
        total = own.total()
        self.scales = {name: total / n if n else 0.0 for name, n in own.items()}
        scored = {name for name, reward in zip(rows.members, rows.rewards, strict=True) if math.isfinite(reward)}
        self.idle = set(self.population) - scored

    def clip(self, optimizer: Optimizer) -> torch.Tensor:
        """Scales and clips every member's gradient, and removes the gradients of members that are idle or that
        the guard stops.

        Returns:
            `torch.Tensor`: The norm of the gradients of all members that take the step, together, before clipping.
        """
        names = list(self.population)
        members = [(i, p) for i, name in enumerate(names) for p in self.population.parameters(name)]
        owners, gradients = zip(*[(i, p.grad) for i, p in members if p.grad is not None], strict=True)
        # All members in one pass and one transfer to the host: no cost per member but that of reading its gradient.
        squares = torch.stack(torch._foreach_norm(gradients)).cpu().double().square()
        scales = torch.tensor([self.scales[name] for name in names], dtype=torch.float64)
        norms = scales * torch.zeros_like(scales).index_add_(0, torch.tensor(owners), squares).sqrt()
        factors = (scales * (self.max_grad_norm / (norms + 1e-6)).clamp(max=1.0)).tolist()
        torch._foreach_mul_(gradients, [factors[i] for i in owners])
        self.grad_norms = dict(zip(names, norms.tolist(), strict=True))
        stopped = self.guard.hold_back(self.grad_norms)
        for name in stopped:
            self.forget(name, optimizer)
        for name in self.idle.union(stopped):
            del self.grad_norms[name]
            for parameter in self.population.parameters(name):
                parameter.grad = None
        self.counts.update(self.grad_norms.keys())
        for name, norm in self.grad_norms.items():
            self.norms[name].append(norm)
        return torch.tensor(list(self.grad_norms.values()), dtype=torch.float64).norm().float()

    def set_back(self, optimizer: Optimizer) -> None:
        """After a step: resets members whose weights are not finite, and drops their optimizer moments."""
        for name in self.guard.inspect():
            self.forget(name, optimizer)
            self.counts[name] = 0

    def forget(self, name: str, optimizer: Optimizer) -> None:
        """Drops the optimizer moments of a member."""
        for parameter in self.population.parameters(name):
            optimizer.state.pop(parameter, None)

    def start_over(self, name: str, optimizer: Optimizer, scheduler: LRScheduler | None) -> None:
        """Starts a child without optimizer moments, at its own learning rate, with the same weights on every
        process."""
        self.spread(name)
        self.forget(name, optimizer)
        self.guard.born(name)
        for i, group in enumerate(optimizer.param_groups):
            if group["member"] == name and scheduler is not None:
                rate = self.population[name].learning_rate
                group["lr"] *= rate / group["initial_lr"] if group["initial_lr"] else 1.0
                group["initial_lr"] = scheduler.base_lrs[i] = rate
                scheduler._last_lr[i] = group["lr"]  # what Trainer logs

    def spread(self, name: str) -> None:
        """Gives every process the weights that a member has on the first."""
        for parameter in self.population.parameters(name):
            parameter.data.copy_(broadcast(parameter.data))  # pyright: ignore[reportArgumentType]  # a tensor, too

    def begin_round(self) -> None:
        """Resets `norms` and `counts`."""
        self.norms: defaultdict[str, list[float]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
