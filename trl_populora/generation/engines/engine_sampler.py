"""`EngineSampler`: one engine serves the whole population. Every row is answered with its member's adapter.

The base is loaded only once. `sync` loads the changed adapters into the engine and runs the canary, which checks that
they are used. A member that has not passed this check cannot be sampled.
"""

import logging
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch
from accelerate.utils import broadcast_object_list, gather_object
from transformers import PreTrainedTokenizerBase

from ...population import Population
from ...self_play.sampling import Completion
from ..sampler import Sampler
from .adapters import AdapterStore, AdapterVersion, adapter_names, temperature_of
from .canary import TOKENS, TOLERANCES, Canary, FaultElsewhere
from .engine import Drawn, Engine, EngineError, EngineRow, EngineSpec, ServerLost, check_drawn


if TYPE_CHECKING:
    from accelerate import Accelerator

    from ...training import PopulationSelfPlayConfig

logger = logging.getLogger(__name__)
T = TypeVar("T")

RESTARTS = 3  # of a server during one sync or draw


class EngineSampler(Sampler):
    """Samples from members with an engine that batches the rows of many adapters.

    Every rank calls `sync` and `draw` together, each with its own rows (or none).

    Args:
        population ([`Population`]): Members and their model.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]): Tokenizer of the base.
        engine ([`Engine`]): Not started yet.
        adapter_dir (`str`, *optional*):
            Folder through which adapters reach an engine that reads files. Default: memory of this machine. Engines on
            other machines need a shared file system.
        dtype (`torch.dtype`, *optional*):
            Dtype of the engine's weights. Default: bfloat16 under bf16 mixed precision, otherwise that of the base.
        settings: The other arguments of [`Sampler`].

    Attributes:
        liveness (`dict[str, float]`): Difference that the last canary found for each member, in nats.
        serving (`dict[str, AdapterVersion]`): Version of each member that is sampled. Empty if the last sync failed.

    Raises:
        ValueError: If a setting is unknown or contradicts another.
        EngineError: If the engine cannot be reached or refuses adapters.
        LivenessError: If the engine answers with other weights than the trainer's.
    """

    reports_logprobs = True

    def __init__(
        self,
        population: Population,
        tokenizer: PreTrainedTokenizerBase,
        *,
        engine: Engine,
        adapter_dir: str | None = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(population, tokenizer, **settings)
        if not engine.filtered_logprobs and (self.top_p < 1.0 or self.top_k or self.min_p):
            raise ValueError(
                f"top_p={self.top_p}, top_k={self.top_k}, min_p={self.min_p}: this engine reports log-probabilities "
                "before these filters, so the trainer cannot correct for them. Leave them out."
            )
        self.engine, self.dtype = engine, dtype or _engine_dtype(population, self.accelerator)
        self.liveness: dict[str, float] = {}
        self.serving: dict[str, AdapterVersion] = {}
        self._newest: dict[str, AdapterVersion] = {}  # as `serving`, unless the last sync has failed
        self._outdated: list[AdapterVersion] = []  # earlier versions that the engine may still hold
        # `None` on processes that neither write files nor have an engine that takes weights from memory
        self.store: AdapterStore
        run = self._share(secrets.token_hex(4))  # ranks that sample together call a version by the same name
        kept = {"dtype": self.dtype, "folder": adapter_dir, "in_memory": engine.in_memory, "run": run}
        self.store = self._together(lambda: AdapterStore(population, **kept), here=self._takes)
        base = population.base_model.name_or_path or ""
        names = adapter_names(population)
        max_rank = max(population.lora_configs[name].r for name in names)
        targets = sorted({path.rpartition(".")[2] for name in names for path in population.factors(name)})
        self.engine.start(
            EngineSpec(
                model=base,
                tokenizer=tokenizer.name_or_path or base,
                dtype=self.dtype,
                max_rank=max_rank,
                num_adapters=len(names),
                accelerator=self.accelerator,
                targets=tuple(targets),
                packed=any(getattr(population.base_model, f"is_loaded_in_{bits}bit", False) for bits in (4, 8)),
                weights=self.store.weights if engine.in_memory else {},
            )
        )
        self.canary = Canary(
            population,
            self.engine,
            self._canary_prompt(self.engine.block_size + TOKENS),
            self._canary_prompt(4 * self.engine.block_size + TOKENS),
            dtype=self.dtype,
            temperature=self.temperature,
            weights=self.store.weights if engine.in_memory else {},
            autocast=self.accelerator.autocast if self.accelerator else nullcontext,
            anywhere=self._anywhere if self.engine.everywhere and not self._alone else list,
        )
        self._together(lambda: self._on_parts(self.canary.check_base), here=self._feeds)
        told = self._share(self.canary.base_error)
        if not self._feeds:  # these processes check after a restart, too
            self.canary.base_error = told
        probes = self._from_store(lambda: self.canary.take_probes(self.store))
        self._together(lambda: self._on_parts(lambda: self.canary.check_mechanism(probes)), here=self._feeds)
        if self.store:
            self.store.remove(probes)
        self.rest()  # a warm start may come first

    @classmethod
    def from_args(
        cls,
        population: Population,
        tokenizer: PreTrainedTokenizerBase,
        accelerator: "Accelerator | None",
        args: "PopulationSelfPlayConfig",
        **kwargs: Any,
    ) -> Self:
        """As [`Sampler.from_args`], with the `engine` among `kwargs`.

        Raises:
            ValueError: If the base is sharded and the engine is not on every rank, or engines on several machines have
                no folder for adapters that all of them see.
        """
        if args.shard_base and not kwargs["engine"].everywhere:
            raise ValueError(
                "shard_base=true with a server: the engine's liveness check runs the model on one process only. Leave "
                "shard_base out, or sample in this process."
            )
        ranks = accelerator.num_processes if accelerator else 1
        here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))  # set by torchrun and accelerate launch
        engine = kwargs["engine"]
        if engine.everywhere and not engine.in_memory and here < ranks and not args.vllm_adapter_dir:
            raise ValueError(
                f"use_vllm=true with {here} of {ranks} processes on this machine: engines elsewhere cannot read "
                "adapters that are written here. Set vllm_adapter_dir to a folder that all machines see."
            )
        return super().from_args(population, tokenizer, accelerator, args, **kwargs)

    @property
    def sampling(self) -> dict[str, Any]:
        """Settings that all rows of a call share, under the names of engines."""
        return {
            "max_tokens": self.max_completion_length,
            "top_p": self.top_p,
            "top_k": self.top_k or -1,
            "min_p": self.min_p or 0.0,
            "stop": self.stop_strings,
            "stop_token_ids": self.eos_ids,
            "logprobs": 0,
        }

    @property
    def max_length(self) -> int:
        """Largest number of tokens of a prompt and its completion that the engine accepts."""
        return self.engine.max_model_length

    def sync(self) -> None:
        """Loads every changed adapter into the engine, and every adapter that the engine has lost. After an error,
        the next call loads all of them under new names.

        Raises:
            EngineError: If an adapter cannot be written or loaded.
            LivenessError: If a member is not sampled from its current weights.
        """
        woken = self._together(self.engine.wake, here=True)
        serving, self.serving = self.serving, {}  # nobody can be sampled until the canary has seen everybody
        again = not serving or serving != self._newest
        changed = self._from_store(lambda: self.store.take_changed(everything=again))
        new = {version.member for version in changed}
        kept = [version for name, version in self._newest.items() if name not in new]
        missing = self._share(self._together(lambda: self.engine.missing(kept), here=self._main))
        lost = [self._newest[version.member] for version in missing]  # with this rank's own path
        if not changed and not lost:
            self.serving = serving
            return self._check_awake() if woken else None
        outdated = [version for name, version in self._newest.items() if name in new]
        self._outdated += outdated
        self._newest |= {version.member: version for version in changed}
        before = [] if again else outdated  # those that are surely loaded
        self._together(lambda: self._serve(lambda: self._load([*changed, *lost])), here=self._feeds)
        self._together(lambda: self._serve(lambda: self._check(self._newest, before)), here=self._feeds)
        self._together(lambda: self._unload(self._outdated), here=self._feeds)
        self.serving, self._outdated = dict(self._newest), []

    def draw(
        self, prompt_ids: Sequence[list[int]], members: Sequence[str | None], row_seeds: Sequence[int]
    ) -> list[Completion]:
        """All rows in one call of the engine.

        Raises:
            ValueError: If a prompt is too long, or the base and members are in one call.
            EngineError: If a member is not loaded, or the engine cannot be reached.
        """
        self._check_rows(prompt_ids, members)
        if self._together(self.engine.wake, here=True):
            self._check_awake()
        rows = [
            EngineRow(
                ids,
                None if name is None else self.serving[name],
                seed & 0xFFFFFFFF,
                self.temperature * temperature_of(self.population, name),
            )
            for ids, name, seed in zip(prompt_ids, members, row_seeds, strict=True)
        ]
        drawn = self._generate(rows)
        return [
            self.completion(ids, answer.ids, answer.logprobs) for ids, answer in zip(prompt_ids, drawn, strict=True)
        ]

    def rest(self) -> None:
        """Frees the engine's memory. The next `sync` or `draw` wakes the engine and runs the canary."""
        self.engine.sleep()

    def close(self) -> None:
        """Ends the engine of this process, or unloads the members from the server, and removes what it has stored."""
        held = [*self._newest.values(), *self._outdated]  # also after a sync that has failed
        self._unload(held if self._feeds and not self.engine.everywhere else ())
        self.serving, self._newest, self._outdated = {}, {}, []
        self.engine.close()
        if self.store:
            self.store.close()

    # One step of a sync or a draw ------------------------------------------------------------------------------

    def _load(self, versions: Iterable[AdapterVersion]) -> None:
        for version in versions:
            self.engine.load(version)

    def _check(self, target: dict[str, AdapterVersion], outdated: Sequence[AdapterVersion] = ()) -> None:
        seen = self._on_parts(lambda: self.canary.check_members(list(target.values()), outdated))
        self.liveness = {name: max(one[name] for one in seen) for name in target}

    def _on_parts(self, check: Callable[[], Any]) -> list[Any]:
        """Results of a check by the canary on every engine that answers for itself, without those that are lost."""
        results = []
        for part in self.engine.parts:
            self.canary.engine = part
            try:
                results.append(check())
            except ServerLost as error:
                self.engine.leave_out(part, error)
        return results

    def _check_awake(self) -> None:
        """An engine that slept may have lost its adapters without an error (vLLM issue 53888)."""
        if not self.serving:  # before the first sync, which checks
            return
        serving, self.serving = self.serving, {}
        self._together(lambda: self._check(serving), here=self._feeds)
        self.serving = serving

    def _unload(self, versions: Iterable[AdapterVersion]) -> None:
        with suppress(EngineError):  # a server that is gone has unloaded all; a silent one is asked only once
            for version in versions:
                self.engine.unload(version)

    def _serve(self, work: Callable[[], None]) -> None:
        """Loads or checks the newest versions. If a server is lost in it, the newest ones are loaded and checked."""
        self._despite_restarts(work, lambda: None, self._newest)

    def _generate(self, rows: list[EngineRow]) -> list[Drawn]:
        """Samples all rows, and samples them again if a server was lost. A row's tokens depend only on its seed."""

        def sample() -> list[Drawn]:
            return check_drawn(self.engine.generate(rows, self.sampling), self.engine, rows)

        return self._despite_restarts(sample, sample, self.serving)

    def _despite_restarts(
        self, first: Callable[[], T], again: Callable[[], T], serving: dict[str, AdapterVersion]
    ) -> T:
        """The result of `first`. If a server is lost in it: the result of `again`, after the server is back with these
        versions and has passed the check."""
        for attempt in range(RESTARTS + 1):
            try:
                if not attempt:
                    return first()
                self._load(self.engine.missing(list(serving.values())))
                self._check(serving)
                return again()
            except ServerLost as error:
                if attempt == RESTARTS or (self.engine.everywhere and not self._alone):  # others do not ask again
                    raise
                logger.warning("%s. Waiting for it; then its work is done again.", error)
        raise AssertionError("the last attempt returns or raises")

    def _check_rows(self, prompt_ids: Sequence[list[int]], members: Sequence[str | None]) -> None:
        unknown = sorted({name for name in members if name is not None and name not in self.serving})
        if unknown:
            raise EngineError(
                f"{unknown} cannot be sampled: {self.engine.where} serves {sorted(self.serving)}. Call sync() first, "
                "and again whenever it has failed."
            )
        longest = max(map(len, prompt_ids), default=0)
        if longest + self.max_completion_length > self.engine.max_model_length:
            raise ValueError(
                f"A prompt of {longest} tokens and max_completion_length={self.max_completion_length} exceed the "
                f"{self.engine.max_model_length} tokens of {self.engine.where}. Lower one of them, or raise the "
                "length that it serves (vllm_max_model_length, or --max-model-len of a server)."
            )

    def _canary_prompt(self, length: int) -> list[int]:
        """Ordinary tokens in a random order that never changes."""
        special = {*self.tokenizer.all_special_ids, *self.eos_ids}
        size = min(len(self.tokenizer), self.population.base_model.config.get_text_config().vocab_size)
        vocabulary = [token for token in range(size) if token not in special]
        length = min(length, self.engine.max_model_length - TOKENS)
        picks = torch.randint(len(vocabulary), (length,), generator=torch.Generator().manual_seed(0)).tolist()
        return [vocabulary[pick] for pick in picks]

    # Ranks -----------------------------------------------------------------------------------------------------

    @property
    def _main(self) -> bool:
        return self.accelerator is None or self.accelerator.is_main_process

    @property
    def _takes(self) -> bool:
        """Whether this rank stores versions of adapters: every rank in its memory, otherwise the main one in files."""
        return self.engine.in_memory or self._main

    @property
    def _feeds(self) -> bool:
        """Whether this rank loads adapters and runs the canary: every rank with its own engine, otherwise the main
        one."""
        return self.engine.everywhere or self._main

    @property
    def _alone(self) -> bool:
        return self.accelerator is None or self.accelerator.num_processes == 1

    def _together(self, work: Callable[[], Any], *, here: bool) -> Any:
        """Runs `work` on the ranks with `here`. If one fails, all ranks raise an error instead of waiting for it,
        except if it fails inside a collective of the engine or the base."""
        if self.accelerator is None or self._alone:
            return work()
        result, problem = None, None
        if here:
            try:
                result = work()
            except FaultElsewhere as fault:
                if fault.args:
                    raise EngineError(*fault.args) from None
            except Exception as error:
                problem = error
        failures = gather_object([problem and f"rank {self.accelerator.process_index}: {problem}"])
        if problem:
            raise problem
        if any(failures):
            raise EngineError(next(filter(None, failures)))
        return result

    def _anywhere(self, flags: list[bool]) -> list[bool]:
        """For each flag, whether it is true on any rank. Called in the work of `_together`, whose report of a failure
        can arrive instead of a rank's flags."""
        told = gather_object([flags])
        for failure in told:
            if isinstance(failure, str):
                raise FaultElsewhere(failure)
        return [any(flag) for flag in zip(*told, strict=True)]

    def _from_store(self, take: Callable[[], list[AdapterVersion]]) -> list[AdapterVersion]:
        """Versions that the store has taken, on all ranks. With a store on each rank, all must be of the same weights.

        Raises:
            EngineError: If they are not.
        """
        taken = self._together(take, here=self._takes)
        if not self.engine.in_memory:
            return self._share(taken)
        first, own = self._share(self.store.state), self.store.state
        self._together(lambda: _check_alike(first, own), here=True)
        return taken

    def _share(self, value: Any) -> Any:
        """The value of the main process, on every rank."""
        return value if self._alone else broadcast_object_list([value])[0]


def _check_alike(first: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    if other := [name for name, version in own.items() if version != first.get(name)]:
        raise EngineError(
            f"The adapters {', '.join(map(repr, other))} differ from those of the main process, so processes would "
            "learn from completions of different weights. Resume from the last checkpoint, and report it."
        )


def _engine_dtype(population: Population, accelerator: "Accelerator | None") -> torch.dtype:
    """The dtype of the trainer's forward pass: bfloat16 under bf16 mixed precision, otherwise that of the base."""
    if accelerator is not None and accelerator.mixed_precision == "bf16":
        return torch.bfloat16
    dtype = population.base_model.dtype
    if dtype not in TOLERANCES:
        raise ValueError(f"The base has type {dtype}; an engine serves float32, bfloat16 or float16.")
    return dtype
