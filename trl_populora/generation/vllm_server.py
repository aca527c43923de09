"""A vLLM server (`vllm serve --enable-lora`) as an engine: adapters and rows travel by HTTP, weights by files.

Nothing here imports vllm: the trainer's machine does not need it. The server may be restarted at any time: a broken
connection or a model that is gone raises [`ServerLost`], and the sampler brings the adapters again.
"""

import contextlib
import http.client
import json
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .vllm_adapters import AdapterVersion
from .vllm_engine import Drawn, EngineError, EngineRow, ServerLost, check_unmixed


CONNECTIONS = 256  # rows under way at once; the server's own limit of sequences is of this size
RETRY_SECONDS = 1.0
DEFAULT_BLOCK_SIZE = 16
UNREACHABLE = (OSError, http.client.HTTPException)
START = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve MODEL --enable-lora --max-loras N --max-lora-rank R"


class ServerEngine:
    """A running vLLM server.

    Args:
        url (`str`): Such as `"http://localhost:8000"`.
        timeout (`float`): Seconds to wait for a server that does not answer.

    Raises:
        EngineError: If it does not answer in time, or answers as something else than a vLLM server.
    """

    everywhere = False

    def __init__(self, url: str, *, timeout: float):
        self.url, self.timeout = url.rstrip("/"), timeout
        self.where = f"the vLLM server at {self.url}"
        self._parsed = urllib.parse.urlsplit(self.url)
        if self._parsed.scheme not in ("http", "https") or not self._parsed.hostname:
            raise ValueError(f"vllm_server_base_url={url!r} is no URL; write it like 'http://localhost:8000'.")
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="vllm-server")
        base = next((card for card in self._models() if not card.get("parent")), None)
        if base is None or "max_model_len" not in base:
            raise EngineError(f"{self.where} names no base model in /v1/models. Is it `vllm serve`?")
        self.base_name, self.max_model_length = base["id"], base["max_model_len"]
        self.block_size = self._block_size()

    def wake(self) -> None:
        """Nothing to do: a server has its memory to itself."""

    def sleep(self) -> None:
        """Nothing to do, as in `wake`."""

    def missing(self, versions: Iterable[AdapterVersion]) -> list[AdapterVersion]:
        """Those the server does not have, because it was restarted. Waits for it.

        Raises:
            EngineError: If the server does not come back in time.
        """
        versions = list(versions)
        if not versions:
            return []
        served = {(card["id"], card.get("root")) for card in self._models()}
        return [version for version in versions if (version.name, version.path) not in served]

    def load(self, version: AdapterVersion) -> None:
        """Load an adapter, unless another rank was quicker.

        Raises:
            EngineError: If the server refuses it; the text names the setting to change.
        """
        body = {"lora_name": version.name, "lora_path": version.path}
        status, answer = self._ask("POST", "/v1/load_lora_adapter", body)
        if status == 200 or not self.missing([version]):
            return
        raise EngineError(f"{self.where} refuses adapter {version.name}: {_why(status, answer, version)}")

    def unload(self, version: AdapterVersion) -> None:
        with contextlib.suppress(ServerLost):  # gone already is as good
            self._ask("POST", "/v1/unload_lora_adapter", {"lora_name": version.name})

    def generate(self, rows: Sequence[EngineRow], sampling: Mapping[str, Any]) -> list[Drawn]:
        """Draw each row by a request of its own, because a request has one seed; the server batches them.

        Raises:
            ServerLost: If the connection breaks or an adapter is gone.
            EngineError: If the server refuses a row.
        """
        check_unmixed(rows)
        return list(self._pool.map(lambda row: self._draw(row, sampling), rows))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    # Requests --------------------------------------------------------------------------------------------------

    def _draw(self, row: EngineRow, sampling: Mapping[str, Any]) -> Drawn:
        body = {
            **sampling,
            "model": row.adapter.name if row.adapter else self.base_name,
            "prompt": list(row.prompt_ids),
            "seed": row.seed,
            "temperature": row.temperature,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        status, answer = self._ask("POST", "/v1/completions", body)
        if status == 404 and row.adapter:
            raise ServerLost(f"{self.where} has lost adapter {row.adapter.name}")
        if status >= 500:
            raise ServerLost(f"{self.where} failed with status {status}: {_message(answer)}")
        if status != 200:
            raise EngineError(f"{self.where} refuses a row (status {status}): {_message(answer)}")
        return _drawn(json.loads(answer)["choices"][0])

    def _models(self) -> list[dict]:
        """What `/v1/models` lists; waits for a server that does not answer.

        Raises:
            EngineError: If it does not answer in time.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                status, answer = self._ask("GET", "/v1/models", limit=self.timeout)
                if status == 200:
                    return json.loads(answer)["data"]
                problem = f"status {status}: {_message(answer)}"
            except (ServerLost, ValueError, KeyError) as error:
                problem = f"{type(error).__name__}: {error}"
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{self.where} does not answer after {self.timeout:g} s ({problem}). Start it with `{START}`, or "
                    "raise vllm_server_timeout."
                )
            time.sleep(min(RETRY_SECONDS, self.timeout / 10))

    def _ask(self, method: str, path: str, body: dict | None = None, *, limit: float | None = None) -> tuple[int, str]:
        """Status and text of one request, over this thread's own connection, made anew if the server closed it.

        A row may wait long for its turn, so an answer is waited for without limit unless one is given (in seconds); a
        machine that is gone is noticed by the connection's keep-alive.

        Raises:
            ServerLost: If there is no server.
        """
        kept = getattr(self._local, "connection", None)
        usable = kept is not None and kept.sock is not None  # None: the server announced that it would close
        for attempt in (0, 1) if usable else (1,):
            try:
                connection = kept if attempt == 0 else self._connect()
                connection.sock.settimeout(limit)
                connection.request(
                    method,
                    self._parsed.path + path,
                    json.dumps(body) if body is not None else None,
                    {"Content-Type": "application/json"},
                )
                response = connection.getresponse()
                answer = response.status, response.read().decode()
                self._local.connection = connection
                return answer
            except UNREACHABLE as error:
                self._local.connection = None
                if attempt:
                    raise ServerLost(f"{self.where} went away ({type(error).__name__}: {error})") from error
        raise AssertionError("the second attempt returns or raises")

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parsed.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parsed.hostname, self._parsed.port)
        connection.timeout = self.timeout
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        return connection

    def _block_size(self) -> int:
        """Tokens per block of the prefix cache, from the server's metrics where it has them."""
        status, answer = self._ask("GET", "/metrics")
        found = re.search(r'cache_config_info\{[^}]*block_size="(\d+)"', answer) if status == 200 else None
        return int(found.group(1)) if found else DEFAULT_BLOCK_SIZE


def _drawn(choice: dict) -> Drawn:
    likeliest = [
        {int(token.removeprefix("token_id:")): logprob for token, logprob in (position or {}).items()}
        for position in choice["logprobs"]["top_logprobs"]
    ]
    ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
    for position, token, logprob in zip(likeliest, ids, logprobs, strict=True):
        position[token] = logprob
    return Drawn(ids, logprobs, likeliest)


def _message(answer: str) -> str:
    try:
        return json.loads(answer)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return answer.strip()[:300]


def _why(status: int, answer: str, version: AdapterVersion) -> str:
    """What to change on the server, from what it said to loading an adapter."""
    said = _message(answer)
    if status == 404 and "Not Found" in said:
        return f"it does not load adapters at run time. Start it with `{START}`."
    if "max_lora_rank" in said:
        return f"{said} Start it with a --max-lora-rank that holds the members' rank."
    if "LoRA is not enabled" in said or "enable_lora" in said:
        return f"it serves no LoRA ({said}). Start it with `{START}`."
    if status == 404:
        return f"it does not see {version.path}. Set vllm_adapter_dir to a folder that both machines share. ({said})"
    return f"status {status}: {said}"
