"""Every setting of a plain `GRPOConfig`, full fine-tuning and LoRA: the same run to the bit. Most of them are slow."""

import random
from dataclasses import fields

import pytest
import torch
from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM, TrainingArguments
from trl import GRPOConfig

from tests.drop_in.pairs import chats, letters, prompts, settings, slow_but
from tests.tiny import lora, tiny_tokenizer


BASE_SETTINGS = {field.name for field in fields(TrainingArguments)}
OWN_SETTINGS = set(GRPOConfig.__annotations__)


def vowels(completions, **kwargs):
    return [sum(c.count(v) for v in "aeiou") + len(c) / 9 for c in completions]


STALE = dict(num_iterations=2, steps_per_generation=2)  # the second half of the steps is off-policy
LOSSES = {
    "grpo": dict(loss_type="grpo", scale_rewards="batch"),
    "bnpo": dict(loss_type="bnpo", gradient_accumulation_steps=2),
    "dr_grpo": dict(loss_type="dr_grpo", scale_rewards=False),
    "dapo": dict(loss_type="dapo", epsilon=0.1, epsilon_high=0.28),
    "cispo": dict(loss_type="cispo", epsilon_high=5.0),
    "sapo": dict(loss_type="sapo", sapo_temperature_pos=1.5, sapo_temperature_neg=0.9),
    "luspo": dict(loss_type="luspo", importance_sampling_level="sequence"),
    "vespo": dict(loss_type="vespo", vespo_k_pos=1.5, vespo_lambda_pos=2.5, vespo_k_neg=2.5, vespo_lambda_neg=1.5),
    "gspo": dict(loss_type="grpo", importance_sampling_level="sequence"),
    "delta": dict(delta=1.5, loss_type="grpo"),
}
LOSSES = {name: chosen | STALE | dict(max_steps=4) for name, chosen in LOSSES.items()}

# What a setting does is GRPOTrainer's affair; each has to do something here, which the defaults do not.
SETTINGS = {
    "beta": dict(beta=0.1, use_bias_correction_kl=False),
    "beta-loss": dict(beta=0.1, num_iterations=2),
    "group-of-four": dict(num_generations=4, shuffle_dataset=False, remove_unused_columns=True),
    "generation-batch": dict(generation_batch_size=8),
    "accumulation": dict(gradient_accumulation_steps=2, per_device_train_batch_size=2),
    "sampling": dict(temperature=0.7, top_p=0.9, top_k=20, min_p=0.01, repetition_penalty=1.1),
    "generation-kwargs": dict(
        generation_kwargs={"suppress_tokens": [5, 6], "top_k": 9}, cache_implementation="dynamic"
    ),
    "mask-truncated": dict(mask_truncated_completions=True),
    "off-policy-mask": dict(off_policy_mask_threshold=0.001, max_steps=4, learning_rate=0.1, **STALE),
    "top-entropy": dict(top_entropy_quantile=0.3),
    "entropy-bonus": dict(entropy_coef=0.1),
    "adaptive-entropy": dict(
        use_adaptive_entropy=True,
        entropy_coef=0.05,
        entropy_coef_delta=0.02,
        entropy_coef_min=0.01,
        entropy_coef_max=0.06,
        entropy_target=5.0,
    ),
    "weights": dict(reward_weights=[0.3, 1.7]),
    "objectives": dict(reward_weights=[0.3, 1.7], multi_objective_aggregation="normalize_then_sum"),
    "padding": dict(pad_to_multiple_of=8, disable_dropout=True),
    "completions": dict(log_completions=True, num_completions_to_print=1, log_unique_prompts=True),
    "evaluation": dict(eval_strategy="steps", eval_steps=1, num_generations_eval=4),
    "bf16": dict(bf16=True, gradient_checkpointing=False),
    "optimizer": dict(optim="sgd", lr_scheduler_type="cosine", warmup_steps=1, weight_decay=0.1, max_grad_norm=0.01),
    "epochs": dict(num_train_epochs=1, max_steps=-1, logging_steps=2, logging_first_step=True, seed=7),
}
FULL_ONLY = {
    "sync-reference": dict(
        beta=0.1, sync_ref_model=True, ref_model_sync_steps=1, ref_model_mixup_alpha=0.4, max_steps=3
    ),
    "loading": dict(model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "eager"}, trust_remote_code=True),
}


def arguments(folders, chosen: dict, peft: bool) -> dict:
    rewards = [letters, vowels] if "reward_weights" in chosen else letters
    data = dict(train_dataset=prompts(extra=list("abcdefgh")))
    if chosen.get("eval_strategy"):
        data["eval_dataset"] = prompts()
    given = dict(model=folders.base, reward_funcs=rewards, args=settings(**chosen), **data)
    return given | (dict(peft_config=lora()) if peft else {})


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_loss(name, pair, folders):
    pair(lambda: arguments(folders, LOSSES[name], False))


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_loss_lora(name, pair, folders):
    pair(lambda: arguments(folders, LOSSES[name], True))


@pytest.mark.parametrize("name", slow_but("beta-loss", of=SETTINGS | FULL_ONLY))
def test_full(name, pair, folders):
    pair(lambda: arguments(folders, (SETTINGS | FULL_ONLY)[name], False))


@pytest.mark.parametrize("name", slow_but("accumulation", of=SETTINGS))
def test_lora(name, pair, folders):
    pair(lambda: arguments(folders, SETTINGS[name], True))


@pytest.mark.slow
def test_fp32_head(pair, folders):
    pair(lambda: arguments(folders, dict(cast_lm_head_to_fp32=True), False) | dict(model=folders.untied))


@pytest.mark.slow
def test_chat_template_kwargs(pair, folders):
    def given():
        tokenizer = tiny_tokenizer()
        tokenizer.chat_template = "{{ greeting }}" + tokenizer.chat_template
        args = settings(chat_template_kwargs={"greeting": "Hi! "})
        return arguments(folders, {}, False) | dict(args=args, train_dataset=chats(), processing_class=tokenizer)

    ours, _ = pair(given)
    assert ours.logs[0]["num_tokens"] > 4 * len("Hi! ")


@pytest.mark.slow
def test_experts(pair, folders, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("experts"))
    torch.manual_seed(0)
    shape = dict(vocab_size=259, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=8)
    config = Qwen2MoeConfig(**shape, **experts, num_key_value_heads=1, eos_token_id=2, pad_token_id=0)
    Qwen2MoeForCausalLM(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    ours, _ = pair(lambda: arguments(folders, dict(router_aux_loss_coef=0.1), False) | dict(model=folder))
    assert ours.logs[0]["aux_loss"] > 0


class ScriptedEngine:
    """In place of TRL's `VLLMGeneration`: random tokens and log-probabilities, and what it was asked for."""

    def __init__(self, **given):
        self.given = {name: value for name, value in given.items() if isinstance(value, int | float | str | dict)}
        self.synchronised = 0

    def sync_weights(self):
        self.synchronised += 1

    def generate(self, prompts, images, num_generations, profiler):
        lengths = torch.randint(2, 7, (len(prompts),)).tolist()
        completions = [torch.randint(3, 259, (n,)).tolist() for n in lengths]
        logprobs = [[[-5.0 - random.random()] for _ in row] for row in completions]
        return prompts, completions, logprobs, None


ENGINES = {
    "sequence-mask": dict(vllm_importance_sampling_clip_min=1e-3, vllm_importance_sampling_clip_max=1e3),
    "sequence-truncate": dict(
        vllm_importance_sampling_mode="sequence_truncate", vllm_importance_sampling_clip_max=1.5
    ),
    "token-truncate": dict(vllm_importance_sampling_mode="token_truncate", vllm_enable_sleep_mode=True),
    "token-mask": dict(
        vllm_importance_sampling_mode="token_mask", vllm_mode="colocate", vllm_gpu_memory_utilization=0.5
    ),
    "uncorrected": dict(vllm_importance_sampling_correction=False, vllm_mode="colocate", vllm_max_model_length=64),
    "regex": dict(vllm_structured_outputs_regex="a+", vllm_tensor_parallel_size=1, vllm_model_impl="transformers"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_vllm(name, pair, folders, monkeypatch):
    """The engine itself needs a GPU; what TRL asks of it and does with its answers does not."""
    monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", ScriptedEngine)
    ours, theirs = pair(lambda: arguments(folders, ENGINES[name] | dict(use_vllm=True), False))
    engine, other = ours.trainer.vllm_generation, theirs.trainer.vllm_generation
    assert engine.given == other.given and engine.synchronised == other.synchronised == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", ["use_transformers_continuous_batching", "use_transformers_paged"])
def test_continuous_batching(name, pair, folders):
    chosen = {name: True, "transformers_continuous_batching_config": {"num_blocks": 16, "max_batch_tokens": 64}}
    pair(lambda: arguments(folders, chosen, False))


# Settings that a CPU without other machines cannot show: each is read by code that is inherited.
ELSEWHERE = {
    "ds3_gather_for_generation": "DeepSpeed",
    "vllm_server_base_url": "a server",
    "vllm_server_host": "a server",
    "vllm_server_port": "a server",
    "vllm_server_timeout": "a server",
    "vllm_group_port": "a server",
    "log_multimodal": "images",
    "log_completions_hub_repo": "the Hub",
    "vllm_importance_sampling_cap": "another name of clip_max",
    "max_tool_calling_iterations": "test_multi_turn.py",
}


def test_every_setting_has_a_case():
    cases = [*LOSSES.values(), *SETTINGS.values(), *FULL_ONLY.values(), *ENGINES.values()]
    exercised = {"learning_rate", "num_generations", "max_completion_length", "use_vllm"}  # in all of them
    exercised |= {"cast_lm_head_to_fp32", "chat_template_kwargs", "router_aux_loss_coef"}
    exercised |= {"use_transformers_continuous_batching", "transformers_continuous_batching_config"}
    exercised |= {"use_transformers_paged"}
    exercised = exercised.union(*cases)
    assert exercised <= OWN_SETTINGS | BASE_SETTINGS
    assert OWN_SETTINGS - exercised == set(ELSEWHERE)
