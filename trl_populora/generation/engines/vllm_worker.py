"""How a worker of vLLM takes adapters from the trainer's memory, and what it tells of those in its own. vLLM mixes
`TrainersAdapters` into its worker by `worker_extension_cls`."""

# vLLM has an environment of its own (`make test-vllm`).
# pyright: reportMissingImports=false

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from .weight_changes import bit_sums


class TrainersAdapters:
    """A part of vLLM's worker, in the engine's process."""

    model_runner: Any

    def take_adapters_from(self, weights: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Adapters come from `weights` from now on, without a copy, and only their configurations from folders.

        Args:
            weights (`Mapping[str, Mapping[str, Tensor]]`):
                Weights by the last part of a folder's path, as [`EngineSpec`] has them.
        """
        from vllm.lora.lora_model import LoRAModel

        class FromMemory(LoRAModel):
            @classmethod
            def from_local_checkpoint(
                cls,
                lora_dir: str,
                expected_lora_modules: set[str],
                peft_helper: Any,
                *,
                moe_ep_spec: Any = None,
                tensorizer_config_dict: Any = None,
                **settings: Any,
            ) -> LoRAModel:
                peft_helper.vllm_lora_scaling_factor = 1.0  # B has it, and must not be multiplied in place
                if (tensors := weights.get(os.path.basename(lora_dir))) is None:
                    raise ValueError(
                        "its weights are not in this process. VLLM_ENABLE_V1_MULTIPROCESSING=1 passes files."
                    )
                model = cls.from_lora_tensors(tensors=tensors, peft_helper=peft_helper, **settings)
                if unknown := sorted({name.rpartition(".")[2] for name in model.loras} - expected_lora_modules):
                    raise ValueError(f"vLLM has no adapters for {', '.join(unknown)} in this model.")
                return model

        self.model_runner.lora_manager._lora_model_cls = FromMemory

    def adapter_sums(self, ids: Sequence[int]) -> list[list[int] | None]:
        """Sums over the bits of adapters ([`bit_sums`]): as the kernels read them, or, where an adapter has no place
        in a batch at the moment, as they will be copied there.

        Args:
            ids (`Sequence[int]`): vLLM's numbers of adapters.

        Returns:
            `list[list[int] | None]`: `None` for adapters that the worker does not have.
        """
        manager = self.model_runner.lora_manager._adapter_manager
        return [self._sums_of(manager, number) for number in ids]

    @staticmethod
    def _sums_of(manager: Any, number: int) -> list[int] | None:
        loaded = manager.list_adapters()
        if number not in loaded:
            return None
        if number in manager.lora_index_to_id:
            slot = manager.lora_index_to_id.index(number)
            stacks = [
                X for m in manager.modules.values() for X in (*_each(m.lora_a_stacked), *_each(m.lora_b_stacked))
            ]
            return bit_sums(stack[slot] for stack in stacks)
        waiting = [X for one in loaded[number].loras.values() for X in (*_each(one.lora_a), *_each(one.lora_b))]
        device = next(X.device for m in manager.modules.values() for X in _each(m.lora_a_stacked))
        return bit_sums(X.to(device, non_blocking=True) for X in waiting)  # they wait on the host, which is slower


def _each(matrices: Any) -> Iterator[Tensor]:
    """The matrices of a layer: vLLM has one, or several that it has packed, some of which may be missing."""
    yield from [matrices] if isinstance(matrices, Tensor) else [one for one in matrices if one is not None]
