"""Routing: every row of a batch runs through the adapter of the member it belongs to.

PEFT's own adapter path stays disabled, so a forward without routing is exactly the frozen base. A forward hook on each
LoRA layer adds the members' contributions. It stacks the factors of the members in the batch to `(members, d, rank)`.
All members with equally many rows share two batched matrix products. Batches are made such that this holds for all
members (`composition.py`). Otherwise, there is one pair of products for each different number of rows, or, where each
row is at one token, one pair over blocks that are filled up. Members without a row in the batch cost nothing. All of
it is computed in the dtype of the layer's output, as autocast would.

PEFT's parameters are the only storage. In an update, autograd keeps the stacks from a layer's forward to its backward:
with gradient checkpointing, those of one block. Members may have their own temperatures. A member's last hidden state
is divided by its temperature. For a linear head, this equals dividing the logits, in sampling and in the loss. Nothing
is patched: hooks are registered once and removed by `close()`. The plan stays set until it is cleared, because
gradient checkpointing runs the hooks again during the backward pass.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput, logging

from .positions import count_positions


logger = logging.get_logger(__name__)
Stacks = tuple[Tensor, Tensor]


UNROUTED = (
    "The model was called without a member, so it answered as the frozen base. Ask members by `with "
    "trainer.population.route(names):`, with the name of the member of each row of the batch, and the base by `with "
    "trainer.population.routing.base():`, which does not warn."
)


@dataclass
class Plan:
    """Which rows belong to which member. Members with equally many rows are next to each other.

    Attributes:
        members (`tuple[int, ...]`): Positions of the members in the batch, sorted by their number of rows, then in the
            population's order.
        groups (`tuple[tuple[int, int], ...]`): Groups of members with equally many rows: (members, rows of each).
        order (`torch.Tensor` of shape `(batch,)` or `None`): Row indices in member order; `None` if already so.
        inverse (`torch.Tensor` of shape `(batch,)` or `None`): Inverse permutation of `order`.
        padded (`torch.Tensor` of shape `(members, most)` or `None`): Row indices of each member, filled up with its
            last one to as many as the largest has. `None` where `groups` are cheaper.
        places (`torch.Tensor` of shape `(batch,)` or `None`): Where `padded`, flattened, has each row.
        sizes (`list[int]`): Rows of each group.
        rows (`int`): Rows of the batch.
    """

    members: tuple[int, ...]
    groups: tuple[tuple[int, int], ...]
    order: Tensor | None
    inverse: Tensor | None
    padded: Tensor | None = None
    places: Tensor | None = None
    sizes: list[int] = field(init=False)
    rows: int = field(init=False)

    def __post_init__(self) -> None:  # once, as every layer asks for them
        self.sizes = [members * rows for members, rows in self.groups]
        self.rows = sum(self.sizes)


def member_order(members: Sequence[int]) -> list[int]:
    """Row indices sorted by the number of rows of their member, then by member. In this order, routing moves no
    row."""
    counts = Counter(members)
    return sorted(range(len(members)), key=lambda row: (counts[members[row]], members[row]))


def make_plan(members: Sequence[int], device: torch.device) -> Plan:
    """Plan for rows of these members. It has at most `sqrt(2 * rows)` groups, for any number of members."""
    order = member_order(members)
    blocks = [(member, len(list(run))) for member, run in groupby(members[row] for row in order)]
    groups = tuple((len(list(run)), rows) for rows, run in groupby(rows for _, rows in blocks))
    present = tuple(member for member, _ in blocks)
    padded, places, most = None, None, max((rows for _, rows in blocks), default=0)
    if len(groups) > 2 and most * len(blocks) <= 2 * len(order):  # five kernels, not two for each group and one more
        own = [[row for row in order if members[row] == member] for member in present]
        taken = {row: place * most + i for place, rows in enumerate(own) for i, row in enumerate(rows)}
        padded = torch.tensor([[*rows, *rows[-1:] * (most - len(rows))] for rows in own], device=device)
        places = torch.tensor([taken[row] for row in range(len(order))], device=device)
    if order == list(range(len(order))):
        return Plan(present, groups, None, None, padded, places)
    index = torch.tensor(order, device=device)
    return Plan(present, groups, index, torch.argsort(index), padded, places)


class Routing:
    """Adds the contribution of each row's member to every LoRA layer of `model`.

    Args:
        model ([`~peft.PeftModel`]): Model holding PEFT LoRA layers, all adapters of one rank and scaling.
        names (`Sequence[str]`): Adapter names, in the population's order.
    """

    def __init__(self, model: PeftModel, names: Sequence[str]) -> None:
        self.layers: dict[str, LoraLayer] = {
            name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)
        }
        self._names = list(names)
        self._place = {name: i for i, name in enumerate(names)}
        self._factors = {  # every A, then every B
            layer: [[side[name].get_parameter("weight") for name in names] for side in (layer.lora_A, layer.lora_B)]
            for layer in self.layers.values()
        }
        self._base: PreTrainedModel = model.get_base_model()  # pyright: ignore[reportAttributeAccessIssue]
        self.temperatures: dict[str, float] = {}  # of adapters that have one of their own
        self._plan: Plan | None = None
        self._is_base = False  # whether forwards without a plan are meant to be the base's
        self._row_temperatures: Tensor | None = None
        self._cache: dict[LoraLayer, tuple[Stacks, list[Stacks]]] = {}
        add: Any = self._add_members  # PyTorch's hint does not know that all of these are LoRA layers
        self._handles = [model.get_submodule(path).register_forward_hook(add) for path in self.layers]
        self._handles.append(self._base.base_model.register_forward_hook(self._scale_rows))
        self._handles += count_positions(self._base.base_model)

    def set(self, names_per_row: Sequence[str]) -> None:
        """Sets the members of the rows of the following forwards, until `clear()`.

        Raises:
            ValueError: If a name is not a member.
        """
        unknown = sorted(set(names_per_row) - set(self._place))
        if unknown:
            raise ValueError(f"Cannot route rows to {unknown}: the members are {self._names}.")
        device = next(iter(self._factors.values()))[0][0].device
        self._plan, self._cache = make_plan([self._place[name] for name in names_per_row], device), {}
        self._row_temperatures = self._temperatures_of(names_per_row)

    def pairs(self, name: str) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """A and B of an adapter in each layer: the parameters themselves."""
        place = self._place[name]
        return [(As[place], Bs[place]) for As, Bs in self._factors.values()]

    def clear(self) -> None:
        """Following forwards are the frozen base."""
        self._plan, self._row_temperatures, self._cache = None, None, {}

    @contextmanager
    def rows(self, names_per_row: Sequence[str]) -> Iterator[None]:
        """Context in which row `i` of every forward (and its backward) runs as `names_per_row[i]`.

        Do not change weights between forwards without gradients, which may use those of the first, nor between a
        forward and its backward: gradient checkpointing runs the forward again.
        """
        before = self._plan, self._row_temperatures
        self.set(names_per_row)
        try:
            yield
        finally:
            (self._plan, self._row_temperatures), self._cache = before, {}

    @contextmanager
    def base(self, names_per_row: Sequence[str] = ()) -> Iterator[None]:
        """Context in which forwards are the frozen base; the plan before is restored afterwards.

        Args:
            names_per_row (`Sequence[str]`, *optional*):
                Adapters whose temperatures the base uses, row by row. This gives the reference for each adapter.
        """
        before = self._plan, self._row_temperatures, self._is_base
        self._plan, self._row_temperatures, self._is_base = None, self._temperatures_of(names_per_row), True
        try:
            yield
        finally:
            self._plan, self._row_temperatures, self._is_base = before

    def set_temperature(self, name: str, temperature: float) -> None:
        """Sets an adapter's temperature, relative to the run's, by which logits are divided in any case.

        Raises:
            ValueError: If it is not 1 and the model's head is more than a matrix. Then dividing its input does not
                divide the logits.
        """
        if temperature == 1.0:
            self.temperatures.pop(name, None)
            return
        if not 0 < temperature < float("inf"):
            raise ValueError(f"The temperature of {name!r} must be positive and finite, got {temperature}.")
        self.check_head()
        self.temperatures[name] = temperature

    def check_head(self) -> None:
        """Raises `ValueError` if members cannot have their own temperatures (see [`Routing.set_temperature`])."""
        base, head = self._base, self._base.get_output_embeddings()
        softcap = getattr(base.config.get_text_config(), "final_logit_softcapping", None)
        if base.base_model is base or getattr(head, "bias", None) is not None or softcap:
            raise ValueError(
                f"{type(base).__name__} does more between hidden states and logits than multiply by a matrix: "
                "its members cannot have their own temperatures. Set mutate_temperature to false."
            )

    def close(self) -> None:
        """Removes the hooks from the base; it then answers as it did before."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _of(self, layer: LoraLayer, members: Sequence[int]) -> list[Tensor]:
        """The members' matrices of a layer: every A, then every B."""
        return [own[i] for own in self._factors[layer] for i in members]

    def _path(self, layer: LoraLayer) -> str:
        return next(path for path, one in self.layers.items() if one is layer)

    def _stacked(self, layer: LoraLayer, plan: Plan, dtype: torch.dtype) -> tuple[Stacks, list[Stacks]]:
        """Stacks of the plan's members, and of each group. They are made once for all forwards without gradients until
        one with gradients."""
        cached = self._cache.get(layer)
        if cached is None or cached[0][0].dtype != dtype:
            A, B = whole = _stack(self._of(layer, plan.members), dtype)
            members = [n for n, _ in plan.groups]
            groups = [*zip(A.split(members), B.split(members), strict=True)] if len(members) > 1 else [whole]
            cached = self._cache[layer] = whole, groups
        return cached

    def _add_members(self, layer: LoraLayer, args: tuple, output: Any) -> Tensor | None:
        plan = self._plan
        if plan is None:
            if not self._is_base:
                logger.warning_once(UNROUTED)
            return None
        x = args[0]
        if not isinstance(output, Tensor):
            raise ValueError(
                f"The adapters' target_modules include {self._path(layer)}, which returns a {type(output).__name__} "
                "and not a tensor, as the router of a mixture of experts does. Name other modules."
            )
        if x.shape[0] != plan.rows:
            raise ValueError(
                f"{self._path(layer)} received a batch of {x.shape[0]} rows while {plan.rows} rows are routed. Name "
                "the member of each row, also of those that num_beams or num_return_sequences add. Layers that "
                "regroup rows (mixture-of-experts, packed sequences, fc1 of OPT) cannot be adapted per member: take "
                "them out of target_modules."
            )
        if not layer.disable_adapters:
            raise ValueError(
                "PEFT's own adapters were turned on, as by disable_adapter() at its end, and would add one to all "
                "rows. Call population.set_trainable(). To ask the base, use `with population.routing.base():`."
            )
        dtype, scaling = output.dtype, layer.scaling[self._names[0]]
        x = x.to(dtype)
        if torch.is_grad_enabled():
            self._cache.clear()  # an optimizer step may follow, and these stacks would be those of before
            left = iter(plan.members)
            stacks = [_stack(self._of(layer, [*islice(left, n)]), dtype) for n, _ in plan.groups]
        else:
            (A, B), stacks = self._stacked(layer, plan, dtype)
            if plan.padded is not None and x.dim() == 3 and x.shape[1] == 1:
                delta = torch.bmm(torch.bmm(x[:, 0][plan.padded], A), B).flatten(0, 1)[plan.places]
                return torch.add(output, delta.unsqueeze(1), alpha=scaling).to(dtype)
        if plan.order is not None:
            x, output = x.index_select(0, plan.order), output.index_select(0, plan.order)
        if len(stacks) == 1:
            result = _adapted(output, x, *stacks[0], scaling)
        else:
            parts = zip(output.split(plan.sizes), x.split(plan.sizes), stacks, strict=True)
            result = torch.cat([_adapted(out, part, *stack, scaling) for out, part, stack in parts])
        result = result if plan.inverse is None else result.index_select(0, plan.inverse)
        return result.to(dtype)

    def _temperatures_of(self, names: Sequence[str]) -> Tensor | None:
        """Temperature of each row, `(batch, 1, 1)`; `None` if all are 1."""
        if not any(name in self.temperatures for name in names):
            return None
        return torch.tensor([self.temperatures.get(name, 1.0) for name in names]).view(-1, 1, 1)

    def _scale_rows(self, backbone: nn.Module, args: tuple, output: ModelOutput) -> ModelOutput | None:
        if self._row_temperatures is None:
            return None
        hidden = output["last_hidden_state"]
        output["last_hidden_state"] = (hidden / self._row_temperatures.to(hidden.device)).to(hidden.dtype)
        return output


def _stack(factors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Every member's A, then every B, as A `(members, d_in, rank)`, B `(members, rank, d_out)`.

    The number of kernels does not grow with the members, also in the backward: small updates on a GPU wait for
    launches. There, the gradient arrives transposed. `view` lays it out as the parameters are, for all members at
    once; after `torch.stack`, autograd would copy that of each one.
    """
    n = len(factors) // 2
    A, B = (torch.cat([*own]).to(dtype).view(n, *own[0].shape).mT for own in (factors[:n], factors[n:]))
    return A, B


def _adapted(output: Tensor, x: Tensor, A: Tensor, B: Tensor, scaling: float) -> Tensor:
    """`output + scaling * x A B` for rows `(members * rows, ..., d)` in equal blocks, one for each member of A and B.

    Two kernels. Without gradients, the sum is written into `output`.
    """
    inner = torch.bmm(x.reshape(len(A), -1, x.shape[-1]), A)
    flat = output.reshape(len(A), -1, output.shape[-1])
    if torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type):  # it leaves in-place products alone
        return torch.baddbmm(flat, inner, B, alpha=scaling).view(output.shape)
    return flat.baddbmm_(inner, B, alpha=scaling).view(output.shape)
