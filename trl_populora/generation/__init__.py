"""Sampling from many adapters in one batch.

What is asked and what the answers are worth is not known here. `Sampler` is the base; `TransformersSampler` draws from
the training model itself, `EngineSampler` from an engine beside it (`engines/`).
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
