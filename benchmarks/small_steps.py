"""Does a vLLM engine answer differently after one optimizer step, or a part of it?

    python benchmarks/small_steps.py [--dtype bfloat16] [--learning-rate 1e-5]

In an environment with vLLM (`make test-vllm`), with SmolLM2-135M and one member of rank 16. The member learns for some
steps from completions with random advantages, until Adam's steps have their usual size. Then parts of the last step
are loaded, and a copy of the weights before it. For each, eight prompts show how often the engine's answer equals
that of the weights before, bit for bit, as the canary asks (docs/vllm.md, Small steps).
"""

import argparse
import os
import time


os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

from trl_populora.generation.engines import EngineSampler, VLLMEngine
from trl_populora.integrations.base_models import SMOLLM2, resolve_base
from trl_populora.population import Population
from trl_populora.population.factors import from_tensors, to_tensors


MEMBER, PROMPTS, STEPS = "student_0", 8, 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"], help="of the engine")
    parser.add_argument("--learning-rate", type=float, default=1e-5)
    args = parser.parse_args()
    folder, dtype = resolve_base(SMOLLM2), getattr(torch, args.dtype)
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder, dtype="float32"),
        AutoTokenizer.from_pretrained(folder),
    )
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")
    population = Population(model, lora, num_teachers=1, num_students=1)
    before, after = learn(population, tokenizer, args.learning_rate)
    engine = VLLMEngine(max_model_len=256, max_num_seqs=32, enforce_eager=True)
    sampler = EngineSampler(population, tokenizer, engine=engine, dtype=dtype, max_completion_length=16)
    try:
        versions = {"none (a copy)": load(sampler, before), "before": load(sampler, before)}
        for part in (1, 0.1, 0.01, 0.001):
            step = {key: old + part * (after[key] - old) for key, old in before.items()}
            versions[f"{part:g} of the step"] = load(sampler, step)
        reference = versions.pop("before")
        for name, version in versions.items():
            compare(sampler, name, reference, version)
    finally:
        sampler.close()


def learn(population: Population, tokenizer, learning_rate: float) -> tuple[dict, dict]:
    """The weights before and after the last of some steps."""
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Write a Python function that adds two numbers."}],
        add_generation_prompt=True,
        tokenize=False,
    )
    prompt = tokenizer(text, return_tensors="pt").input_ids
    torch.manual_seed(0)
    with torch.no_grad(), population.routing.base():
        drawn = population.base_model.generate(
            prompt.expand(16, -1), do_sample=True, max_new_tokens=32, pad_token_id=tokenizer.eos_token_id
        )
    optimizer, weights = torch.optim.AdamW(population.parameters(MEMBER), lr=learning_rate, weight_decay=0), []
    for _ in range(STEPS):
        weights.append({key: X.detach().clone() for key, X in to_tensors(population.factors(MEMBER)).items()})
        ids, advantages = drawn[torch.randperm(16)[:8]], torch.randn(8, 1)
        with population.route([MEMBER] * 8):
            logits = population.base_model(input_ids=ids, use_cache=False).logits[:, prompt.shape[1] - 1 : -1]
            logprobs = torch.log_softmax(logits, -1).gather(-1, ids[:, prompt.shape[1] :, None])[..., 0]
            (-advantages * logprobs).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights[-1], {key: X.detach().clone() for key, X in to_tensors(population.factors(MEMBER)).items()}


def load(sampler: EngineSampler, weights: dict):
    store = sampler.store
    version, like = store.new_version(MEMBER), sampler.population.factors(MEMBER)
    factors = from_tensors(weights, {path: factor.scaling for path, factor in like.items()})
    store.keep(version, store.pack(factors)[0], store.config_of(MEMBER))
    sampler.engine.load(version)
    return version


def compare(sampler: EngineSampler, name: str, before, after) -> None:
    """The canary's question for two versions, with several prompts."""
    canary, equal, start = sampler.canary, 0, time.process_time()
    for seed in range(PROMPTS):
        with canary._prompt(canary._new_prompt(PROMPTS * after.id + seed)):  # in no cache
            equal += canary._draw([before], max_tokens=1) == canary._draw([after], max_tokens=1)
    seconds = (time.process_time() - start) / PROMPTS
    print(
        f"{name:20} {canary._roundings(before, after):8.2g} roundings per token expected to differ, "
        f"{equal} of {PROMPTS} answers equal, {seconds:.2f} s of CPU time per pair of answers",
        flush=True,
    )


if __name__ == "__main__":
    main()
