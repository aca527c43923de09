"""vLLM in the trainer's own process, one engine per rank or per tensor-parallel group of ranks."""

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from .vllm_adapters import AdapterVersion
from .vllm_engine import Drawn, EngineError, EngineRow, check_unmixed


class ColocateEngine:
    """An engine of this process, with sleep level 1: the base is frozen, so its weights wait in host memory.

    Args:
        model (`str`): Folder or Hub id of the base.
        tokenizer (`str`): Folder or Hub id of its tokenizer.
        dtype (`torch.dtype`): Type of the engine's weights and activations.
        max_lora_rank (`int`), max_loras (`int`), max_cpu_loras (`int`):
            Largest rank; distinct adapters in one batch; adapters kept in host memory.
        accelerator ([`~accelerate.Accelerator`], *optional*): The trainer's; `None` for a single process.
        tensor_parallel_size (`int`), enable_sleep_mode (`bool`): As in [`~trl.GRPOConfig`].
        engine_kwargs: Further arguments of `vllm.LLM`.
    """

    everywhere = True

    def __init__(
        self,
        model: str,
        tokenizer: str,
        *,
        dtype: torch.dtype,
        max_lora_rank: int,
        max_loras: int,
        max_cpu_loras: int,
        accelerator=None,
        tensor_parallel_size: int = 1,
        enable_sleep_mode: bool = False,
        **engine_kwargs,
    ):
        world = accelerator.num_processes if accelerator else 1
        rank = accelerator.process_index if accelerator else 0
        if world % tensor_parallel_size:
            raise ValueError(
                f"vllm_tensor_parallel_size={tensor_parallel_size} must divide the number of processes, {world}."
            )
        self.tensor_parallel_size, self.rank = tensor_parallel_size, rank
        self.where = f"the vLLM engine of rank {rank}"
        self.enable_sleep_mode, self.asleep = enable_sleep_mode, False
        try:
            from vllm import LLM
        except ImportError as error:
            raise ValueError(
                f"use_vllm needs vLLM, which cannot be imported ({error}). `pip install 'trl-populora[vllm]'`."
            ) from error
        self.group: Any = self._make_group(world) if tensor_parallel_size > 1 else None
        distributed = {}
        if torch.cuda.is_available():
            # Inside this process, so that it joins the trainer's process group, as GRPOTrainer's own engine does.
            _set_rank_variables(accelerator)
            distributed["distributed_executor_backend"] = "external_launcher"
        self.llm = LLM(
            model=model,
            tokenizer=tokenizer,
            dtype=str(dtype).removeprefix("torch."),
            tensor_parallel_size=tensor_parallel_size,
            enable_lora=True,
            max_lora_rank=max_lora_rank,
            max_loras=max_loras,
            max_cpu_loras=max_cpu_loras,
            enable_sleep_mode=enable_sleep_mode,
            generation_config="vllm",  # nothing of the model's own file: it would make sampling off-policy
            logprobs_mode="processed_logprobs",  # after temperature and filters: those of the sampling policy
            seed=rank // tensor_parallel_size,
            **{"max_num_batched_tokens": 4096, **distributed, **engine_kwargs},
        )
        config = self.llm.llm_engine.vllm_config
        self.block_size = config.cache_config.block_size
        self.max_model_length = config.model_config.max_model_len

    def wake(self) -> None:
        if self.asleep:
            torch.cuda.empty_cache()
            self.llm.wake_up()
            self.asleep = False

    def sleep(self) -> None:
        if self.enable_sleep_mode and not self.asleep:
            self.llm.sleep(level=1)
            self.asleep = True

    def missing(self, versions: Iterable[AdapterVersion]) -> list[AdapterVersion]:
        """None: an engine of this process lives as long as the sampler, and reads again what it evicts."""
        return []

    def load(self, version: AdapterVersion) -> None:
        """Load an adapter before it is needed, so that a bad file is known now.

        Raises:
            EngineError: If vLLM refuses it.
        """
        try:
            loaded = self.llm.llm_engine.add_lora(self._request(version))
        except Exception as error:
            raise EngineError(f"{self.where} refuses adapter {version.name} of {version.path}: {error}") from error
        if not loaded:
            raise EngineError(f"{self.where} did not load adapter {version.name}: its id {version.id} is in use.")

    def unload(self, version: AdapterVersion) -> None:
        self.llm.llm_engine.remove_lora(version.id)

    def generate(self, rows: Sequence[EngineRow], sampling: Mapping[str, Any]) -> list[Drawn]:
        """Draw all rows in one call; the ranks of a tensor-parallel group draw the rows of all of them together."""
        from vllm import SamplingParams

        shares = self._shares(list(rows))
        everyone = [row for share in shares for row in share]
        if not everyone:
            return []
        check_unmixed(everyone)
        settings = {**sampling, "detokenize": bool(sampling["stop"])}
        outputs = self.llm.generate(
            [{"prompt_token_ids": list(row.prompt_ids)} for row in everyone],
            [SamplingParams(**settings, seed=row.seed, temperature=row.temperature) for row in everyone],
            lora_request=[row.adapter and self._request(row.adapter) for row in everyone],
            use_tqdm=False,
        )
        place = 0 if self.group is None else torch.distributed.get_rank(self.group)
        start = sum(map(len, shares[:place]))
        return [_drawn(output.outputs[0]) for output in outputs[start : start + len(rows)]]

    def close(self) -> None:
        self.llm.llm_engine.engine_core.shutdown()

    def _request(self, version: AdapterVersion):
        from vllm.lora.request import LoRARequest

        return LoRARequest(version.name, version.id, version.path)

    def _make_group(self, world: int):
        size = self.tensor_parallel_size
        groups = [list(range(first, first + size)) for first in range(0, world, size)]
        return torch.distributed.new_subgroups_by_enumeration(groups)[0]

    def _shares(self, rows: list[EngineRow]) -> list[list[EngineRow]]:
        if self.group is None:
            return [rows]
        shares: list = [None] * self.tensor_parallel_size
        torch.distributed.all_gather_object(shares, rows, group=self.group)
        # Without this, vLLM's collectives can meet the end of the trainer's (huggingface/trl issue 3671).
        torch.distributed.barrier(group=self.group)
        return shares


def _drawn(output) -> Drawn:
    likeliest = [{token: entry.logprob for token, entry in position.items()} for position in output.logprobs]
    ids = list(output.token_ids)
    return Drawn(ids, [position[token] for position, token in zip(likeliest, ids, strict=True)], likeliest)


def _set_rank_variables(accelerator) -> None:
    """What torchrun would have set: vLLM's external launcher reads it."""
    os.environ["RANK"] = str(accelerator.process_index if accelerator else 0)
    os.environ["LOCAL_RANK"] = str(accelerator.local_process_index if accelerator else 0)
    os.environ["WORLD_SIZE"] = str(accelerator.num_processes if accelerator else 1)
    os.environ.setdefault("MASTER_ADDR", "localhost")
    if "MASTER_PORT" not in os.environ:
        with socket.socket() as free:
            free.bind(("", 0))
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])
