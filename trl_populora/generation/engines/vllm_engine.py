"""vLLM in the trainer's own process, one engine per rank or per tensor-parallel group of ranks.

Also `vllm_sampler`, which makes the engine (in this process or on a server) from TRL's `vllm_*` settings.
"""

# vLLM has an environment of its own (`make test-vllm`).
# pyright: reportMissingImports=false

import logging
import os
import socket
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import patch_environment
from transformers import PreTrainedTokenizerBase

from ...population import Population
from ...settings import as_mapping
from ..sampler import unchanged_random_states
from .adapters import AdapterVersion
from .engine import Drawn, Engine, EngineError, EngineRow, EngineSpec, check_unmixed
from .engine_sampler import EngineSampler
from .server_kinds import VLLM
from .servers import server_engine
from .vllm_worker import TrainersAdapters


if TYPE_CHECKING:
    from accelerate import Accelerator
    from vllm.lora.request import LoRARequest
    from vllm.outputs import CompletionOutput

    from ...training import PopulationSelfPlayConfig


logger = logging.getLogger(__name__)

# Versions on which tests/vllm_engine ran -> whether by the second model runner.
TESTED = {"0.25.1": False, "0.31.0": False}
MAX_ROWS = 256  # of an engine at once, by default: those beyond wait, and each takes memory for its logits
OWN = {
    *("model", "tokenizer", "dtype", "enable_lora", "lora_dtype", "max_lora_rank"),
    *("generation_config", "logprobs_mode", "seed", "worker_extension_cls"),
}
"""Arguments of `vllm.LLM` that only this class sets, so that the engine serves the population correctly."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


class VLLMEngine(Engine):
    """An engine of this process, with sleep level 1: the base is frozen, so its weights wait in host memory.

    Args:
        max_loras (`int`, *optional*): Number of different adapters in one batch; all if unset. A smaller number saves
            memory.
        tensor_parallel_size (`int`), enable_sleep_mode (`bool`): As in [`~trl.GRPOConfig`].
        engine_kwargs: Additional arguments of `vllm.LLM`, such as `max_model_len`; none of `OWN`.

    Raises:
        ValueError: If a setting is not possible on this machine.
    """

    everywhere = True

    def __init__(
        self,
        *,
        max_loras: int | None = None,
        tensor_parallel_size: int = 1,
        enable_sleep_mode: bool = False,
        **engine_kwargs: Any,
    ) -> None:
        if enable_sleep_mode and not torch.cuda.is_available():
            raise ValueError("vllm_enable_sleep_mode=true frees GPU memory of this process; leave it out here.")
        if max_loras is not None and max_loras < 1:
            raise ValueError(f"vllm_max_loras={max_loras} must be at least 1, or unset for all adapters.")
        if own := sorted(OWN & engine_kwargs.keys()):
            raise ValueError(f"vllm_engine_kwargs must leave {', '.join(own)} out: the population decides them.")
        self.max_loras, self.tensor_parallel_size, self.engine_kwargs = max_loras, tensor_parallel_size, engine_kwargs
        self.enable_sleep_mode, self.asleep = enable_sleep_mode, False
        executor = engine_kwargs.get(
            "distributed_executor_backend", "external_launcher" if torch.cuda.is_available() else None
        )
        other_sizes = [engine_kwargs.get(f"{kind}_parallel_size", 1) for kind in ("pipeline", "data")]
        # Otherwise vLLM puts the engine, or its workers, into other processes.
        plain = executor in (None, "uni") and max(tensor_parallel_size, *other_sizes) == 1
        alone = os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0"
        self.in_memory = executor == "external_launcher" or (plain and alone)

    def start(self, spec: EngineSpec) -> None:
        if not spec.model:
            raise ValueError("The base was made in memory; vLLM needs a folder. Save it and load it from there.")
        world = spec.accelerator.num_processes if spec.accelerator else 1
        rank = spec.accelerator.process_index if spec.accelerator else 0
        self.where = f"the vLLM engine of rank {rank}"
        if world % self.tensor_parallel_size:
            raise ValueError(
                f"vllm_tensor_parallel_size={self.tensor_parallel_size} must divide the number of processes, {world}."
            )
        max_lora_rank = round_up_rank(spec.max_rank)
        if torch.cuda.is_available() and spec.dtype == torch.float32 and "dtype" not in self.engine_kwargs:
            raise ValueError(
                "use_vllm with a base in float32: on a GPU, vLLM serves adapters in bfloat16 or float16 only. Set "
                "bf16=true, or dtype: bfloat16 in model_init_kwargs, or use_vllm=false."
            )
        if spec.packed and "quantization" not in self.engine_kwargs:
            raise ValueError(
                "use_vllm with a base in 4 or 8 bits: the engine would load it in full precision, so with other "
                "weights, unless it was packed before it was saved. Set use_vllm=false, or say what the engine loads, "
                "where vLLM has it (0.25.1, not 0.31.0): vllm_engine_kwargs={'quantization': 'bitsandbytes'}."
            )
        try:
            import vllm
            from vllm import LLM
        except ImportError as error:
            raise ValueError(
                f"use_vllm needs vLLM, which cannot be imported ({error}). Install 'trl-populora[vllm]' in a new "
                "environment, because vLLM needs versions of its own, or set use_vllm=false."
            ) from error
        joined = torch.distributed.is_initialized()
        self.group: Any = None
        if self.tensor_parallel_size > 1:
            groups = torch.arange(world).view(-1, self.tensor_parallel_size).tolist()
            self.group = torch.distributed.new_subgroups_by_enumeration(groups)[0]
        own: dict[str, Any] = {
            "max_cpu_loras": max(2 * spec.num_adapters, self.max_loras or 0, 4),
            # Otherwise vLLM keeps room for adapters of all layers: of a mixture of experts, of each expert.
            "lora_target_modules": list(spec.targets) or None,
        }
        if torch.cuda.is_available():
            # Inside this process, so that it joins the trainer's process group, as GRPOTrainer's own engine does.
            own |= {"max_num_batched_tokens": 4096, "distributed_executor_backend": "external_launcher"}
        else:  # a prompt in parts winds a seed's generator back, which those of a CPU cannot (vLLM 0.31)
            own |= {"enable_chunked_prefill": False}
        with rank_variables(spec.accelerator), unchanged_random_states():  # vLLM seeds all generators
            self.llm = LLM(
                model=spec.model,
                tokenizer=spec.tokenizer,
                dtype=str(spec.dtype).removeprefix("torch."),
                tensor_parallel_size=self.tensor_parallel_size,
                enable_lora=True,
                max_lora_rank=max_lora_rank,
                max_loras=self.max_loras or spec.num_adapters,
                enable_sleep_mode=self.enable_sleep_mode,
                generation_config="vllm",  # nothing of the model's own file: it would make sampling off-policy
                logprobs_mode="processed_logprobs",  # after temperature and filters: those of the sampling policy
                seed=rank // self.tensor_parallel_size,
                worker_extension_cls=f"{TrainersAdapters.__module__}.{TrainersAdapters.__qualname__}",
                **own | self.engine_kwargs,
            )
        # Also for an engine that is collected without close: vLLM ends itself there, and destroys what it joined.
        self._end = weakref.finalize(self, _end_engine, self.llm.llm_engine.engine_core, joined, self.group)
        self._end.atexit = False
        if self.in_memory:
            self.llm.collective_rpc("take_adapters_from", args=(spec.weights,))
        config = self.llm.llm_engine.vllm_config
        log_version(vllm.__version__, second_runner=bool(getattr(config, "use_v2_model_runner", False)))
        self.block_size = config.cache_config.block_size
        self.max_model_length = config.model_config.max_model_len

    def wake(self) -> bool:
        woken = self.asleep
        if woken:
            torch.cuda.empty_cache()
            self.llm.wake_up()
            self.asleep = False
        return woken

    def sleep(self) -> None:
        if self.enable_sleep_mode and not self.asleep:
            self.llm.sleep(level=1)
            self.asleep = True

    def load(self, version: AdapterVersion) -> None:
        try:  # before it is needed, so that a bad file is known now
            loaded = self.llm.llm_engine.add_lora(self.request(version))
        except Exception as error:
            raise EngineError(f"{self.where} refuses adapter {version.name} of {version.path}: {error}") from error
        if not loaded:
            raise EngineError(f"{self.where} did not load adapter {version.name}: its id {version.id} is in use.")

    def unload(self, version: AdapterVersion) -> None:
        self.llm.llm_engine.remove_lora(version.id)

    def held(self, versions: Sequence[AdapterVersion]) -> list[list[int] | None]:
        if self.group is not None:  # each rank of the group has a part of some matrices, and all of others
            return super().held(versions)
        ids = [self.request(version).lora_int_id for version in versions]
        (sums,) = self.llm.collective_rpc("adapter_sums", args=(ids,))
        return sums

    def generate(self, rows: Sequence[EngineRow], sampling: Mapping[str, Any]) -> list[Drawn]:
        """Samples all rows in one call. The ranks of a tensor-parallel group sample the rows of all of them
        together."""
        from vllm import SamplingParams

        shares = self._shares(list(rows))
        everyone = [row for share in shares for row in share]
        if not everyone:
            return []
        check_unmixed(everyone)
        settings = {
            **sampling,
            "detokenize": bool(sampling["stop"]),
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
        }
        outputs = self.llm.generate(
            [{"prompt_token_ids": list(row.prompt_ids)} for row in everyone],
            [SamplingParams(**settings, seed=row.seed, temperature=row.temperature) for row in everyone],
            lora_request=[row.adapter and self.request(row.adapter) for row in everyone],
            use_tqdm=False,
        )
        place = 0 if self.group is None else torch.distributed.get_rank(self.group)
        start = sum(map(len, shares[:place]))
        return [_drawn(output.outputs[0]) for output in outputs[start : start + len(rows)]]

    def close(self) -> None:
        """Ends the engine. A default process group that was there before it stays: vLLM would destroy it, too."""
        self._end()

    def request(self, version: AdapterVersion) -> "LoRARequest":
        """vLLM's name for a version of an adapter."""
        from vllm.lora.request import LoRARequest

        return LoRARequest(version.name, version.id, version.path)

    def _shares(self, rows: list[EngineRow]) -> list[list[EngineRow]]:
        if self.group is None:
            return [rows]
        shares: list = [None] * self.tensor_parallel_size
        torch.distributed.all_gather_object(shares, rows, group=self.group)
        # Without this, vLLM's collectives can meet the end of the trainer's (huggingface/trl issue 3671).
        torch.distributed.barrier(group=self.group)
        return shares


def _end_engine(core: Any, joined: bool, group: Any) -> None:
    with default_group_kept() if joined else nullcontext():
        core.shutdown()
    with suppress(ImportError, AttributeError):  # by address: wrong for the next engine, and they keep memory
        from vllm.lora.ops.triton_ops import utils

        utils._LORA_A_PTR_DICT.clear()
        utils._LORA_B_PTR_DICT.clear()
    if group is not None:
        torch.distributed.destroy_process_group(group)


@contextmanager
def default_group_kept() -> Iterator[None]:
    """Context in which `torch.distributed.destroy_process_group` without a group does nothing."""
    destroy = torch.distributed.destroy_process_group
    torch.distributed.destroy_process_group = lambda group=None: None if group is None else destroy(group)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group = destroy


def vllm_sampler(
    population: Population,
    tokenizer: PreTrainedTokenizerBase,
    accelerator: "Accelerator | None",
    args: "PopulationSelfPlayConfig",
) -> EngineSampler:
    """The sampler for `use_vllm=true`, according to TRL's `vllm_*` settings.

    Raises:
        ValueError: If one of them is unknown or contradicts another.
    """
    if args.vllm_mode == "server":
        if args.vllm_engine_kwargs:
            raise ValueError("vllm_engine_kwargs are for vllm_mode='colocate'; give them to the server's command.")
        if args.vllm_enable_sleep_mode:
            raise ValueError("vllm_enable_sleep_mode=true frees GPU memory of this process; leave it out here.")
        urls = args.vllm_server_base_urls or args.vllm_server_base_url
        urls = urls or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
        engine: Engine = server_engine(urls, VLLM, timeout=args.vllm_server_timeout)
    elif args.vllm_mode == "colocate":
        engines = (accelerator.num_processes if accelerator else 1) // args.vllm_tensor_parallel_size
        settings = {
            "max_loras": args.vllm_max_loras,
            "tensor_parallel_size": args.vllm_tensor_parallel_size,
            "enable_sleep_mode": args.vllm_enable_sleep_mode,
            "gpu_memory_utilization": args.vllm_gpu_memory_utilization,
            "max_model_len": args.vllm_max_model_length or _row_length(population, args),
            "max_num_seqs": min(MAX_ROWS, -(-args.completions_per_round // max(engines, 1))),
            "model_impl": args.vllm_model_impl,
            "trust_remote_code": args.trust_remote_code,
        }
        settings |= of_revision((args.model_init_kwargs or {}).get("revision"))
        engine = VLLMEngine(**settings | as_mapping(args.vllm_engine_kwargs))
        if engine.in_memory and args.vllm_adapter_dir:
            raise ValueError(
                f"vllm_adapter_dir={args.vllm_adapter_dir!r} is for servers: an engine in the trainer's process takes "
                "adapters from its memory. Leave it out."
            )
    else:
        raise ValueError(f"vllm_mode={args.vllm_mode!r} is unknown. Choose 'colocate' or 'server'.")
    return EngineSampler.from_args(
        population, tokenizer, accelerator, args, engine=engine, adapter_dir=args.vllm_adapter_dir
    )


def of_revision(revision: str | None) -> dict[str, str]:
    """Arguments of `vllm.LLM` for a revision of the base on the Hub."""
    return dict.fromkeys(("revision", "tokenizer_revision"), revision) if revision else {}


def _row_length(population: Population, args: "PopulationSelfPlayConfig") -> int | None:
    """Maximum tokens of a row by the settings, or `None`. A limit below the model's leaves cache for more rows."""
    wanted, own = args.max_row_tokens, population.base_model.config.get_text_config().max_position_embeddings
    return None if wanted is None else min(wanted, own)


def round_up_rank(rank: int) -> int:
    """Smallest `max_lora_rank` that vLLM accepts and that holds `rank`.

    Raises:
        ValueError: If the rank is larger than all of them.
    """
    if rank > LORA_RANKS[-1]:
        raise ValueError(f"lora_r={rank} is more than vLLM serves; choose at most {LORA_RANKS[-1]}.")
    return next(allowed for allowed in LORA_RANKS if rank <= allowed)


def log_version(version: str, *, second_runner: bool) -> None:
    """Logs the versions of vLLM and of its model runner, as a warning if this pair was not tested."""
    known = TESTED.get(version.split("+")[0])
    tested = ", ".join(f"{one} by model runner V{1 + runner}" for one, runner in TESTED.items())
    log = logger.info if known is second_runner else logger.warning
    log("vLLM %s by model runner V%d; tested: %s.", version, 1 + second_runner, tested)


def _drawn(output: "CompletionOutput") -> Drawn:
    likeliest = [{token: entry.logprob for token, entry in position.items()} for position in output.logprobs]
    ids = list(output.token_ids)
    return Drawn(ids, [position[token] for position, token in zip(likeliest, ids, strict=True)], likeliest)


@contextmanager
def rank_variables(accelerator: "Accelerator | None") -> Iterator[None]:
    """Context with the environment variables of torchrun, which vLLM's external launcher reads.

    If they stayed, the next trainer of a script would think that it is one of several processes.
    """
    with socket.socket() as free:
        free.bind(("", 0))
        port = str(free.getsockname()[1])
    own = {
        "RANK": str(accelerator.process_index if accelerator else 0),
        "LOCAL_RANK": str(accelerator.local_process_index if accelerator else 0),
        "WORLD_SIZE": str(accelerator.num_processes if accelerator else 1),
        "MASTER_ADDR": os.environ.get("MASTER_ADDR", "localhost"),
        "MASTER_PORT": os.environ.get("MASTER_PORT", port),
    }
    with patch_environment(**own):
        yield
