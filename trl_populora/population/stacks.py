"""A tensor of the matrices A of all adapters at a LoRA layer, and one of B. PEFT's parameters are views of them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn


def matrices(layer: LoraLayer, name: str) -> tuple[nn.Parameter, nn.Parameter]:
    """A and B of an adapter: the parameters themselves."""
    return layer.lora_A[name].get_parameter("weight"), layer.lora_B[name].get_parameter("weight")


Which = slice | Tensor
"""Positions of adapters: a slice if they are neighbours in rising order, else an index `(chosen,)`."""


def which(adapters: Sequence[int], device: torch.device) -> Which:
    first, n = adapters[0] if adapters else 0, len(adapters)
    neighbours = list(adapters) == list(range(first, first + n))
    return slice(first, first + n) if neighbours else torch.tensor(adapters, device=device)


class Chosen(NamedTuple):
    """Adapters at one layer.

    Attributes:
        stacks (`tuple[torch.Tensor, torch.Tensor]`): Of all adapters: A `(adapters, rank, d_in)` and B
            `(adapters, d_out, rank)`.
        which (`Which`): Which of them.
        factors (`tuple[nn.Parameter, ...]`): The parameters: every A of those chosen, then every B.
    """

    stacks: tuple[Tensor, Tensor]
    which: Which
    factors: tuple[nn.Parameter, ...]

    def cast(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """A `(chosen, d_in, rank)` and B `(chosen, rank, d_out)`: views if neighbours in this dtype, else copies."""
        A, B = (stack[self.which].to(dtype).mT for stack in self.stacks)
        return A, B

    @property
    def dtype(self) -> torch.dtype:
        return self.stacks[0].dtype

    @property
    def version(self) -> int:
        """Grows whenever one of the parameters is changed in place."""
        return sum(factor._version for factor in self.factors)


class Stacks:
    """The stacks of all layers.

    Args:
        layers (`Iterable[LoraLayer]`): PEFT's layers, all with the same adapters of one rank.
        names (`Sequence[str]`): The adapters.
    """

    def __init__(self, layers: Iterable[LoraLayer], names: Sequence[str]) -> None:
        self._factors = {layer: list(zip(*(matrices(layer, name) for name in names), strict=True)) for layer in layers}
        self._parameters = [one for pair in self._factors.values() for own in pair for one in own]
        self._stacks: dict[LoraLayer, tuple[Tensor, Tensor]] = {}
        self._places: list[int] = []
        self.join()

    @property
    def device(self) -> torch.device:
        return self._parameters[0].device

    @torch.inference_mode(False)  # or the parameters could not be trained after a first forward in that mode
    def join(self) -> None:
        """Makes the parameters views of new stacks, with their values, if they are not views of those here.

        They are no longer after the model or an adapter has moved to another device or dtype: PyTorch then gives every
        parameter memory of its own.
        """
        if self._places == [parameter.data_ptr() for parameter in self._parameters]:
            return
        for layer, pair in self._factors.items():
            A, B = (torch.stack([one.detach() for one in own]) for own in pair)
            self._stacks[layer] = A, B
            for own, stack in zip(pair, (A, B), strict=True):
                for parameter, view in zip(own, stack, strict=True):
                    parameter.data = view
        self._places = [parameter.data_ptr() for parameter in self._parameters]

    def choose(self, layer: LoraLayer, adapters: Sequence[int], which: Which) -> Chosen:
        """Adapters at a layer by their positions, in this order."""
        own = self._factors[layer]
        return Chosen(self._stacks[layer], which, tuple(factors[i] for factors in own for i in adapters))

    def cast(self, layer: LoraLayer, which: Which, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """See [`Chosen.cast`]."""
        return Chosen(self._stacks[layer], which, ()).cast(dtype)
