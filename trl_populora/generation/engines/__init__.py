"""Engines that serve the population's adapters beside the trainer, and the sampler that feeds and watches them.

`EngineSampler` does what is alike for all: adapter files and versions (`adapters`), the canary (`canary`), ranks and
restarts. An `Engine` loads, unloads and draws: `VLLMEngine` in this process, `ServerEngine` over HTTP.
"""

from .engine import Drawn, Engine, EngineError, EngineRow, EngineSpec, LivenessError, ServerLost
from .engine_sampler import EngineSampler
from .server import ServerEngine, server_sampler
from .server_kinds import SGLANG, VLLM, ServerKind
from .vllm_engine import VLLMEngine, vllm_sampler


__all__ = [
    "SGLANG",
    "VLLM",
    "Drawn",
    "Engine",
    "EngineError",
    "EngineRow",
    "EngineSampler",
    "EngineSpec",
    "LivenessError",
    "ServerEngine",
    "ServerKind",
    "ServerLost",
    "VLLMEngine",
    "server_sampler",
    "vllm_sampler",
]
