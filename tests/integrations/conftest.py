"""The shared toys, as fixtures: a byte tokenizer with a chat template, and a Llama of two layers."""

import pytest
import torch

from tests.tiny import tiny_tokenizer, two_layers


@pytest.fixture(scope="session")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture
def model():
    with torch.random.fork_rng():
        return two_layers()
