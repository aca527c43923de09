"""Sampling from many adapters in one batch.

A sampler is any callable `(prompts, members, *, seed) -> list[Completion]`; what is asked and what the answers are
worth is not known here.
"""

from ..self_play.sampling import Completion, Sampler
from .transformers_sampler import TransformersSampler
from .vllm import VLLMSampler


__all__ = ["Completion", "Sampler", "TransformersSampler", "VLLMSampler"]
