"""Estimates how long a round takes on this machine. It samples the first tokens of one batch per phase, learns from
one micro-batch, runs a few programs, and scales the measured seconds by tokens.

The lengths of completions are not known beforehand. They are assumed to be exponentially distributed up to the limit.
The mean is estimated from the rows that ended in the sampled batches. During training, lengths may change.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase
from trl.trainer.utils import add_fused_lm_head

from ..executor import Executor, Job
from ..generation import TransformersSampler
from ..population import Population
from ..population.routing import member_order
from .config import PopulationSelfPlayConfig
from .forecast import Phase, prompt_rows


STEPS = 32  # tokens that are sampled of each row of a batch
LEARNED = 4096  # tokens of the micro-batch, about
PROGRAMS = 16
RUN_SHARE = 0.5  # share of answers that need a program run; others are compared as text or cannot be read
EULER = 0.5772  # the longest of n exponential lengths is their mean times (ln n + this), in the mean


@dataclass(frozen=True)
class Sampling:
    """Measurement of one batch of a phase, of which only the first tokens were sampled.

    Attributes:
        start (`float`), step (`float`): Seconds for prompts and first token, and for each further token of all rows.
        rows (`int`), batches (`int`): Rows of the batch, and batches of a round.
        unlimited (`float`): Mean tokens of a row if there were no limit; infinite if no row has ended.
        limit (`int`): Most tokens.
    """

    start: float
    step: float
    rows: int
    batches: int
    unlimited: float
    limit: int

    @property
    def mean(self) -> float:
        """Expected tokens of a row."""
        return -self.unlimited * math.expm1(-self.limit / self.unlimited) if self.unlimited < math.inf else self.limit

    @property
    def longest(self) -> float:
        """Expected tokens of the longest row of a batch."""
        return min(self.limit, self.unlimited * (math.log(self.rows) + EULER))

    @property
    def seconds(self) -> float:
        """Expected seconds of all batches of the phase."""
        return self.batches * (self.start + self.step * self.longest)

    @property
    def most(self) -> float:
        """Seconds of all batches if a row of each batch reaches the limit."""
        return self.batches * (self.start + self.step * self.limit)


def sampling(
    sampler: TransformersSampler, members: list[str], phase: Phase, *, seed: int = 0, processes: int = 1
) -> Sampling:
    """Samples the first tokens of one batch of a phase. The batch has as many rows as in a run."""
    own = max(1, phase.rows // processes)
    rows, limit = min(sampler.batch_size, own), sampler.max_completion_length
    prompts = [phase.prompts[i % len(phase.prompts)] for i in range(rows)]
    players = [members[i % len(members)] for i in range(rows)]
    seconds, lengths = [], []
    for steps in (2, 2, min(STEPS, limit)):  # the first warms up
        sampler.max_completion_length = steps
        start = time.perf_counter()
        lengths = [len(one.ids) for one in sampler(prompts, players, seed=seed)]
        seconds.append(time.perf_counter() - start)
    sampler.max_completion_length = limit
    step = max(seconds[2] - seconds[1], 0.0) / max(max(lengths) - 2, 1)
    ended = sum(length < min(STEPS, limit) for length in lengths)
    unlimited = sum(lengths) / ended if ended else math.inf
    return Sampling(seconds[1], step, rows, math.ceil(own / rows), unlimited, limit)


def learning(
    population: Population, args: PopulationSelfPlayConfig, phase: Phase, *, completion: float, seed: int = 0
) -> float:
    """Seconds per token of a micro-batch's forward and backward, rows as long as those of the phase."""
    prompt, answer = max(1, round(phase.prompt)), max(1, round(completion))
    rows = max(1, min(args.per_device_train_batch_size, LEARNED // (prompt + answer)))
    names, model = list(population), population.model
    places = sorted(i % len(names) for i in range(rows))
    members = [names[places[i]] for i in member_order(places)]
    vocabulary, chance = model.get_input_embeddings().weight.shape[0], random.Random(seed)
    ids = torch.tensor([[chance.randrange(vocabulary) for _ in range(prompt + answer)] for _ in range(rows)])
    ids, device = ids.to(args.device), torch.device(args.device).type
    labels = ids.clone()
    labels[:, :prompt] = -100  # only completions are scored
    add_fused_lm_head(
        population.base_model, args.temperature or 1.0, args.cast_lm_head_to_fp32, ("log_probs", "entropy")
    )
    model.train()
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    seconds = []
    for _ in range(2):  # the first warms up
        start = time.perf_counter()
        with torch.autocast(device, torch.bfloat16) if args.bf16 else nullcontext(), population.route(members):
            population.base_model(input_ids=ids, labels=labels, fused_lm_head=True).loss.backward()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    model.zero_grad()
    return seconds[1] / ids.numel()


def padded_tokens(args: PopulationSelfPlayConfig, rounds: Mapping[str, Phase], means: Mapping[str, float]) -> int:
    """Tokens of a round's micro-batches with their padding: each is as wide as its longest row (`batching.py`).

    Lengths are drawn from exponential distributions with these means, which may be infinite, and cut at the limit.
    Micro-batches have rows of one phase and of similar length.
    """
    chance, limit, total = random.Random(0), args.max_completion_length, 0.0
    for name, phase in rounds.items():
        rate = 1 / means[name]
        lengths = [min(limit, chance.expovariate(rate)) if rate else limit for _ in range(phase.learned)]
        lengths.sort()
        for start in range(0, len(lengths), args.per_device_train_batch_size):
            batch = lengths[start : start + args.per_device_train_batch_size]
            total += len(batch) * (phase.prompt / sharing(args) + batch[-1])
    return round(total)


def sharing(args: PopulationSelfPlayConfig) -> int:
    """How many rows share a prompt in learning."""
    return prompt_rows(args) if args.share_prompts else 1


def program_seconds(executor: Executor) -> float:
    """Seconds per program, with as many programs at a time as in a run."""
    job = Job("def f(x):\n    return sorted(x)", (([3, 1, 2],),))
    executor.run_many([job])  # the servers start
    start = time.perf_counter()
    executor.run_many([job] * PROGRAMS)
    return (time.perf_counter() - start) / PROGRAMS


def round_seconds(
    base: str,
    args: PopulationSelfPlayConfig,
    tokenizer: PreTrainedTokenizerBase,
    rounds: Mapping[str, Phase],
    *,
    processes: int = 1,
) -> tuple[dict[str, float], dict[str, float]]:
    """Expected seconds of each phase of a round, and the seconds if every batch goes to the limit of tokens.

    Args:
        base (`str`): Folder of the base. args, tokenizer: Of the run.
        rounds (`Mapping[str, Phase]`): As [`phases`] gives them, with prompts.
        processes (`int`, *optional*): Among which rows are divided.
    """
    from .construction import make_population

    population = make_population(base, args, None, None)
    population.model.to(args.device)
    population.stay_trainable()  # all of a quantised base is frozen when it is loaded
    sampler = TransformersSampler.from_args(population, tokenizer, None, args)
    players = {"propose": population.teachers, "solve": population.students}
    means, most = {}, {}
    begun = {}
    for name, phase in rounds.items():
        members = [population.adapter_of(player) for player in players[name]]
        begun[name] = sampling(sampler, members, phase, seed=args.seed, processes=processes)
        means[name], most[name] = begun[name].seconds, begun[name].most
    largest = max(rounds, key=lambda name: rounds[name].learned)
    each = learning(population, args, rounds[largest], completion=begun[largest].mean)
    tokens = padded_tokens(args, rounds, {name: one.unlimited for name, one in begun.items()})
    # A KL term needs log-probabilities of the reference, and several iterations need the old ones. Each costs one more
    # forward pass, a third of a forward and backward pass.
    passes = args.num_iterations + (bool(args.beta) + (args.num_iterations > 1)) / 3
    limit = sum(one.learned * (one.prompt / sharing(args) + args.max_completion_length) for one in rounds.values())
    means["learn"], most["learn"] = each * passes * tokens / processes, each * passes * limit / processes
    with args.executor.make() as executor:
        programs = program_seconds(executor) * (rounds["propose"].rows + RUN_SHARE * rounds["solve"].rows)
    means["programs"] = most["programs"] = programs / processes
    return means, most
