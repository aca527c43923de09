"""Several servers as one engine: every server has all adapters, and every row is answered by one of them.

A row's tokens depend on its seed and not on the server, so the rows of a lost server are sampled again by the others.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from ...population import Population
from .adapters import AdapterVersion
from .engine import Drawn, Engine, EngineError, EngineRow, EngineSpec, ServerLost, check_unmixed
from .engine_sampler import EngineSampler
from .server import CONNECTIONS, ServerEngine, gather
from .server_kinds import KINDS, ServerKind


if TYPE_CHECKING:
    from accelerate import Accelerator

    from ...training import PopulationSelfPlayConfig


logger = logging.getLogger(__name__)


class ServersEngine(Engine):
    """Running servers of one kind that serve the same base.

    A server that stops, or answers with a status of 500 or more, is left out until the run is started again. The
    others get its rows. All must answer at the start.

    Args:
        base_urls (`Sequence[str]`): Such as `["http://node2:8000", "http://node3:8000"]`.
        kind ([`ServerKind`]): Properties of this kind of server.
        timeout (`float`, *optional*, defaults to `240.0`): Seconds to wait for a server at the start, and for its
            answer to anything but a row.

    Raises:
        ValueError: If there is no URL, one that is not a URL, or the same one twice.
    """

    def __init__(self, base_urls: Sequence[str], kind: ServerKind, *, timeout: float = 240.0) -> None:
        check_urls(base_urls)
        self.kind, self.filtered_logprobs = kind, kind.filtered_logprobs
        self.live = [ServerEngine(url, kind, timeout=timeout) for url in base_urls]
        self._all = tuple(self.live)
        self.where = _together(self.live)
        self._has: dict[ServerEngine, set[str]] = {server: set() for server in self.live}
        self._losses: list[str] = []
        self._first, self._turn, self._lock = 0, count(), threading.Lock()
        self._pool = ThreadPoolExecutor(CONNECTIONS * len(self.live), thread_name_prefix="rows")

    @property
    def parts(self) -> Sequence[Engine]:
        return tuple(self.live)

    def start(self, spec: EngineSpec) -> None:
        list(self._pool.map(lambda server: server.start(spec), self._all))
        self.block_size = max(server.block_size for server in self._all)
        self.max_model_length = min(server.max_model_length for server in self._all)
        self._first = spec.accelerator.process_index if spec.accelerator else 0
        for server in self._all:
            server.waits = False  # from now on the others are there

    def leave_out(self, part: Engine, error: ServerLost) -> None:
        """Sends nothing more to a server. Raises `EngineError` if it was the last one."""
        with self._lock:
            if part in self.live:
                self.live = [server for server in self.live if server is not part]
                self.where = _together(self.live)
                self._losses.append(str(error))
                if self.live:
                    logger.warning("%s. It is left out; its rows go to %s.", error, self.where)
            if not self.live:
                raise self._nobody() from error

    def missing(self, versions: Iterable[AdapterVersion]) -> list[AdapterVersion]:
        """Versions that a server does not have, because it was restarted."""
        versions, absent = list(versions), set[AdapterVersion]()
        for server, lost in self._on_each(lambda server: server.missing(versions)).items():
            self._has[server] -= {version.name for version in lost}
            absent.update(lost)
        return [version for version in versions if version in absent]

    def load(self, version: AdapterVersion) -> None:
        """Loads an adapter on every server that does not have it."""

        def load(server: ServerEngine) -> None:
            if version.name not in self._has[server]:
                server.load(version)
                self._has[server].add(version.name)

        self._on_each(load)

    def unload(self, version: AdapterVersion) -> None:
        for server in self.live:
            self._has[server].discard(version.name)
        self._on_each(lambda server: server.unload(version))

    def generate(self, rows: Sequence[EngineRow], sampling: Mapping[str, Any]) -> list[Drawn]:
        """Divides the rows among the servers so that all get about equally many tokens. If a server is lost, its rows
        go to the next one."""
        check_unmixed(rows)
        live = self.live
        tokens = [len(row.prompt_ids) + sampling["max_tokens"] for row in rows]
        places = deal(tokens, len(live), first=self._first)

        def draw(row: EngineRow, place: int) -> Drawn:
            server = live[place]
            while True:
                try:
                    return server.draw(row, sampling)
                except ServerLost as error:
                    self.leave_out(server, error)
                    server = self._next()

        drawn = [self._pool.submit(draw, row, place) for row, place in zip(rows, places, strict=True)]
        return gather(drawn, live, patience=self._all[0].timeout)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for server in self._all:
            server.close()

    def _next(self) -> ServerEngine:
        with self._lock:
            if not self.live:  # the others were lost meanwhile
                raise self._nobody()
            return self.live[next(self._turn) % len(self.live)]

    def _nobody(self) -> EngineError:
        return EngineError(
            f"No {self.kind.name} server is left: {'; '.join(self._losses)}. Start them again, and resume the "
            "run from its last checkpoint."
        )

    def _on_each(self, work: Callable[[ServerEngine], Any]) -> dict[ServerEngine, Any]:
        """Results of all servers at once, without those that are lost by it."""
        results = {}
        for server, future in [(server, self._pool.submit(work, server)) for server in self.live]:
            try:
                results[server] = future.result()
            except ServerLost as error:
                self.leave_out(server, error)
        return results


def server_engine(base_urls: str | Sequence[str], kind: ServerKind, *, timeout: float) -> Engine:
    """The engine of one server, or of several."""
    urls = [base_urls] if isinstance(base_urls, str) else list(base_urls)
    if len(urls) == 1:
        return ServerEngine(urls[0], kind, timeout=timeout)
    return ServersEngine(urls, kind, timeout=timeout)


def server_sampler(
    population: Population,
    tokenizer: PreTrainedTokenizerBase,
    accelerator: "Accelerator | None",
    args: "PopulationSelfPlayConfig",
    *,
    kind: str | ServerKind,
    base_url: str | Sequence[str],
    timeout: float = 240.0,
    adapter_dir: str | None = None,
) -> EngineSampler:
    """A sampler on running servers of one kind, for `sampler=` and for recipes.

    Args:
        population, tokenizer, accelerator, args: Passed by the trainer.
        kind (`str` or [`ServerKind`]): `"sglang"`, `"vllm"`, or a description of your own server.
        base_url (`str` or `Sequence[str]`): Such as `"http://localhost:30000"`. Rows are divided among several.
        timeout (`float`, *optional*, defaults to `240.0`): Seconds to wait for a server that does not answer.
        adapter_dir (`str`, *optional*): Folder through which adapters reach the server, which must see it under this
            path.

    Raises:
        ValueError: If a setting is unknown, or a URL is wrong or given twice.
        EngineError: If a server does not answer.
    """
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ValueError(f"kind={kind!r} is unknown. Choose from {sorted(KINDS)}, or pass a ServerKind.")
        kind = KINDS[kind]
    engine = server_engine(base_url, kind, timeout=timeout)
    return EngineSampler.from_args(population, tokenizer, accelerator, args, engine=engine, adapter_dir=adapter_dir)


def _together(servers: Sequence[ServerEngine]) -> str:
    return " and ".join(server.where for server in servers)


def check_urls(urls: Sequence[str]) -> None:
    """Refuses a list of servers that is empty or has the same one twice."""
    plain = [url.rstrip("/") for url in urls]
    if not plain:
        raise ValueError("The list of servers is empty. Give the URL of at least one, like 'http://localhost:8000'.")
    if twice := sorted({url for url in plain if plain.count(url) > 1}):
        raise ValueError(f"The list of servers has {', '.join(twice)} more than once. Leave each in it once.")


def deal(sizes: Sequence[int], parts: int, *, first: int = 0) -> list[int]:
    """The part of each item, such that all parts have about equal sums: the largest first, each to the part with the
    least so far. Of equal parts, `first` (modulo `parts`) gets it, or the next one."""
    sums, places = [0] * parts, [0] * len(sizes)
    for item in sorted(range(len(sizes)), key=lambda item: -sizes[item]):
        places[item] = min(range(parts), key=lambda part: (sums[part], (part - first) % parts))
        sums[places[item]] += sizes[item]
    return places
