"""Routing: every row of a batch runs through the adapter of the member it belongs to.

PEFT's own adapter path stays disabled, so an un-routed forward is the frozen base, exactly. A forward hook on each
LoRA layer adds the members' contributions: rows are brought into member order once per batch, the members' factors are
stacked as `(N, r, d)`, and two batched matmuls serve all members (blocks of unequal size take one pair of matmuls
each). PEFT's parameters stay the only storage; gradients reach them through the stack.

Nothing is patched: hooks are registered once and removed by `close()`. The plan stays set until it is cleared, because
gradient checkpointing runs the hooks again during the backward pass.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn


@dataclass(frozen=True)
class Plan:
    """Which rows belong to whom, in member order.

    Attributes:
        members (`tuple[str, ...]`): Members present in the batch, in the population's order.
        sizes (`tuple[int, ...]`): Rows of each of them.
        order (`torch.Tensor` of shape `(batch,)` or `None`): Row indices sorted by member; `None` if already sorted.
        inverse (`torch.Tensor` of shape `(batch,)` or `None`): Inverse permutation of `order`.
    """

    members: tuple[str, ...]
    sizes: tuple[int, ...]
    order: Tensor | None
    inverse: Tensor | None

    @property
    def rows(self) -> int:
        return sum(self.sizes)


class Routing:
    """Adds each row's member contribution to every LoRA layer of `model`.

    Args:
        model (`torch.nn.Module`): Model holding PEFT LoRA layers.
        names (`Sequence[str]`): Adapter names, in the population's order.
    """

    def __init__(self, model: nn.Module, names: Sequence[str]):
        self.layers: dict[str, LoraLayer] = {
            name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)
        }
        self._rank = {name: i for i, name in enumerate(names)}
        self._plan: Plan | None = None
        self._cache: dict[int, tuple[Tensor, Tensor]] = {}
        self._handles = [layer.register_forward_hook(self._add_members) for layer in self.layers.values()]

    def set(self, names_per_row: Sequence[str]) -> None:
        """Route the rows of the following forwards; stays until `clear()`.

        Raises:
            ValueError: If a name is not a member.
        """
        unknown = sorted(set(names_per_row) - set(self._rank))
        if unknown:
            raise ValueError(f"Cannot route rows to {unknown}: the members are {list(self._rank)}.")
        keys = [self._rank[name] for name in names_per_row]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        members = sorted(set(names_per_row), key=self._rank.__getitem__)
        sizes = tuple(sum(name == member for name in names_per_row) for member in members)
        order_t = inverse_t = None
        if order != list(range(len(keys))):
            device = next(iter(self.layers.values())).lora_A[members[0]].weight.device
            order_t = torch.tensor(order, device=device)
            inverse_t = torch.argsort(order_t)
        self._plan, self._cache = Plan(tuple(members), sizes, order_t, inverse_t), {}

    def clear(self) -> None:
        """Following forwards are the frozen base."""
        self._plan, self._cache = None, {}

    @contextmanager
    def rows(self, names_per_row: Sequence[str]) -> Iterator[None]:
        """Context in which row `i` of every forward (and its backward) runs as `names_per_row[i]`."""
        before = self._plan
        self.set(names_per_row)
        try:
            yield
        finally:
            self._plan, self._cache = before, {}

    @contextmanager
    def base(self) -> Iterator[None]:
        """Context in which forwards are the frozen base; the plan before is restored afterwards."""
        before, self._plan = self._plan, None
        try:
            yield
        finally:
            self._plan = before

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _stacked(self, layer: LoraLayer, plan: Plan) -> tuple[Tensor, Tensor]:
        """Factors of the plan's members as A `(N, d_in, r)` and scaled B `(N, r, d_out)`."""
        if not torch.is_grad_enabled() and id(layer) in self._cache:
            return self._cache[id(layer)]
        A = torch.stack([layer.lora_A[name].weight for name in plan.members]).transpose(1, 2)
        B = torch.stack([layer.lora_B[name].weight * layer.scaling[name] for name in plan.members]).transpose(1, 2)
        if not torch.is_grad_enabled():
            self._cache[id(layer)] = (A, B)
        return A, B

    def _add_members(self, layer: LoraLayer, args: tuple, output: Tensor) -> Tensor | None:
        plan = self._plan
        if plan is None:
            return None
        x = args[0]
        if x.shape[0] != plan.rows:
            raise ValueError(
                f"A LoRA layer received a batch of {x.shape[0]} rows while {plan.rows} rows are routed. Layers that "
                "regroup rows (mixture-of-experts, packed sequences) cannot be adapted per member."
            )
        A, B = self._stacked(layer, plan)
        x = x.to(A.dtype)
        x = x if plan.order is None else x[plan.order.to(x.device)]
        if len(set(plan.sizes)) == 1:
            N = len(plan.members)
            delta = torch.bmm(torch.bmm(x.reshape(N, -1, x.shape[-1]), A), B).view(*x.shape[:-1], -1)
        else:
            blocks = x.split(plan.sizes)
            delta = torch.cat([block @ a @ b for block, a, b in zip(blocks, A, B, strict=True)])
        delta = delta if plan.inverse is None else delta[plan.inverse.to(x.device)]
        return (output + delta).to(output.dtype)
