"""`Slab`: the values of all adapters in one tensor, and their gradients in another.

PEFT's parameters are views of a row each, so whoever reads, writes, moves or saves them sees ordinary parameters. What
the row adds is that neighbours lie at equal distances: their factors of a layer are one strided tensor without a copy,
and gradients, which live longer than activations, are not allocated between them. Where somebody has moved a parameter
elsewhere (`.to()`, `.data = ...`), it is stacked and accumulated as PyTorch does, until [`Slab.gather`].
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Slab:
    """Storage of equally large adapters, one row for each.

    Attributes:
        values (`torch.Tensor` of shape `(adapters, parameters of one)`): Of all adapters, A before B, layer by layer.
    """

    values: Tensor

    def __init__(self, adapters: int) -> None:
        self.adapters = adapters
        self._gradients: Tensor | None = None

    @torch.no_grad()
    def place(self, row: int, parameters: Sequence[nn.Parameter]) -> None:
        """Moves an adapter into its row. The first one sets the size of a row, device and dtype."""
        sizes = [p.numel() for p in parameters]
        if row == 0:
            self.values, self._gradients = parameters[0].new_empty(self.adapters, sum(sizes)), None
        for parameter, part in zip(parameters, self.values[row].split(sizes), strict=True):
            parameter.data = part.view(parameter.shape).copy_(parameter)

    def holds(self, parameter: nn.Parameter) -> bool:
        """Whether the parameter is still a view of this slab."""
        return parameter.untyped_storage()._cdata == self.values.untyped_storage()._cdata

    def stacked(self, parameters: Sequence[nn.Parameter]) -> Tensor:
        """The same matrix of several adapters, as `(adapters, ...)`: a view, if their distances are equal."""
        if torch.is_grad_enabled() and all(map(self.holds, parameters)):
            return _Stack.apply(self, *parameters)  # pyright: ignore[reportReturnType]  # one tensor
        return self._read(parameters)

    def _read(self, parameters: Sequence[nn.Parameter]) -> Tensor:
        first, offsets = parameters[0], [int(p.storage_offset()) for p in parameters]
        step = (offsets[-1] - offsets[0]) // max(1, len(offsets) - 1)
        even = all(offset == offsets[0] + i * step for i, offset in enumerate(offsets))
        if step < 0 or not even or not all(map(self.holds, parameters)):
            return torch.stack(list(parameters))
        return first.detach().as_strided((len(parameters), *first.shape), (step, *first.stride()))

    def _add_gradients(self, parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> None:
        """Adds to the gradients of parameters of this slab; one that has none gets a view of the second tensor."""
        if self._gradients is None:
            self._gradients = torch.empty_like(self.values)  # pages that nobody writes to take no memory
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if parameter.grad is None:
                home = self._gradients.as_strided(parameter.shape, parameter.stride(), parameter.storage_offset())
                parameter.grad = home.copy_(gradient)
            else:
                parameter.grad.add_(gradient)


class _Stack(torch.autograd.Function):
    """`torch.stack` without a copy where possible, whose backward adds to the parameters' `grad` where it lies.

    `None` for every input: the parameters' hooks, those of data parallelism among them, run all the same.
    """

    @staticmethod
    def forward(ctx: Any, slab: Slab, *parameters: nn.Parameter) -> Tensor:
        ctx.slab, ctx.parameters = slab, parameters
        return slab._read(parameters)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        ctx.slab._add_gradients([ctx.parameters[i] for i in wanted], [gradients[0][i] for i in wanted])
        return (None,) * len(ctx.needs_input_grad)
