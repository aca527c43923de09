"""The canary: checks that an engine answers each member's rows with the trainer's current weights (invariant 4).

An engine holds copies of the adapters. Old copies, wrong adapters or a cached prefix of other weights cause no error.
Members would then train on completions of other members. So after a change, every member samples a few tokens in one
mixed batch. The engine reports log-probabilities for these tokens and for the most likely alternatives. They must
equal those of the trainer's own forward pass with that member's adapter. The prompt is the same for all members and
versions, and longer than a block of the prefix cache. So a reused block of other weights would change the result.

At the start, B = 0, so all members give the same answers as the base, and this check cannot distinguish them.
Therefore a second check runs once at the start. It uses random adapters with a large effect, called probes, and shows
that the engine keeps adapters and versions apart.

The change of a member by one optimizer step can be smaller than the rounding of the comparison. Therefore a third
check reads the weights in the engine's memory. They must be the trainer's, bit for bit. On a server, they cannot be
read. There, it asks for the same row with the new version of a member and with the one before. Other weights round
differently, so the two answers must not be the same bit for bit. This needs an engine that repeats itself.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ...population import Population
from ...population.factors import Factors
from ..sampler import evaluation_mode
from .adapters import AdapterStore, AdapterVersion, adapter_names, flatten, read_factors, temperature_of
from .engine import Drawn, Engine, EngineRow, LivenessError, check_drawn
from .weight_changes import added, alike, bit_sums, changed_outputs, random_like, spread


logger = logging.getLogger(__name__)

TOKENS = 4  # drawn by each row: one from prefill, the others from decoding, which uses other kernels
LIKELIEST = 5
# Largest root mean square of the differences, in nats (our choice). What rounding alone makes is in docs/vllm.md:
# 2e-5 in float32 and 0.08 in bfloat16. float16 is not measured; it has eight times the resolution of bfloat16.
TOLERANCES = {torch.float32: 2e-3, torch.bfloat16: 0.2, torch.float16: 0.05}
LIMIT = 8  # times the base's own difference: above, it is not rounding (our choice)
PROBE_STRENGTH = 0.5  # size of a probe's weight change, relative to the weight
STEP_TOKENS = 64  # of the prompt that two versions of a member answer
# Roundings of a token expected to differ between two versions whose answers must differ (our choice). Measured: with
# 1.4, one of eight answers was equal; with 8 or more, none (docs/vllm.md).
STEP_ROUNDINGS = 30


class FaultElsewhere(Exception):
    """Another rank has failed. If that rank has already left the common work, this has its message."""


class Canary:
    """Compares an engine with the trainer's model on a fixed prompt.

    With tensor parallelism or a sharded base, ranks draw or compute together. So all ranks take the same decisions:
    what one rank doubts is asked again on all, and a fault on one rank ends the check on all.

    Args:
        population ([`Population`]): Members and their model.
        engine ([`Engine`]): Engine under test.
        prompt_ids (`list[int]`): The prompt; longer than `engine.block_size`.
        longer_ids (`list[int]`): Prompt of the second test, for doubtful answers; starts with the first prompt.
        dtype (`torch.dtype`): The engine's dtype, which determines the tolerance.
        temperature (`float`): The run's temperature; 0 is tested at 1.
        weights (`Mapping`, *optional*): As in [`EngineSpec`].
        autocast (`Callable`, *optional*): Context in which the trainer computes log-probabilities.
        anywhere (`Callable`, *optional*):
            Takes a list of `bool` and returns for each whether it is `True` on any rank. Default: for one rank.

    If another rank has seen the first fault, all checks raise `FaultElsewhere`.
    """

    def __init__(
        self,
        population: Population,
        engine: Engine,
        prompt_ids: list[int],
        longer_ids: list[int],
        *,
        dtype: torch.dtype,
        temperature: float,
        weights: Mapping[str, Mapping[str, Tensor]] = MappingProxyType({}),
        autocast: Callable[..., AbstractContextManager] = nullcontext,
        anywhere: Callable[[list[bool]], list[bool]] = list,
    ) -> None:
        self.population, self.engine, self.autocast, self.anywhere = population, engine, autocast, anywhere
        self.prompt_ids, self.longer_ids, self.base_error = prompt_ids, longer_ids, 0.0
        self.dtype, self.temperature, self.weights = dtype, temperature or 1.0, weights
        self.sampling = {"max_tokens": TOKENS, "logprobs": LIKELIEST, "ignore_eos": True, "stop": []}
        # On all ranks, because those of a sharded base compute it together.
        self._spreads = {path: spread(layer) for path, layer in population.routing.layers.items()}
        self._probes: list[Factors] = []  # until their test: drawing them takes seconds

    def tolerance(self, member: str | None) -> float:
        """Largest allowed root mean square difference, in nats. It is larger for a temperature below 1, which
        magnifies rounding."""
        return TOLERANCES[self.dtype] / min(1.0, self.temperature * temperature_of(self.population, member))

    def limit(self, member: str | None) -> float:
        """The difference that rounding cannot make, in nats: `LIMIT` times the base's own, at least the tolerance."""
        return self.tolerance(member) * max(1.0, LIMIT * self.base_error / self.tolerance(None))

    # Checks ----------------------------------------------------------------------------------------------------

    def check_members(
        self, versions: Sequence[AdapterVersion], outdated: Sequence[AdapterVersion] = ()
    ) -> dict[str, float]:
        """Samples from every version in one mixed batch, and compares with the trainer's weights of its member.

        A member with a difference above the tolerance but below the limit is checked again, with a longer prompt. The
        difference may be rounding of a large base, unless other weights are nearer than the member's own.

        Args:
            versions (`Sequence[AdapterVersion]`): Versions in the engine, one of each member.
            outdated (`Sequence[AdapterVersion]`, *optional*): Previous versions, while they are still loaded.

        Returns:
            `dict[str, float]`: Root mean square difference of engine and trainer for each member, in nats.

        Raises:
            LivenessError: With the member, the difference, and the member whose weights the answer resembles.
        """
        seen, drawn = self._look(versions)
        self._refuse(
            [not seen[version.member] <= self.limit(version.member) for version in versions],
            lambda k: self._explain(versions[k], drawn[k], seen[versions[k].member]),
        )
        doubts = self._doubts(versions, seen)
        if any(doubts):
            with self._prompt(self.longer_ids):
                self._ask_again(versions, doubts, outdated)
        self._check_copies(versions, outdated)
        return seen

    def _refuse(self, faults: list[bool], explain: Callable[[int], str]) -> None:
        """Ends the check on all ranks if one of them has found a fault. All of them compute the explanation, because a
        sharded base needs all ranks for it."""
        somewhere = self.anywhere(faults)
        if any(somewhere):
            first = somewhere.index(True)
            explanation = explain(first)
            raise LivenessError(explanation) if faults[first] else FaultElsewhere

    def _doubts(self, versions: Sequence[AdapterVersion], seen: dict[str, float]) -> list[bool]:
        return self.anywhere([not seen[v.member] <= self.tolerance(v.member) for v in versions])

    def _ask_again(
        self, versions: Sequence[AdapterVersion], doubts: Sequence[bool], outdated: Sequence[AdapterVersion]
    ) -> None:
        before = {version.member: version for version in outdated}
        seen, drawn = self._look(versions)
        still = self._doubts(versions, seen)
        for k, (version, answer) in enumerate(zip(versions, drawn, strict=True)):
            if not (doubts[k] and still[k]):
                continue
            error, tolerance = seen[version.member], self.tolerance(version.member)
            others = self._others(version, answer)
            if version.member in before:
                older = self._read(before[version.member])
                with added(self.population.model, older):
                    reference = self._reference([version.member], [answer], base=True)[0]
                others["its own weights before"] = distance(answer, reference)
            worse = not error <= tolerance and not error <= min(self.limit(version.member), *others.values())
            self._refuse([worse], lambda _, one=(version, answer, seen[version.member]): self._explain(*one))
            if error <= tolerance:  # the doubt was another rank's
                continue
            logger.warning(
                "%s and the trainer differ by %.3g nats for %r (tolerance %.3g). Its own weights are the nearest, and "
                "the base alone differs by %.3g: rounding.",
                *(self.engine.where, error, version.member, tolerance, self.base_error),
            )

    def _look(self, versions: Sequence[AdapterVersion]) -> tuple[dict[str, float], list[Drawn]]:
        members = [version.member for version in versions]
        drawn = self._draw(versions)
        errors = map(distance, drawn, self._reference(members, drawn))
        return dict(zip(members, errors, strict=True)), drawn

    @contextmanager
    def _prompt(self, ids: list[int]) -> Iterator[None]:
        usual, self.prompt_ids = self.prompt_ids, ids
        try:
            yield
        finally:
            self.prompt_ids = usual

    def _check_copies(self, versions: Sequence[AdapterVersion], outdated: Sequence[AdapterVersion]) -> None:
        """Checks that the engine's memory has the trainer's weights, or, where it cannot be read, that answers have
        changed with them."""
        held = self.engine.held(versions)
        self._refuse(
            [sums is not None and sums != self.sums(one.member) for sums, one in zip(held, versions, strict=True)],
            lambda k: (
                f"{self.engine.where} does not sample {versions[k].member!r} from its current weights: those in its "
                f"memory are others, although its answers are alike ({versions[k].name}). They may be older."
            ),
        )
        hidden = self.anywhere([sums is None for sums in held])
        if self.engine.repeats:
            self._check_steps([one for one, is_hidden in zip(versions, hidden, strict=True) if is_hidden], outdated)

    def sums(self, member: str) -> list[int]:
        """What [`Engine.held`] must be for a member: engines multiply B by the scaling after its cast."""
        return bit_sums([flatten(self.population.factors(member), self.dtype, scaled=True)])

    def _check_steps(self, versions: Sequence[AdapterVersion], outdated: Sequence[AdapterVersion]) -> None:
        """Checks that the engine does not answer with a member's new version as with the one before, bit for bit.

        Every row is alone in its batch, because the shape of a batch changes rounding. The prompt is new, so that
        nothing of it is in a prefix cache. Equal answers are allowed if the change is too small to be seen.
        """
        now = {version.member: version for version in versions}
        lost = self.engine.missing(outdated)  # a restarted server has only the new ones
        pairs = [(one, now[one.member]) for one in outdated if one.member in now and one not in lost]
        roundings = []  # that should differ, and do not
        for before, version in pairs:
            with self._prompt(self._new_prompt(version.id)):
                equal = self._draw([before], max_tokens=1) == self._draw([version], max_tokens=1)
            roundings.append(self._roundings(before, version) if equal else 0.0)
        self._refuse(
            [number >= STEP_ROUNDINGS for number in roundings],
            lambda k: (
                f"{self.engine.where} does not sample {pairs[k][1].member!r} from its current weights: it answers bit "
                f"for bit as with those before, although about {roundings[k]:.2g} roundings of each token should "
                f"differ ({pairs[k][0].name} and {pairs[k][1].name}). The answer looks like older weights."
            ),
        )

    def _check_repeats(self, version: AdapterVersion) -> None:
        """Finds out whether the engine repeats itself, because `_check_steps` shows nothing where it does not."""
        with self._prompt(self.prompt_ids[:8]):  # less than a block, so the first answer leaves nothing in a cache
            differ = self._draw([version], max_tokens=1) != self._draw([version], max_tokens=1)
        self.engine.repeats = not any(self.anywhere([differ]))
        if not self.engine.repeats and self.engine.held([version]) == [None]:
            logger.warning(
                "%s does not repeat its answers bit for bit, and its memory cannot be read. If it goes on with old "
                "weights, this is noticed only when the log-probabilities have changed by more than %.2g nats.",
                *(self.engine.where, self.tolerance(None)),
            )

    def _new_prompt(self, seed: int) -> list[int]:
        length = min(STEP_TOKENS, self.engine.max_model_length - 1)
        picks = torch.randint(len(self.longer_ids), (length,), generator=torch.Generator().manual_seed(seed))
        return [self.longer_ids[pick] for pick in picks.tolist()]

    def _roundings(self, before: AdapterVersion, now: AdapterVersion) -> float:
        """Estimate of how many roundings of one token in the adapted layers differ between two versions.

        A relative change of an output by the resolution of the dtype changes its rounding.
        """
        change = changed_outputs(self._read(before), self._read(now), self._spreads)
        return change / torch.finfo(self.dtype).eps

    def check_base(self) -> None:
        """Checks that the base of the engine is the trainer's, in a separate call.

        Raises:
            LivenessError: If it is another model, or reports log-probabilities before temperature and filters.
        """
        if self.engine.filtered_logprobs:
            (certain,) = self._draw([None], top_k=1)
            # Only the most likely token is left, or several that are equally likely, as often in bfloat16.
            left = min(sum(map(math.exp, reported.values())) for reported in certain.likeliest)
            self._refuse(
                [left < 0.999],
                lambda _: (
                    f"{self.engine.where} reports log-probabilities before temperature and filters: the tokens that a "
                    f"filter leaves have a probability of only {left:.3g} together. Serve with `--logprobs-mode "
                    "processed_logprobs`."
                ),
            )
        self._compare_base()
        with self._prompt(self.longer_ids):
            self._compare_base()

    def _compare_base(self) -> None:
        (answer,) = self._draw([None])
        error, tolerance = distance(answer, self._reference([None], [answer], base=True)[0]), self.tolerance(None)
        self._refuse(
            [not error <= tolerance],
            lambda _: (
                f"{self.engine.where} does not answer like the trainer's frozen base: log-probabilities differ by "
                f"{error:.3g} (tolerance {tolerance:.3g}). Serve the same model, "
                f"{self.population.base_model.name_or_path!r}, in {self.dtype}{self._packing()}."
            ),
        )
        self.base_error = max(self.base_error, error)

    def _packing(self) -> str:
        packing = getattr(self.population.base_model.config, "quantization_config", None)
        return "" if packing is None else " and with the same quantization as here"

    def _read(self, version: AdapterVersion) -> Factors:
        return read_factors(version, self.population.factors(version.member), self.weights)

    def take_probes(self, store: AdapterStore) -> list[AdapterVersion]:
        """The probes as versions for the engine: two of each of two random adapters."""
        config = store.config_of(adapter_names(self.population)[0])
        versions = list(map(store.new_version, ("probe_a", "probe_b", "probe_a", "probe_b")))
        self._probes = [self._probe(seed) for seed in range(4)]
        for version, probe in zip(versions, self._probes, strict=True):
            store.keep(version, store.pack(probe)[0], config)
        return versions

    def check_mechanism(self, probes: Sequence[AdapterVersion]) -> None:
        """Checks with two strong random adapters in one batch, and then new weights for both, that the engine
        distinguishes all of them and the base.

        Each answer must be at most half as far from its own probe as from any other. The tolerance is not used here,
        because such adapters magnify rounding: to 1 nat in bfloat16, where other probes are 6 nats away.

        Raises:
            LivenessError: With the probe, and the adapter whose weights the answer resembles.
        """
        states, self._probes = self._probes or [self._probe(seed) for seed in range(4)], []
        for first in (0, 2):
            pair = [first, first + 1]
            for i in pair:
                self.engine.load(probes[i])
            drawn = self._draw([probes[i] for i in pair * 2])
            said = {"the base": self._reference([None] * len(drawn), drawn, base=True)}
            for j, state in enumerate(states):
                with self.population.routing.base(), added(self.population.model, state):
                    said[f"probe {j}"] = self._forward(drawn)
            faults = [
                self._confusion(f"probe {i}", {name: distance(answer, said[name][row]) for name in said})
                for row, (i, answer) in enumerate(zip(pair * 2, drawn, strict=True))
            ]
            self._refuse([fault != "" for fault in faults], faults.__getitem__)
        self._check_repeats(probes[-1])
        for version in probes:
            self.engine.unload(version)
        self.check_base()

    # What the engine says, what the trainer says ----------------------------------------------------------------

    def _draw(self, versions: Sequence[AdapterVersion | None], **filters: Any) -> list[Drawn]:
        temperatures = [temperature_of(self.population, version and version.member) for version in versions]
        rows = [
            EngineRow(self.prompt_ids, version, seed, self.temperature * temperatures[seed])
            for seed, version in enumerate(versions)
        ]
        self.anywhere([])  # a rank that could not load an adapter, or whose engine refuses, has told it by now
        drawn = check_drawn(self.engine.generate(rows, self.sampling | filters), self.engine, rows)
        self.anywhere([])
        return drawn

    def _reference(self, members: Sequence[str | None], drawn: Sequence[Drawn], *, base: bool = False) -> Tensor:
        """The trainer's log-probabilities `(rows, tokens, vocabulary)` at the drawn positions.

        With `base`, the adapters are not applied, but their temperatures are.
        """
        routing, names = self.population.routing, [member or "" for member in members]  # "": at temperature 1
        with routing.base(names) if base else routing.rows(names):
            return self._forward(drawn)

    @torch.no_grad()
    def _forward(self, drawn: Sequence[Drawn]) -> Tensor:
        model = self.population.base_model
        ids = torch.tensor([self.prompt_ids + answer.ids[:-1] for answer in drawn], device=model.device)
        with evaluation_mode(model), self.autocast():
            logits = model(input_ids=ids, logits_to_keep=TOKENS, use_cache=False).logits
        return torch.log_softmax(logits.float() / self.temperature, dim=-1).cpu()

    # Explanations ----------------------------------------------------------------------------------------------

    def _others(self, version: AdapterVersion, answer: Drawn) -> dict[str, float]:
        """How far an answer is from all weights that are other than the member's own, in nats."""
        base = self._reference([version.member], [answer], base=True)[0]
        others, factors = {"the frozen base, without any adapter": distance(answer, base)}, self.population.factors
        for name in adapter_names(self.population):
            if name != version.member and not alike(factors(name), factors(version.member)):
                others[repr(name)] = distance(answer, self._reference([name], [answer])[0])
        return others

    def _explain(self, version: AdapterVersion, answer: Drawn, error: float) -> str:
        tolerance, candidates = self.tolerance(version.member), self._others(version, answer)
        nearest = min(candidates, key=candidates.__getitem__)
        if candidates[nearest] > tolerance:
            nearest = "nobody's current weights: older ones, another file, or a cached prefix of other weights"
        return (
            f"{self.engine.where} does not sample {version.member!r} from its current weights: log-probabilities "
            f"differ from the trainer's by {error:.3g} (tolerance {tolerance:.3g}; {version.name}). "
            f"The answer looks like {nearest}."
        )

    def _confusion(self, probe: str, errors: dict[str, float]) -> str:
        own = errors.pop(probe)
        nearest = min(errors, key=errors.__getitem__)
        if own <= errors[nearest] / 2:
            return ""
        return (
            f"{self.engine.where} does not keep adapters apart: {probe} differs from what it should say by {own:.3g}, "
            f"and from {nearest} by {errors[nearest]:.3g}."
        )

    def _probe(self, seed: int) -> Factors:
        like = self.population.factors(adapter_names(self.population)[0])
        return random_like(like, {path: PROBE_STRENGTH * size for path, size in self._spreads.items()}, seed=seed)


def distance(answer: Drawn, reference: Tensor) -> float:
    """Root mean square difference between the reported log-probabilities and `reference`, in nats.

    Args:
        answer ([`Drawn`]): Answer of the engine.
        reference (`torch.Tensor` of shape `(tokens, vocabulary)`): Log-probabilities of the same contexts.
    """
    squares = [
        (logprob - reference[position, token].item()) ** 2
        for position, reported in enumerate(answer.likeliest)
        for token, logprob in reported.items()
    ]
    return math.sqrt(sum(squares) / len(squares))
