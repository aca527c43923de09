"""Models in folders, as users name them, and the pair of runs that every test here is about."""

from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from tests.tiny import tiny_tokenizer, two_layers


pytest.register_assert_rewrite("tests.drop_in.pairs")


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> SimpleNamespace:
    """Paths of saved models with their tokenizers: `base`, one whose head is not tied, and a reward model.

    The policies end a completion with any of forty bytes, so that completions differ in length and some are cut off.
    """
    made = SimpleNamespace(**{name: str(tmp_path_factory.mktemp(name)) for name in ("base", "untied", "reward")})
    for name, folder in vars(made).items():
        tiny_tokenizer().save_pretrained(folder)
        if name != "reward":
            model = two_layers(tie_word_embeddings=name == "base")
            model.generation_config.eos_token_id = [2, *range(10, 50)]
            model.save_pretrained(folder)
    torch.manual_seed(1)
    shape = two_layers().config.to_dict() | {"num_labels": 1, "initializer_range": 0.5}
    LlamaForSequenceClassification(LlamaConfig(**shape)).save_pretrained(made.reward)
    return made


@pytest.fixture
def pair(tmp_path):
    """`train_pair` in a folder of this test."""
    from tests.drop_in.pairs import train_pair

    def compare(arguments, *positional, **keywords):
        return train_pair(tmp_path, arguments, *positional, **keywords)

    return compare
