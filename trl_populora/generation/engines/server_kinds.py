"""The differences between servers that answer OpenAI's completions requests and load LoRA adapters over HTTP.

The tests run vLLM 0.31.0. The entry for SGLang was written from its source code. SGLang was not run here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ServerKind:
    """Properties of one kind of server.

    All kinds share: `GET /v1/models` lists the base (no `parent`, with `max_model_len`) and every loaded adapter
    (`id`, `root`); adapters are loaded and unloaded by `lora_name` and `lora_path`; `POST /v1/completions` takes a
    prompt of token ids and answers with `token_ids` and `logprobs`.

    Args:
        name (`str`): For messages.
        start (`str`): Command that starts it, for messages.
        load (`str`), unload (`str`): Paths that take `lora_name` (and `lora_path`).
        adapter_field (`str`): Field of a completion request that names the adapter.
        fields (`Mapping[str, Any]`): Additional fields of every completion request.
        lost_status (`int`), lost_text (`str`): Its answer to a request for a missing adapter.
        likeliest_by_id (`bool`): Whether the most likely tokens are reported as `"token_id:N"`. If not, they are
            reported as text. Text does not identify a token, so the canary then compares only the sampled tokens.
        filtered_logprobs (`bool`): Whether log-probabilities are those after `top_p`, `top_k` and `min_p`.
        block_size (`int`): Tokens per block of the prefix cache, or more, if `/metrics` does not report it.
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
