"""A small Llama and its tokenizer, before any training: what the scripts that make bases from scratch share."""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import PreTokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trl_populora.integrations.lightning import Example


CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def make_tokenizer(examples: Sequence[Example], *splits: PreTokenizer, vocabulary: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE. Merges may cross spaces and lines, so the fixed wording of the prompts shrinks to a few tokens.

    Args:
        examples (`Sequence[Example]`): Rows that the tokens are chosen by.
        splits (`PreTokenizer`): Cut the text, one after the other, where nothing may be merged.
        vocabulary (`int`): Number of tokens.
    """
    turns = [f"{message['role']}\n{message['content']}" for example in examples for message in example.messages]
    texts = turns + [example.completion for example in examples] + ["assistant\n"] * len(examples)
    core = Tokenizer(models.BPE())
    plain_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([*splits, plain_bytes])
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=1024,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast, *, hidden: int, layers: int, seed: int) -> LlamaForCausalLM:
    """A new model with weights of the seed."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def save(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path, *, how: str, settings: Mapping[str, Any]
) -> None:
    """Write weights in bfloat16, half the size, under a config that loads them as float32; and in the file `how`, the
    settings that the model was made by."""
    folder.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "float32"}, indent=2) + "\n")
    (folder / how).write_text(json.dumps(dict(settings), indent=2) + "\n")
