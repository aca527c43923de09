"""Tiny models and tokenizers made on the spot, shared by the tests. Nothing here is downloaded or stored."""

import torch
from peft import LoraConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trl_populora.population import Population


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SHAPE = dict(
    vocab_size=259,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=2048,
    eos_token_id=2,
    pad_token_id=0,
    bos_token_id=None,
    tie_word_embeddings=True,
    initializer_range=0.2,
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, and ChatML."""
    vocabulary = {t: i for i, t in enumerate(SPECIAL + sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHATML
    )


def begin_texts(tokenizer: PreTrainedTokenizerFast) -> int:
    """Makes a tokenizer put a beginning of sequence before texts, and an end after them; returns the first."""
    tokenizer.bos_token = begin = SPECIAL[0]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {SPECIAL[2]}", special_tokens=[(begin, 0), (SPECIAL[2], 2)]
    )
    return 0


def tiny_model(seed: int = 0, **overrides) -> LlamaForCausalLM:
    """A random Llama of one layer over the bytes. Where layers could be mixed up, tests ask for two."""
    torch.default_generator.manual_seed(seed)  # `torch.manual_seed` also notes a stack for each kind of device
    return LlamaForCausalLM(LlamaConfig(**(SHAPE | overrides)))


def two_layers(seed: int = 0, **overrides) -> LlamaForCausalLM:
    """The same of two layers."""
    return tiny_model(seed, num_hidden_layers=2, **overrides)


def lora(r: int = 4, **overrides) -> LoraConfig:
    return LoraConfig(**(dict(r=r, lora_alpha=2 * r, target_modules="all-linear", lora_dropout=0.0) | overrides))


def tiny_population(
    teachers: int = 2, students: int = 2, *, seed: int = 0, noise: float = 0.1, **kwargs
) -> Population:
    """A population whose adapters all differ from the base (B is not zero)."""
    population = Population(
        two_layers(seed), kwargs.pop("lora_config", lora()), num_teachers=teachers, num_students=students, **kwargs
    )
    perturb(population, noise, seed=seed)
    return population


@torch.no_grad()
def perturb(population: Population, noise: float, *, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name in population:
        for B in population.parameters(name)[1::2]:
            B.copy_(noise * torch.randn(B.shape, generator=generator))
