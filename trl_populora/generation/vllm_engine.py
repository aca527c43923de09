"""What a sampler asks of a vLLM engine, wherever it runs; the two engines are `vllm_colocate` and `vllm_server`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from .vllm_adapters import AdapterVersion


class EngineRow(NamedTuple):
    """One prompt and how it is answered.

    Attributes:
        prompt_ids (`Sequence[int]`): Its tokens.
        adapter (`AdapterVersion` or `None`): Who answers; `None` is the base.
        seed (`int`): Of the row's noise, not negative.
        temperature (`float`): By which its logits are divided; 0 chooses the likeliest token.
    """

    prompt_ids: Sequence[int]
    adapter: AdapterVersion | None
    seed: int
    temperature: float


class Drawn(NamedTuple):
    """What an engine drew for one row.

    Attributes:
        ids (`list[int]`): Tokens, with the end-of-sequence token if there was one.
        logprobs (`list[float]`): Log-probability of each under the sampling policy.
        likeliest (`list[dict[int, float]]`): At each position the asked number of likeliest tokens, and the drawn one.
    """

    ids: list[int]
    logprobs: list[float]
    likeliest: list[dict[int, float]]


class Engine(Protocol):
    """An engine that has the base model loaded and answers each row with its adapter.

    Attributes:
        where (`str`): For messages.
        block_size (`int`): Tokens per block of the prefix cache.
        max_model_length (`int`): Most tokens of prompt and completion together.
        everywhere (`bool`): Whether every rank has an engine of its own, which it must feed.
    """

    where: str
    block_size: int
    max_model_length: int
    everywhere: bool

    def wake(self) -> None: ...
    def sleep(self) -> None: ...
    def missing(self, versions: Iterable[AdapterVersion]) -> list[AdapterVersion]: ...
    def load(self, version: AdapterVersion) -> None: ...
    def unload(self, version: AdapterVersion) -> None: ...
    def generate(self, rows: Sequence[EngineRow], sampling: Mapping[str, Any]) -> list[Drawn]: ...
    def close(self) -> None: ...


class EngineError(RuntimeError):
    """An engine did not do what it was asked; the text names what it said and what to do."""


class ServerLost(EngineError):
    """A server went away, or came back without the adapters."""


class LivenessError(EngineError):
    """An engine answers with other weights than the trainer's; the text names the member and what was seen."""


def check_unmixed(rows: Sequence[EngineRow]) -> None:
    """Refuse base rows beside adapter rows: vLLM's CPU backend answers them with the adapter in the last slot.

    Raises:
        ValueError: If there are both.
    """
    if len({row.adapter is None for row in rows}) == 2:
        raise ValueError("The base and members cannot be sampled in one call; ask the base in a call of its own.")
