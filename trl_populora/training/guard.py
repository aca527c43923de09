"""`Guard`: stops and resets a member whose numbers are not finite. The others continue."""

import math
from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from ..population import Population


PATIENCE = 3


class Guard:
    """Watches every member for values that are not finite.

    A member whose gradient is not finite takes no update in that round. It returns to its last stored weights: those
    of the start, of its birth, of the last recombination, or of the last checkpoint. So a resumed run returns to the
    same weights. Other members are not affected, because the gradient of a row passes only through the adapter of its
    member, and a recombination leaves out whoever failed in its round. After `PATIENCE` such rounds in a row, the
    member is frozen: it still plays, but it does not learn until evolution replaces it. All of this is our choice.

    Args:
        population ([`Population`]): Members to watch.
    """

    def __init__(self, population: Population) -> None:
        self.population = population
        self.strikes: Counter[str] = Counter()
        self.begin_round()
        self._good: dict[str, list[Tensor]] = {}

    def frozen(self, name: str) -> bool:
        return self.strikes[name] >= PATIENCE

    @property
    def failing(self) -> set[str]:
        """Members that were reset in this round, or are frozen."""
        return self._struck | {name for name in self.population if self.frozen(name)}

    def remember(self, names: Iterable[str] | None = None) -> None:
        """Copies weights to host memory, except those of members that failed in this or the last round."""
        for name in self.population if names is None else names:
            if not self.strikes[name] and name not in self._struck:
                self._good[name] = [p.detach().to("cpu", copy=True) for p in self.population.parameters(name)]

    def born(self, name: str) -> None:
        """Called when a child has replaced the member: its failures are reset."""
        self.strikes.pop(name, None)
        self._struck.discard(name)
        self.remember([name])

    def hold_back(self, norms: dict[str, float]) -> list[str]:
        """Members that take no step now: those that were reset in this round, also by this call because their
        gradient norm is not finite, and frozen ones."""
        for name, norm in norms.items():
            if not math.isfinite(norm) and not self.frozen(name):
                self._set_back(name, f"gradient norm {norm}")
        return [name for name in norms if name in self.failing]

    @torch.no_grad()
    def inspect(self) -> list[str]:
        """Resets members whose weights are not finite, after a step and before saving or evolution; returns their
        names."""
        owners, parameters = zip(
            *[(n, p) for n in self.population for p in self.population.parameters(n)], strict=True
        )
        norms = torch.stack(torch._foreach_norm(parameters, ord=float("inf"))).cpu().tolist()
        broken = list(dict.fromkeys(n for n, norm in zip(owners, norms, strict=True) if not math.isfinite(norm)))
        for name in broken:
            self._set_back(name, "weights that are not finite")
        return broken

    def end_round(self) -> tuple[str, ...]:
        """Updates the failure counts of all members; returns messages about this round."""
        for name in self.population:
            if name in self._struck:
                self.strikes[name] += 1
                if self.frozen(name):
                    self.alarms.append(f"{name} is frozen after {PATIENCE} such rounds, until evolution replaces it")
            elif not self.frozen(name):
                self.strikes.pop(name, None)
        alarms = tuple(self.alarms)
        self.begin_round()
        return alarms

    def begin_round(self) -> None:
        """Forgets what has happened in a round."""
        self.alarms, self._struck = [], set()

    def state_dict(self) -> dict:
        return {"strikes": dict(self.strikes)}

    def load_state_dict(self, state: dict) -> None:
        self.strikes = Counter(state["strikes"])
        self._good = {
            name: [p.detach().to("cpu", copy=True) for p in self.population.parameters(name)]
            for name in self.population
        }

    def _set_back(self, name: str, seen: str) -> None:
        with torch.no_grad():
            for parameter, good in zip(self.population.parameters(name), self._good[name], strict=True):
                parameter.copy_(good)
        if name not in self._struck:
            self._struck.add(name)
            self.alarms.append(f"{name}: {seen}; reset to its last stored weights")
