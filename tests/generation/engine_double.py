"""An engine in a few lines: reads adapter folders, answers with a model of its own, and can be told to go wrong."""

import json
import os
from contextlib import nullcontext

import torch
from safetensors.torch import load_file

from tests.tiny import tiny_model
from trl_populora.generation.engines import Drawn, Engine, EngineError
from trl_populora.generation.engines.canary import added
from trl_populora.generation.engines.engine import check_unmixed
from trl_populora.population import Factor


def base_model(seed=0):
    return tiny_model(seed, num_hidden_layers=1)


def read(folder):
    """Factors of a PEFT folder, by module path in the plain model."""
    with open(os.path.join(folder, "adapter_config.json")) as file:
        config = json.load(file)
    tensors = load_file(os.path.join(folder, "adapter_model.safetensors"))
    return {
        key.removeprefix("base_model.model.").removesuffix(".lora_A.weight"): Factor(
            A, tensors[key.replace("lora_A", "lora_B")], config["lora_alpha"] / config["r"]
        )
        for key, A in tensors.items()
        if "lora_A" in key
    }


class EngineDouble(Engine):
    """Answers rows one after another.

    Attributes that make it go wrong:
        stale (`bool`): New versions of a known member are answered with the old weights.
        swapped (`dict[str, str]`): Members that are answered by others.
        deaf (`bool`): Adapters are loaded and never used.
        raw (`bool`): Reports log-probabilities before temperature and filters.
        rounding (`tuple[float, float]`): Nats by which reported log-probabilities are off, of the base and of members.
        forgetful (`bool`): Once it has slept, it is deaf.
    """

    where, block_size, max_model_length, everywhere = "the double", 16, 256, True

    def __init__(self, **faults):
        self.base = base_model().eval()
        self.adapters = {}
        self.loaded, self.history, self.calls, self.asleep = {}, [], [], False
        self.lost = []
        right = {"stale": False, "swapped": {}, "deaf": False, "raw": False, "rounding": (0, 0), "forgetful": False}
        vars(self).update(right | faults)

    def start(self, spec):
        self.spec = spec

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
        if not (self.stale and older):
            self.adapters[version.member] = read(version.path)

    def unload(self, version):
        del self.loaded[version.name]

    @torch.no_grad()
    def generate(self, rows, sampling):
        assert not self.asleep
        check_unmixed(rows)
        self.calls.append(list(rows))
        return [self._answer(row, sampling) for row in rows]

    def close(self):
        self.loaded = {}

    def _answer(self, row, sampling):
        context = nullcontext()
        if row.adapter is not None and not self.deaf:
            assert row.adapter.name in self.loaded
            context = added(self.base, self.adapters[self.swapped.get(row.adapter.member, row.adapter.member)])
        noise = torch.Generator().manual_seed(row.seed)
        ids, likeliest = [], []
        with context:
            for _ in range(sampling["max_tokens"]):
                logits = self.base(input_ids=torch.tensor([list(row.prompt_ids) + ids])).logits[0, -1]
                policy = torch.log_softmax(logits / (row.temperature or 1.0), dim=-1)
                if sampling.get("top_k", -1) > 0:
                    kept = policy.topk(sampling["top_k"]).values[-1]
                    policy = torch.log_softmax(policy.masked_fill(policy < kept, -torch.inf), dim=-1)
                pick = torch.multinomial(policy.exp(), 1, generator=noise) if row.temperature else policy.argmax()
                told = torch.log_softmax(logits, dim=-1) if self.raw else policy
                ids.append(int(pick))
                tokens = {int(pick), *told.topk(sampling["logprobs"]).indices.tolist()}
                off = self.rounding[row.adapter is not None]
                likeliest.append({token: told[token].item() + off * (-1) ** token for token in tokens})
                if int(pick) in sampling.get("stop_token_ids", ()):
                    break
        return Drawn(ids, [row[token] for row, token in zip(likeliest, ids, strict=True)], likeliest)
