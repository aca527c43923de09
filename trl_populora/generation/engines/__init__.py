"""Engines that serve the population's adapters, and the sampler that updates and checks them.

`EngineSampler` has the parts that all engines share: adapters and their versions (`adapters`), the canary (`canary`),
ranks and restarts. An `Engine` loads and unloads adapters and samples: `VLLMEngine` in this process, `ServerEngine`
over HTTP, `ServersEngine` over HTTP to several servers.
"""

from .engine import Drawn, Engine, EngineError, EngineRow, EngineSpec, LivenessError, ServerLost
from .engine_sampler import EngineSampler
from .server import ServerEngine
from .server_kinds import SGLANG, VLLM, ServerKind
from .servers import ServersEngine, check_urls, server_engine, server_sampler
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
    "ServersEngine",
    "VLLMEngine",
    "check_urls",
    "server_engine",
    "server_sampler",
    "vllm_sampler",
]
