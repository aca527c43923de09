"""Sharding of the frozen base over the processes of a machine (FSDP2), with every adapter whole on every process.

The adapters stay ordinary tensors, equal on all processes, so routing, optimizer, evolution and files need no changes.
DDP refuses a model with sharded parameters, so this module averages the gradients itself.
"""

import os
from collections.abc import Callable

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import Module

from ..population import Population


def load_sharded(load: Callable[[], Population], device: torch.device) -> Population:
    """Makes a population whose base is divided among the processes of each machine.

    One process of a machine loads at a time and keeps its share before the next begins, so a machine needs the memory
    of one whole base and of the shares, not of one base for each process. A layer is gathered for as long as it runs.
    Machines hold a copy each: nothing of the base crosses the network between them. Our choice.

    Args:
        load (`Callable[[], Population]`): Makes the population, with the whole base in host memory.
        device (`torch.device`): Where this process keeps its share and the adapters.

    Raises:
        ValueError: If there is only one process, or the base cannot be sharded.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        raise ValueError(
            "shard_base=true divides the base among several processes, but there is only one. Start with "
            "`accelerate launch --num_processes N`, or set shard_base to false."
        )
    mesh = machine_mesh(device)
    turns, own = mesh.size(), mesh.get_local_rank()
    for _ in range(own):
        dist.barrier()
    try:
        population = load()
        shard_base(population, mesh, device=device)
    finally:  # also when it fails, or the others would wait for ever
        for _ in range(turns - own):
            dist.barrier()
    return population


def machine_mesh(device: torch.device) -> DeviceMesh:
    """The processes of this machine, in a row; all machines must run equally many."""
    world = dist.get_world_size()
    here = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    return init_device_mesh(device.type, (world // here, here), mesh_dim_names=("machine", "process"))["process"]


def shard_base(population: Population, mesh: DeviceMesh, *, device: torch.device) -> None:
    """Divides the base's parameters among the processes of a mesh, in place; the adapters move to `device`, whole.

    From here on every forward is a collective: all processes must run equally many, in the same order.

    Raises:
        ValueError: If the base is quantised or does not say what its layers are.
    """
    base = population.base_model
    if getattr(base, "is_quantized", False):
        raise ValueError(
            f"shard_base=true cannot divide a quantised base ({base.config.quantization_config}). Load it without "
            "quantization_config, or set shard_base to false."
        )
    kinds = set(getattr(base, "_no_split_modules", None) or ())
    layers = [module for module in base.modules() if type(module).__name__ in kinds]
    if not layers:
        raise ValueError(
            f"{type(base).__name__} names no layers in _no_split_modules, so its base could not be divided. "
            "Set shard_base to false."
        )
    adapters = {p for name in (*population, *population.guests) for p in population.parameters(name)}
    for parameter in adapters:
        parameter.data = parameter.data.to(device)
    for module in (*layers, base):
        fully_shard(module, mesh=mesh, ignored_params=adapters)
    # `generate` then goes on until the last process has finished.
    base._is_fsdp_managed_module = True  # pyright: ignore[reportArgumentType]


def leave_unwrapped(model: Module, accelerator: Accelerator) -> None:
    """Has accelerate set up mixed precision for a sharded model, and then neither wrap nor move it."""
    accelerator.prepare_model(model, device_placement=False, evaluation_mode=True)
    model._is_accelerate_prepared = True  # pyright: ignore[reportArgumentType]


@torch.no_grad()
def average_gradients(population: Population) -> None:
    """Replaces every member's gradients by their mean over all processes, as DDP does; call once per optimizer step.

    If a member has no rows on one process, its gradient counts as zero there. If it has no rows on any process, it
    gets no gradient. There is one all-reduce per member with rows.
    """
    members = [population.parameters(name) for name in population]
    present = torch.tensor(
        [any(p.grad is not None for p in parameters) for parameters in members],
        dtype=torch.int32,
        device=members[0][0].device,
    )
    dist.all_reduce(present)
    for parameters, processes in zip(members, present.tolist(), strict=True):
        if not processes:
            continue
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([gradient.flatten() for gradient in gradients]).div_(dist.get_world_size())
        dist.all_reduce(flat)
        for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = part.view_as(parameter)
