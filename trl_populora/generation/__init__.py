"""Sampling from many adapters in one batch.

This subpackage does not know tasks or rewards. `Sampler` is the base class. `TransformersSampler` samples from the
training model itself, `EngineSampler` from a separate engine (`engines/`).
"""

from ..self_play.sampling import Completion
from .engines import EngineSampler, server_sampler, vllm_sampler
from .sampler import Sampler, SamplerFactory
from .transformers_sampler import TransformersSampler


__all__ = [
    "Completion",
    "EngineSampler",
    "Sampler",
    "SamplerFactory",
    "TransformersSampler",
    "server_sampler",
    "vllm_sampler",
]
