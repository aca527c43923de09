"""A server of LoRA adapters as an engine: requests are sent over HTTP, and weights through files.

It works with every server that answers OpenAI's completions requests and loads adapters over HTTP. `server_kinds`
describes the differences between kinds of servers. The server may be restarted at any time. A broken connection or a
missing adapter raises [`ServerLost`], and the sampler loads the adapters again.
"""

import json
import logging
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any

import httpx

from .adapters import AdapterVersion
from .engine import Drawn, Engine, EngineError, EngineRow, EngineSpec, ServerLost, check_unmixed
from .server_kinds import ServerKind


logger = logging.getLogger(__name__)

CONNECTIONS = 256  # rows under way at once; a server's own limit of sequences is of this size
RETRY_SECONDS = 1.0
STALE = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)  # also: the server had closed an idle one
MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError)


class ServerEngine(Engine):
    """A running server.

    Args:
        base_url (`str`): Such as `"http://localhost:8000"`.
        kind ([`ServerKind`]): Properties of this kind of server.
        timeout (`float`, *optional*, defaults to `240.0`): Seconds to wait for a server that does not answer.

    Raises:
        ValueError: If `base_url` is not a URL.
    """

    def __init__(self, base_url: str, kind: ServerKind, *, timeout: float = 240.0) -> None:
        parsed = urllib.parse.urlsplit(base_url)
        if parsed.scheme not in ("http", "https") or not parsed.hostname:
            raise ValueError(
                f"base_url={base_url!r} is not the URL of a server; write it like 'http://localhost:8000'."
            )
        self.kind, self.timeout, self.filtered_logprobs = kind, timeout, kind.filtered_logprobs
        self._open, self._answered, self._lock = 0, 0.0, threading.Lock()
        self.waits = True  # for a server that does not answer; otherwise it is lost
        self.where = f"the {kind.name} server at {base_url.rstrip('/')}"
        self._pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="rows")
        limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        transport = httpx.HTTPTransport(limits=limits, socket_options=_keep_alive())
        self._client = httpx.Client(base_url=base_url, transport=transport)

    def start(self, spec: EngineSpec) -> None:
        """Waits for the server and reads its properties. Raises `EngineError` if they do not fit."""
        base = next((card for card in self._models() if not card.get("parent")), None)
        if base is None or not base.get("max_model_len"):
            raise EngineError(f"{self.where} names no base model in /v1/models. Is it {self.kind.name}?")
        self.base_name, self.max_model_length = base["id"], base["max_model_len"]
        status, answer = self._ask("GET", "/metrics", limit=self.timeout)
        found = re.search(r'cache_config_info\{[^}]*block_size="(\d+)"', answer) if status == 200 else None
        self.block_size = int(found.group(1)) if found else self.kind.block_size

    def missing(self, versions: Iterable[AdapterVersion]) -> list[AdapterVersion]:
        """Versions that the server does not have, because it was restarted. Waits for the server."""
        versions = list(versions)
        served = {(card["id"], card.get("root")) for card in self._models()}
        return [version for version in versions if (version.name, version.path) not in served]

    def load(self, version: AdapterVersion) -> None:
        body = {"lora_name": version.name, "lora_path": version.path}
        status, answer = self._ask("POST", self.kind.load, body, limit=self.timeout)
        if status == 200 or not self.missing([version]):  # another rank was quicker, or an attempt before this
            return
        why = self._why(status, answer, version)
        error = ServerLost if why.startswith("status 5") else EngineError
        raise error(f"{self.where} refuses adapter {version.name}: {why}")

    def unload(self, version: AdapterVersion) -> None:
        self._ask("POST", self.kind.unload, {"lora_name": version.name}, limit=self.timeout)

    def generate(self, rows: Sequence[EngineRow], sampling: Mapping[str, Any]) -> list[Drawn]:
        """Samples each row in a separate request, because a request has one seed. The server batches them."""
        check_unmixed(rows)
        drawn = [self._pool.submit(self.draw, row, sampling) for row in rows]
        return gather(drawn, [self], patience=self.timeout)

    def draw(self, row: EngineRow, sampling: Mapping[str, Any]) -> Drawn:
        """Samples one row."""
        with self._lock:
            self._open += 1
            if self._open == 1:
                self._answered = time.monotonic()
        try:
            return self._draw(row, sampling)
        finally:
            with self._lock:
                self._open, self._answered = self._open - 1, time.monotonic()

    def silence(self) -> tuple[float, int]:
        """Seconds since it answered a row, and the number of rows that wait for it; `(0.0, 0)` if none does."""
        with self._lock:
            return (time.monotonic() - self._answered, self._open) if self._open else (0.0, 0)

    def _draw(self, row: EngineRow, sampling: Mapping[str, Any]) -> Drawn:
        body = {
            **sampling,
            **self.kind.fields,
            "model": self.base_name,
            "prompt": list(row.prompt_ids),
            "seed": row.seed,
            "temperature": row.temperature,
        }
        if row.adapter:
            body[self.kind.adapter_field] = row.adapter.name
        # A row may wait long for its turn. A machine that is gone is noticed by the connection's keep-alive.
        status, answer = self._ask("POST", "/v1/completions", body, limit=None)
        if row.adapter and status == self.kind.lost_status and self.kind.lost_text in answer:
            raise ServerLost(f"{self.where} has lost adapter {row.adapter.name}")
        if status >= 500:
            raise ServerLost(f"{self.where} failed with status {status}: {_message(answer)}")
        if status != 200:
            raise EngineError(f"{self.where} refuses a row (status {status}): {_message(answer)}")
        try:
            return self._drawn(json.loads(answer)["choices"][0])
        except MALFORMED as error:
            raise EngineError(
                f"{self.where} answers a row with no completion of token ids and log-probabilities "
                f"({type(error).__name__}: {error}): {answer[:200]!r}. Is it a recent {self.kind.name}?"
            ) from error

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    # Requests --------------------------------------------------------------------------------------------------

    def _drawn(self, choice: dict) -> Drawn:
        ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        likeliest: list[dict[int, float]] = [{} for _ in ids]
        if self.kind.likeliest_by_id:
            likeliest = [
                {int(token.removeprefix("token_id:")): logprob for token, logprob in (position or {}).items()}
                for position in choice["logprobs"]["top_logprobs"]
            ]
        for position, token, logprob in zip(likeliest, ids, logprobs, strict=True):
            position[token] = logprob
        return Drawn(ids, logprobs, likeliest)

    def _models(self) -> list[dict]:
        """The list of `/v1/models`. Waits for a server that does not answer.

        Raises:
            EngineError: If it does not answer in time. `ServerLost`, if it is not waited for.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                status, answer = self._ask("GET", "/v1/models", limit=self.timeout)
                if status == 200:
                    return list(json.loads(answer)["data"])
                problem = f"status {status}: {_message(answer)}"
            except (ServerLost, *MALFORMED) as error:
                problem = f"{type(error).__name__}: {error}"
            if not self.waits:
                raise ServerLost(f"{self.where} does not answer ({problem})")
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{self.where} does not answer after {self.timeout:g} s ({problem}). Start it with "
                    f"`{self.kind.start}`, or raise the timeout."
                )
            time.sleep(min(RETRY_SECONDS, self.timeout / 10))

    def _ask(self, method: str, path: str, body: dict | None = None, *, limit: float | None) -> tuple[int, str]:
        """Status and text of one request; `limit` is in seconds.

        Raises:
            ServerLost: If there is no server, or no answer in time.
        """
        timeout = httpx.Timeout(limit, connect=self.timeout, pool=None)
        for again in (True, False):
            try:
                response = self._client.request(method, path, json=body, timeout=timeout)
                return response.status_code, response.text
            except httpx.RequestError as error:
                if not (again and isinstance(error, STALE)):
                    raise ServerLost(f"{self.where} went away ({type(error).__name__}: {error})") from error
        raise AssertionError("the second attempt returns or raises")

    def _why(self, status: int, answer: str, version: AdapterVersion) -> str:
        """What to change on the server, according to its answer to loading an adapter."""
        said = _message(answer)
        if status == 404 and "Not Found" in said:
            return f"it does not load adapters at run time. Start it with `{self.kind.start}`."
        if re.search("max[-_]lora[-_]rank", said):
            return f"{said} Start it with a --max-lora-rank that holds the members' rank."
        if re.search("LoRA is not enabled|enable[-_]lora", said):
            return f"it serves no LoRA ({said}). Start it with `{self.kind.start}`."
        if status == 404:
            return f"it does not see {version.path}. Set adapter_dir to a folder that both machines share. ({said})"
        return f"status {status}: {said}"


def gather(drawn: Sequence[Future[Drawn]], servers: Sequence[ServerEngine], *, patience: float) -> list[Drawn]:
    """The answers to rows in their order. Warns once of each server that has rows and answers none for `patience`
    seconds: it may hang, and nothing but time tells that from rows that take long.

    Raises:
        Exception: The first one of a row. Rows that have not begun are then given up.
    """
    waiting, silent = set(drawn), list(servers)
    try:
        while waiting:
            done, waiting = wait(waiting, timeout=patience, return_when=FIRST_EXCEPTION)
            for one in done:
                one.result()
            for server in [one for one in silent if one.silence()[0] >= patience]:
                silent.remove(server)
                logger.warning(
                    "%s has answered none of its %d rows for %.0f s. Long rows can take so long. If it hangs, stop "
                    "it: its rows are then sampled again by another server, or by itself when it is back.",
                    *(server.where, server.silence()[1], server.silence()[0]),
                )
        return [one.result() for one in drawn]
    finally:
        for one in waiting:
            one.cancel()


def _message(answer: str) -> str:
    """The error message in a server's answer, in any of the usual forms."""
    try:
        said = json.loads(answer)
        said = said.get("error") or said
        said = said if isinstance(said, str) else said.get("message") or said.get("error_message") or said["detail"]
        return str(said)  # FastAPI lists the wrong fields of a request
    except MALFORMED:
        return answer.strip()[:300]


def _keep_alive() -> list[tuple[int, int, int]]:
    wanted = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))  # seconds, seconds, times
    options = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in wanted if hasattr(socket, name)]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *options]
