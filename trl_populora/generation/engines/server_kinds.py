"""Servers that answer OpenAI's completions requests and load LoRA adapters over HTTP: what each does in its own way.

vLLM 0.31.0 is run by the tests. SGLang's ways were read in its source; SGLang was not run here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ServerKind:
    """What one kind of server does in its own way.

    Shared by all: `GET /v1/models` lists the base (no `parent`, with `max_model_len`) and every loaded adapter (`id`,
    `root`); adapters are loaded and unloaded by `lora_name` and `lora_path`; `POST /v1/completions` takes a prompt of
    token ids and answers with `token_ids` and `logprobs`.

    Args:
        name (`str`): For messages.
        start (`str`): Command that starts it, for messages.
        load (`str`), unload (`str`): Paths that take `lora_name` (and `lora_path`).
        adapter_field (`str`): Field of a completion request that names the adapter.
        fields (`Mapping[str, Any]`): Further fields of every completion request.
        lost_status (`int`), lost_text (`str`): How it answers a request for an adapter that it does not have.
        likeliest_by_id (`bool`): Whether the likeliest tokens are reported as `"token_id:N"`. If not, texts are, which
            do not tell tokens apart, and the canary compares the drawn tokens only.
        filtered_logprobs (`bool`): Whether log-probabilities are those after `top_p`, `top_k` and `min_p`.
        block_size (`int`): Tokens per block of the prefix cache, or more, where `/metrics` does not tell.
    """

    name: str
    start: str
    load: str
    unload: str
    adapter_field: str
    lost_status: int
    lost_text: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    likeliest_by_id: bool = True
    filtered_logprobs: bool = True
    block_size: int = 16


VLLM = ServerKind(
    name="vLLM",
    start="VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve MODEL --enable-lora --max-loras N --max-lora-rank R",
    load="/v1/load_lora_adapter",
    unload="/v1/unload_lora_adapter",
    adapter_field="model",
    lost_status=404,
    fields={
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
    },
)

SGLANG = ServerKind(
    name="SGLang",
    start="python -m sglang.launch_server --model-path MODEL --enable-lora --max-lora-rank R "
    "--lora-target-modules all --max-loras-per-batch N --enable-deterministic-inference",
    load="/load_lora_adapter",
    unload="/unload_lora_adapter",
    adapter_field="lora_path",
    lost_status=400,
    lost_text="not loaded",
    fields={"return_token_ids": True, "skip_special_tokens": False},
    likeliest_by_id=False,
    filtered_logprobs=False,
    block_size=64,
)

KINDS = {"vllm": VLLM, "sglang": SGLANG}
