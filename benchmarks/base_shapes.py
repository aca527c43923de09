"""Base models for benchmarks: real ones by name or folder, and random weights in given shapes, made on the device."""

import copy

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from trl_populora.integrations.base_models import resolve_base


SHAPES = {
    "tiny": LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    ),
    "small": LlamaConfig(
        vocab_size=1024,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
    ),
    "qwen2.5-1.5b-shapes": Qwen2Config(
        vocab_size=151936,
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    ),
    "qwen2.5-7b-shapes": Qwen2Config(
        vocab_size=152064,
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
    ),
}


def load(
    name: str, device: torch.device, dtype: torch.dtype, *, layers: int | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer; `layers` keeps only the first so many."""
    if name not in SHAPES:
        folder = resolve_base(name)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device)
        if layers:
            model.model.layers = model.model.layers[:layers]
            model.config.num_hidden_layers = layers
        return model, AutoTokenizer.from_pretrained(folder, padding_side="left")
    config = copy.deepcopy(SHAPES[name])
    config.num_hidden_layers = layers or config.num_hidden_layers
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            model = AutoModelForCausalLM.from_config(config)
    finally:
        torch.set_default_dtype(before)
    return model, byte_tokenizer()


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte; random weights know no better."""
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>", chat_template=template, padding_side="left"
    )
