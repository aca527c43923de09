"""What a run will need, from its settings and the base's `config.json` alone: rows, tokens, memory, disk.

Nothing is loaded: the base is built without storage to count its parameters. docs/scaling.md has the formulas and
where their constants were counted; `stopwatch.py` measures what only a clock can tell.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from peft import LoraConfig, TaskType, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.pytorch_utils import Conv1D

from ..population.lora_config import check_linear, check_modules
from ..self_play.requests import proposal_requests, solve_request
from ..self_play.sampling import Message
from ..tasks import TaskBuffer, families_of
from .config import PopulationSelfPlayConfig
from .first_tasks import types_in_play


HALVES = ("bfloat16", "float16")
FP32 = 4  # bytes of adapters, gradients and moments
INSIDE = (10.0, 4.25)
"""Elements that autograd keeps within a layer per token: factors of the hidden size and of the intermediate size. They
were fitted to the counts in docs/scaling.md for 7B, 32B and 70B, with errors below 2 %."""
BACKWARD = (0.75, 1.75)
"""Elements of gradients within a layer per token, in addition to `INSIDE`, at the peak of a backward pass. Counted."""
WIDE = 3.0
"""More of the hidden size within a layer per token, if a base in float32 computes in halves. Counted."""
PASSING = (4.0, 3.0)
"""Elements in memory at once per token of the prefill: factors of hidden and intermediate size. Counted."""
LEARNING = ("gradients", "buckets of DDP", "activations", "logits", "half weights", "stacks in updates")
"""Parts that are in memory during an update, and not while rows are sampled."""
TILE = (4096, 32768)
"""Tokens and vocabulary entries in one tile of logits of TRL's LM head (`trl.kernels.chunked_logprob`)."""
TORCH_TILE = 29  # additional bytes per logit of a tile if PyTorch and not Triton computes it; counted
BLOCK, BLOCKS = 64, 256  # of bitsandbytes in 4 bits: weights of a block with one scale, and scales of a block with one
SAMPLE = 32  # seed tasks per type whose prompts and answers are counted


@dataclass(frozen=True)
class Shapes:
    """Sizes of a base model, from its configuration.

    Attributes:
        parameters (`int`): Parameters of the base. adapted (`int`): Sum of input and output sizes of all adapted
            linear layers. Times the rank, this is the number of parameters of a member.
        layers, hidden, intermediate, vocabulary (`int`): Sizes of the decoder.
        cached (`int`): Elements of the KV cache per token. bytes (`int`): Bytes of a weight as stored on disk.
        linear, widest (`int`): Number of weights in all linear layers except the LM head (those that quantisation
            packs), and in the largest of these layers.
        gathered (`int`): Parameters of a divided base that a process holds whole, beside its share: embeddings, LM
            head, last norm and two layers.
    """

    parameters: int
    adapted: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    cached: int
    bytes: int
    linear: int
    widest: int
    gathered: int

    @property
    def inside(self) -> float:
        """Elements that autograd keeps within a layer per token."""
        return INSIDE[0] * self.hidden + INSIDE[1] * self.intermediate

    @property
    def passing(self) -> float:
        """Elements in memory at once per token of the prefill, without the KV cache."""
        return PASSING[0] * self.hidden + PASSING[1] * self.intermediate

    @classmethod
    def of(cls, config: PreTrainedConfig, targets: str | list[str]) -> Shapes:
        """Counts the modules that transformers builds, without storage.

        Args:
            config ([`~transformers.PreTrainedConfig`]): Of the base.
            targets (`str` or `list[str]`): `lora_target_modules`.

        Raises:
            ValueError: If a name is that of no module, or of one that a population does not adapt.
        """
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        check_modules(model, targets, option="lora_target_modules")
        head, text = model.get_output_embeddings(), config.get_text_config()
        linear = (nn.Linear, Conv1D)  # the latter in GPT-2
        sizes = [one.weight.numel() for one in model.modules() if isinstance(one, linear) and one is not head]
        parameters, kinds = model.num_parameters(), model._no_split_modules or ()
        blocks = [sum(p.numel() for p in one.parameters()) for one in model.modules() if type(one).__name__ in kinds]
        try:
            with torch.device("meta"):
                get_peft_model(model, LoraConfig(r=1, target_modules=targets, task_type=TaskType.CAUSAL_LM))
        except ValueError as error:  # with the text of the whole module
            raise ValueError(f"lora_target_modules={targets!r} name more than linear layers of the base.") from error
        check_linear({path: one for path, one in model.named_modules() if isinstance(one, LoraLayer)})
        heads = text.num_attention_heads
        size = getattr(text, "head_dim", None) or text.hidden_size // heads
        return cls(
            parameters=parameters,
            adapted=sum(one.numel() for one in model.parameters() if one.requires_grad),
            layers=text.num_hidden_layers,
            hidden=text.hidden_size,
            intermediate=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            vocabulary=text.vocab_size,
            cached=2 * text.num_hidden_layers * (getattr(text, "num_key_value_heads", None) or heads) * size,
            bytes=2 if str(config.dtype).removeprefix("torch.") in HALVES else 4,
            linear=sum(sizes),
            widest=max(sizes),
            gathered=parameters - sum(blocks) + 2 * max(blocks, default=0),
        )


@dataclass(frozen=True)
class Phase:
    """The rows of one role in a round.

    Attributes:
        rows, learned (`int`): Rows that are sampled, and rows that are learned from.
        prompts (`list`): Examples of prompts of the first rounds; empty if prompts are not known.
        prompt, completion (`float`): Mean tokens of a prompt, and of a completion (a seed task or its answer).
        longest (`float`): Most tokens of a prompt.
    """

    rows: int
    learned: int
    prompts: list[list[Message]]
    prompt: float
    completion: float
    longest: float


def phases(args: PopulationSelfPlayConfig, count: Callable[[str | list[Message]], int] | None) -> dict[str, Phase]:
    """The rows of a round: `"propose"` and `"solve"`, or `"sample"` on a dataset, whose prompts are not read.

    Args:
        args ([`PopulationSelfPlayConfig`]): Settings.
        count (`Callable`, *optional*): Tokens of a text, or of a conversation; without it lengths are 0.
    """
    if args.num_teachers == 0:
        rows = args.generation_batch_size
        return {"sample": Phase(rows, rows, [], 0.0, float(args.max_completion_length), 0.0)}
    types, settings = types_in_play(args, None), args.round_settings
    buffer, families = TaskBuffer(types, args.buffer_capacity), families_of(types, args.seed_families)
    for name, task_type in types.items():
        for task in task_type.seeds(SAMPLE, seed=args.seed, families=families[name], fewer=True):
            buffer.add(task)
    rules = {"settings": settings, "lengths": None}
    requests = [
        request
        for number in range(len(types))
        for request in proposal_requests(["t"], types, buffer, round=number, **rules)
    ]
    rng, tasks = random.Random(args.seed), {name: buffer.tasks(name) for name in types}
    drawn = [rng.choice(tasks[request.type.id]) for request in requests]
    written = {
        "propose": [(request.prompt, request.type.propose_completion(task)) for request, task in zip(requests, drawn)],
        "solve": [
            (solve_request("s", request.type, task).prompt, request.type.solve_completion(task))
            for request, task in zip(requests, drawn)
        ],
    }
    rows = {"propose": args.proposals_per_round, "solve": args.completions_per_round - args.proposals_per_round}
    each = args.rows_per_member
    learned = {"propose": args.num_teachers * each["teacher"], "solve": args.num_students * each["student"]}
    return {
        name: Phase(
            rows[name],
            learned[name],
            [prompt for prompt, _ in pairs],
            fmean(count(prompt) for prompt, _ in pairs) if count else 0.0,
            fmean(min(count(text) + 1, args.max_completion_length) for _, text in pairs) if count else 0.0,
            float(max(count(prompt) for prompt, _ in pairs)) if count else 0.0,
        )
        for name, pairs in written.items()
    }


def spare_rows(args: PopulationSelfPlayConfig) -> dict[str, int]:
    """Rows that a round may have beside its own, at most: those of champions, and extra attempts. Nobody learns from
    them."""
    if not args.num_teachers:
        return {}
    attempts = args.proposals_per_round * args.round_settings.extra_attempts * (1 + args.solvable_rounds)
    champions = args.completions_per_round if args.hall_of_fame_probability else 0
    return {name: rows for name, rows in {"champions": champions, "extra attempts": attempts}.items() if rows}


def prompt_rows(args: PopulationSelfPlayConfig) -> int:
    """How many rows of a micro-batch can have one prompt."""
    return min(args.num_generations, args.per_device_train_batch_size)


def memory(
    shapes: Shapes, args: PopulationSelfPlayConfig, rounds: dict[str, Phase], *, processes: int = 1, gpu: bool = True
) -> dict[str, float]:
    """Bytes on one device: the parts, and the peaks `"learning"` and `"sampling"`, of which the larger one counts.

    Rows are assumed to have the length of the longest prompt plus `max_completion_length`. Sampling has two peaks:
    the prefill, with the activations of a layer, and the last token, with a full cache. In the prefill, the rows of a
    group that share a batch compute their prompt once, but not with a sharded base. For a base in float32 that
    computes in halves (`bf16`), `"half weights"` are the copies that autograd keeps: of all linear layers, or of one
    with gradient checkpointing. In the same way, `"stacks in updates"` are copies of the adapters that share a
    micro-batch. A base that is quantised when it is loaded has one more part, `"unpacked weights"`: the largest
    matrix, unpacked to the base's dtype. With vLLM in the process, `"engine, at least"` is a second base, a slot for
    each adapter, and the cache of one row. It is in neither peak, because an engine takes the share of the card that
    it is given. `"adapters for vLLM (host)"` are the two versions of each that it takes from the trainer.

    Args:
        shapes ([`Shapes`]), args ([`PopulationSelfPlayConfig`]), rounds (`dict[str, Phase]`): Of the run.
        processes (`int`, *optional*): Number of processes that share the rows, and a sharded base.
        gpu (`bool`, *optional*): Whether it is a GPU. On a CPU, the LM head takes more ([`lm_head`]).
    """
    dtype = str((args.model_init_kwargs or {}).get("dtype", "float32")).removeprefix("torch.")
    weight = shapes.bytes if dtype in ("auto", "None") else 2 if dtype in HALVES else 4
    number = 2 if args.bf16 else weight
    adapters = 1 if args.shared_member else args.num_teachers + args.num_students
    one = args.lora_r * shapes.adapted * FP32
    packed = packed_bytes((args.model_init_kwargs or {}).get("quantization_config"))
    base = shapes.parameters * weight
    if packed is not None:
        base = (shapes.parameters - shapes.linear) * weight + shapes.linear * packed
    prompt = max(phase.longest for phase in rounds.values())
    longest = prompt + args.max_completion_length
    decoded = min(args.generation_rows, max(phase.rows for phase in rounds.values()) // processes)
    playing = 1 if args.shared_member else max(args.num_teachers, args.num_students)
    together = 1 if args.shard_base else min(args.num_generations or 1, max(1, decoded // playing))
    engine = args.use_vllm and args.vllm_mode != "server"
    batch, layer = args.per_device_train_batch_size, shapes.inside * number
    blocks = shapes.layers if args.gradient_checkpointing else 1
    if number < weight:
        layer += WIDE * shapes.hidden * number
    kept = shapes.layers * shapes.hidden * weight + layer if args.gradient_checkpointing else shapes.layers * layer
    kept += (BACKWARD[0] * shapes.hidden + BACKWARD[1] * shapes.intermediate) * number
    parts = {
        "base": base / processes + shapes.gathered * weight if args.shard_base else base,
        "adapters": (adapters + args.num_guests) * one,
        "gradients": adapters * one,
        "optimizer": adapters * one * _moments(str(getattr(args.optim, "value", args.optim))),
        "last good weights (host)": adapters * one,
        "buckets of DDP": adapters * one if processes > 1 and not args.shard_base else 0.0,
        "activations": batch * longest * kept,
        "logits": lm_head(shapes, batch * (longest - prompt if gpu else longest), number, gpu=gpu),
        "KV cache": 0.0 if args.use_vllm else decoded * longest * shapes.cached * weight,
        "prefill": 0.0 if args.use_vllm else decoded / together * prompt * (shapes.passing + shapes.cached) * weight,
        "stacks in updates": min(adapters, batch) * one * number / FP32 / blocks,
        "stacks of adapters": 0.0 if args.use_vllm else min(adapters, decoded) * one * weight / FP32,
    }
    if engine:
        slots = (args.vllm_max_loras or adapters + args.num_guests) * one * weight / FP32
        whole = shapes.parameters * weight / args.vllm_tensor_parallel_size
        parts["engine, at least"] = whole + slots + longest * shapes.cached * weight
        version = one * number / FP32
        block = 2 ** math.ceil(math.log2(version)) if gpu else version  # page-locked memory is taken in such blocks
        parts["adapters for vLLM (host)"] = 2.0 * (adapters + args.num_guests) * block
    state = parts["base"] + parts["adapters"] + parts["optimizer"]
    if packed is not None:
        parts["unpacked weights"] = float(shapes.widest * weight)
        state += parts["unpacked weights"]
    elif number < weight:
        parts["half weights"] = shapes.linear * number / blocks
    return parts | {
        "learning": state + sum(parts.get(name, 0.0) for name in LEARNING),
        "sampling": state + max(parts["KV cache"], parts["prefill"]) + parts["stacks of adapters"],
    }


def disk(shapes: Shapes, args: PopulationSelfPlayConfig, rounds: dict[str, Phase]) -> dict[str, float]:
    """Bytes that a run leaves: adapters, checkpoints (one more while one is written), tables of the rounds at most.

    If the dataset decides on the rounds: of one table, and of one checkpoint unless there is a `save_total_limit`.
    """
    adapters = 1 if args.shared_member else args.num_teachers + args.num_students
    one = args.lora_r * shapes.adapted * FP32
    optimizer = _moments(str(getattr(args.optim, "value", args.optim)))
    kept, known = 0, args.max_steps > 0
    if str(getattr(args.save_strategy, "value", args.save_strategy)) == "steps":
        every = args.save_steps if args.save_steps >= 1 else args.save_steps * args.max_steps
        saves = math.ceil(args.max_steps / every) if known else math.inf
        kept = min(saves, (args.save_total_limit or saves) + 1)
    text = sum(phase.rows for phase in rounds.values()) * (4.0 * args.max_completion_length + 200)
    many = kept < math.inf
    return {
        "adapters": adapters * one,
        "checkpoints" if many else "a checkpoint": (kept if many else 1) * adapters * one * (1 + optimizer),
        "rounds" if known else "a round": text * (args.rounds if known else 1),
    }


def lm_head(shapes: Shapes, tokens: float, number: int, *, gpu: bool) -> float:
    """Bytes of scoring so many tokens: a tile of logits in the dtype of the computation, hidden states and gradients.

    TRL never holds all logits. A GPU scores the tokens of the completions only, a CPU those of the prompts, too.
    """
    tile = min(tokens, TILE[0])
    beside = 0 if gpu else TORCH_TILE * min(shapes.vocabulary, TILE[1])
    return tile * (TILE[1] * number + beside) + tokens * shapes.hidden * (2 * number + FP32)


def packed_bytes(config: Any) -> float | None:
    """Bytes of a weight that bitsandbytes packs, its scales included; `None` if the base is not quantised.

    Args:
        config (`dict` or [`~transformers.BitsAndBytesConfig`] or `None`): `quantization_config` of a base.

    Raises:
        ValueError: If it is of another kind than 4 or 8 bits of bitsandbytes.
    """
    if config is None:
        return None
    told = config if isinstance(config, Mapping) else config.to_dict()
    if told.get("load_in_4bit"):
        scale = 1 + FP32 / BLOCKS if told.get("bnb_4bit_use_double_quant") else FP32
        return 0.5 + scale / BLOCK
    if told.get("load_in_8bit"):
        return 1.0
    raise ValueError(
        f"The memory of a base with quantization_config={told} is not known. Known: load_in_4bit, load_in_8bit."
    )


def _moments(optim: str) -> float:
    """Moments in units of the float32 weights, by the name of the optimizer."""
    moments = 3.0 if "ademamix" in optim else 2.0 if "adam" in optim else 1.0
    return moments / 4 if "8bit" in optim else moments
