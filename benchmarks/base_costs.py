"""What large bases cost: parameters and passes counted without their weights, and what a small run measures.

Parameters are counted on the meta device. What autograd keeps and how many operations a micro-batch needs is counted
in this package's own forward and backward at full size, on tensors that have shapes and no storage.
"""

import ctypes
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
from base_shapes import SHAPES
from peft import LoraConfig
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, Qwen2Config

from trl_populora.population import Population, Routing
from trl_populora.training.forecast import PASSING


BASES = {
    "7B": SHAPES["qwen2.5-7b-shapes"],
    "32B": Qwen2Config(
        vocab_size=152064,
        hidden_size=5120,
        intermediate_size=27648,
        num_hidden_layers=64,
        num_attention_heads=40,
        num_key_value_heads=8,
    ),
    "70B": LlamaConfig(
        vocab_size=128256,
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
    ),
}
BF16, FP32 = 2, 4  # bytes


@dataclass(frozen=True)
class Base:
    """What the shapes of a base say; parameters, and per adapted linear its inputs and outputs."""

    parameters: int
    layer: int
    layers: int
    linears: tuple[tuple[int, int], ...]
    kv_per_token: int
    passing: float  # bytes per token of the prompts' pass, beside the cache

    def adapter(self, rank: int) -> int:
        """Parameters of one member: rank times (inputs + outputs) of every linear but the LM head."""
        return rank * sum(inputs + outputs for inputs, outputs in self.linears)


def count(config: PreTrainedConfig) -> Base:
    """Counts the modules of the model that transformers builds."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    linears = [m for m in model.model.modules() if isinstance(m, nn.Linear)]
    head_size = config.hidden_size // config.num_attention_heads
    return Base(
        parameters=sum(p.numel() for p in model.parameters()),
        layer=sum(p.numel() for p in model.model.layers[0].parameters()),
        layers=config.num_hidden_layers,
        linears=tuple((m.in_features, m.out_features) for m in linears),
        kv_per_token=2 * config.num_hidden_layers * config.num_key_value_heads * head_size * BF16,
        passing=(PASSING[0] * config.hidden_size + PASSING[1] * config.intermediate_size) * BF16,
    )


# Counted: our own forward and backward at full size, without storage -------------------------------------------------


def fake_population(config: PreTrainedConfig, *, layers: int, members: int, rank: int) -> Population:
    """Base in bfloat16, adapters in float32, all tensors without storage; call under `FakeTensorMode`."""
    config = type(config)(**{**config.to_dict(), "num_hidden_layers": layers, "layer_types": None})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        lora = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
        population = Population(model, lora, num_teachers=members // 2, num_students=members - members // 2)
    population.routing.close()
    for module in population.model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                empty = torch.empty(parameter.shape, dtype=parameter.dtype)
                module._parameters[name] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
        for name, buffer in module._buffers.items():
            module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)
    population.routing = Routing(population.model, list(population))
    population.model.train()
    return population


def pass_cost(config: PreTrainedConfig, *, layers: int, checkpointing: bool, rank: int, tokens: int) -> tuple:
    """Bytes that autograd keeps, and operations of forward and backward, each per token of a routed micro-batch.

    Eight members with one row each, under bfloat16 autocast. Only the decoder: neither embeddings nor LM head.
    """
    kept = {}
    with FakeTensorMode():
        population = fake_population(config, layers=layers, members=8, rank=rank)
        if checkpointing:
            population.model.gradient_checkpointing_enable({"use_reentrant": False})
        own = {p.untyped_storage()._cdata for p in population.model.parameters()}

        def keep(tensor):
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                kept[storage._cdata] = (storage.nbytes(), tensor)  # held, so that no address is used twice
            return tensor

        embedded = torch.empty(8, tokens, config.hidden_size, dtype=torch.bfloat16, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            with FlopCounterMode(display=False) as base_forward, torch.no_grad():
                population.base_model.model(inputs_embeds=embedded, use_cache=False)
            with FlopCounterMode(display=False) as whole, population.route(list(population)):
                with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                    hidden = population.base_model.model(inputs_embeds=embedded, use_cache=False).last_hidden_state
                hidden.sum().backward()
    kept_bytes = sum(size for size, _ in kept.values())
    return tuple(x / (8 * tokens) for x in (kept_bytes, base_forward.get_total_flops(), whole.get_total_flops()))


def per_layer(config: PreTrainedConfig, *, rank: int, tokens: int) -> dict[str, float]:
    """Costs of one more layer: the difference between two layers and one."""

    def difference(checkpointing: bool) -> list[float]:
        one, two = (pass_cost(config, layers=n, checkpointing=checkpointing, rank=rank, tokens=tokens) for n in (1, 2))
        return [b - a for a, b in zip(one, two, strict=True)]

    (inside, _, _), (kept, forward, both) = difference(False), difference(True)
    return {"inside": inside, "kept": kept, "forward_flops": forward, "update_flops": both}


# Measured here -------------------------------------------------------------------------------------------------------


def resident() -> int:
    """Resident memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure() -> dict[str, float]:
    """A real update of 16 members, a real DDP and a real generation step; bytes per adapter parameter.

    The base is small and the rank large, so that adapters are what memory holds. Every tensor gets pages of its own
    (`mallopt(M_MMAP_THRESHOLD)`), so what is freed leaves the resident memory at once.
    """
    ctypes.CDLL(None).mallopt(-3, 1 << 14)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
    )
    lora = LoraConfig(r=128, lora_alpha=128, target_modules="all-linear")
    population = Population(AutoModelForCausalLM.from_config(config), lora, num_teachers=8, num_students=8)
    parameters = [p for name in population for p in population.parameters(name)]
    total, names = sum(p.numel() for p in parameters), list(population)
    ids = torch.zeros(16, 8, dtype=torch.long)
    with torch.no_grad(), population.route(names):  # also warms the process up
        population.model(input_ids=ids)
        stacks = sum(t.numel() * t.element_size() for pair, _ in population.routing._cache.values() for t in pair)
    start = resident()
    with population.route(names):
        population.model(input_ids=ids).logits.square().mean().backward()
    gradients = resident()
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    optimizer.step()
    moments = resident()
    states = [t for state in optimizer.state.values() for t in state.values() if t.dim()]
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        before = resident()
        ddp = DistributedDataParallel(population.model, find_unused_parameters=True)
        with population.route(names):
            ddp(input_ids=ids).logits.square().mean().backward()
        buckets = resident() - before  # the gradients were there already
        del ddp
        dist.destroy_process_group()
    return {
        "weights, counted": sum(p.numel() * p.element_size() for p in parameters) / total,
        "gradients, resident": (gradients - start) / total,
        "moments, counted": sum(t.numel() * t.element_size() for t in states) / total,
        "moments, resident": (moments - gradients) / total,
        "DDP buckets, resident": buckets / total,
        "stacks while sampling, counted": stacks / total,
    }
