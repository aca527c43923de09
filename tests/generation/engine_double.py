"""An engine in a few lines: reads adapter folders, answers with a model of its own, and can be told to go wrong."""

import json
import os
from collections import defaultdict
from contextlib import nullcontext

import torch
from safetensors.torch import load_file

from tests.tiny import tiny_model
from trl_populora.generation.engines import Drawn, Engine, EngineError
from trl_populora.generation.engines.engine import check_unmixed
from trl_populora.generation.engines.weight_changes import added, bit_sums
from trl_populora.population import Factor


def base_model(seed=0):
    return tiny_model(seed, num_hidden_layers=1)


def read(folder, weights):
    """Factors of a PEFT folder, by module path in the plain model. With weights in memory, B has the scaling."""
    with open(os.path.join(folder, "adapter_config.json")) as file:
        config = json.load(file)
    if (tensors := weights.get(os.path.basename(folder))) is None:
        tensors = load_file(os.path.join(folder, "adapter_model.safetensors"))
    else:
        config["lora_alpha"] = config["r"]
    return {
        key.removeprefix("base_model.model.").removesuffix(".lora_A.weight"): Factor(
            A, tensors[key.replace("lora_A", "lora_B")], config["lora_alpha"] / config["r"]
        )
        for key, A in tensors.items()
        if "lora_A" in key
    }


class EngineDouble(Engine):
    """Answers the rows of one adapter together.

    Attributes that make it go wrong:
        stale (`bool`): New versions of a known member are answered with the old weights.
        swapped (`dict[str, str]`): Members that are answered by others.
        deaf (`bool`): Adapters are loaded and never used.
        raw (`bool`): Reports log-probabilities before temperature and filters.
        rounding (`tuple[float, float]`): Nats by which reported log-probabilities are off, of the base and of members.
        forgetful (`bool`): Once it has slept, it is deaf.
        unsteady (`bool`): The last bits of its answers change from call to call.
        open (`bool`): Its memory can be read, as that of an engine in the trainer's process.
        in_memory (`bool`): It takes weights from the trainer's memory.
    """

    where, block_size, max_model_length, everywhere = "the double", 16, 256, True

    def __init__(self, **faults):
        self.base = base_model().eval()
        self.adapters = {}
        self.loaded, self.history, self.calls, self.asleep = {}, [], [], False
        self.lost, self.weights = [], {}
        right = {"stale": False, "swapped": {}, "deaf": False, "raw": False, "rounding": (0, 0), "forgetful": False}
        right |= {"unsteady": False, "open": False, "in_memory": False}
        vars(self).update(right | faults)

    def start(self, spec):
        self.spec, self.weights = spec, spec.weights

    def wake(self):
        woken, self.asleep = self.asleep, False
        return woken

    def sleep(self):
        self.asleep, self.deaf = True, self.deaf or self.forgetful

    def missing(self, versions):
        return [version for version in versions if version.name in self.lost]

    def load(self, version):
        if version.name in self.lost:
            self.lost.remove(version.name)
        elif any(version.name == name or version.id == old.id for name, old in self.loaded.items()):
            raise EngineError(f"{version} was loaded before")
        older = [name for name, old in self.loaded.items() if old.member == version.member]
        self.loaded[version.name] = version
        self.history.append(version)
        self.adapters[version.name] = (
            self.adapters[older[-1]] if self.stale and older else read(version.path, self.weights)
        )

    def unload(self, version):
        self.loaded.pop(version.name, None)

    def held(self, versions):
        read = [self.adapters[version.name].values() for version in versions]
        return [bit_sums(X for A, B, s in one for X in (A, B * s)) if self.open else None for one in read]

    @torch.no_grad()
    def generate(self, rows, sampling):
        assert not self.asleep
        check_unmixed(rows)
        self.calls.append(list(rows))
        answers, groups = {}, defaultdict(list)
        for place, row in enumerate(rows):
            groups[row.adapter, len(row.prompt_ids)].append(place)
        for (adapter, _), places in groups.items():
            with self._weights(adapter):
                answers |= zip(places, self._answers([rows[place] for place in places], sampling), strict=True)
        return [answers[place] for place in range(len(rows))]

    def close(self):
        self.loaded = {}

    def _weights(self, adapter):
        if adapter is None or self.deaf:
            return nullcontext()
        assert adapter.name in self.loaded
        other = self.swapped.get(adapter.member, adapter.member)
        name = adapter.name if other == adapter.member else [v.name for v in self.history if v.member == other][-1]
        return added(self.base, self.adapters[name])

    def _answers(self, rows, sampling):
        noises = [torch.Generator().manual_seed(row.seed) for row in rows]
        ids, likeliest = [[] for _ in rows], [[] for _ in rows]
        for _ in range(sampling["max_tokens"]):
            tokens = torch.tensor([[*row.prompt_ids, *drawn] for row, drawn in zip(rows, ids, strict=True)])
            logits = self.base(input_ids=tokens).logits[:, -1]
            for i, row in enumerate(rows):
                pick, reported = self.token(logits[i], row, noises[i], sampling)
                ids[i].append(pick)
                likeliest[i].append(reported)
        return [self._until_stop(*both, sampling) for both in zip(ids, likeliest, strict=True)]

    def token(self, logits, row, noise, sampling):
        policy = torch.log_softmax(logits / (row.temperature or 1.0), dim=-1)
        if sampling.get("top_k", -1) > 0:
            kept = policy.topk(sampling["top_k"]).values[-1]
            policy = torch.log_softmax(policy.masked_fill(policy < kept, -torch.inf), dim=-1)
        pick = int(torch.multinomial(policy.exp(), 1, generator=noise) if row.temperature else policy.argmax())
        told = torch.log_softmax(logits, dim=-1) if self.raw else policy
        tokens = {pick, *told.topk(sampling["logprobs"]).indices.tolist()}
        off = self.rounding[row.adapter is not None] + self.unsteady * 1e-6 * (len(self.calls) % 5)
        return pick, {token: told[token].item() + off * (-1) ** token for token in tokens}

    def _until_stop(self, ids, likeliest, sampling):
        ends = [place for place, token in enumerate(ids) if token in sampling.get("stop_token_ids", ())]
        if ends:
            ids, likeliest = ids[: ends[0] + 1], likeliest[: ends[0] + 1]
        return Drawn(ids, [row[token] for row, token in zip(likeliest, ids, strict=True)], likeliest)
