"""`Sampler.decoding`: another temperature and length for a while, and everything as before afterwards."""

import pytest

from tests.tiny import tiny_population, tiny_tokenizer
from trl_populora.generation import TransformersSampler


PROMPTS = [[{"role": "user", "content": text}] for text in ("one", "two and more", "three")]
ROWS = ["student_0", "teacher_0", "student_1"]


@pytest.fixture(scope="module")
def population():
    return tiny_population(noise=0.3)


def sampler(population, **settings):
    return TransformersSampler(population, tiny_tokenizer(), **({"max_completion_length": 12} | settings))


def test_it_draws_as_a_sampler_made_so(population):
    trains = sampler(population, temperature=0.7, top_p=0.5, top_k=3, min_p=0.1)
    before = trains(PROMPTS, ROWS, seed=1)
    with trains.decoding(temperature=0.0, max_completion_length=7) as greedy:
        greedily = greedy(PROMPTS, ROWS, seed=1)
    assert greedily == sampler(population, temperature=0.0, max_completion_length=7)(PROMPTS, ROWS, seed=5)
    with trains.decoding(temperature=1.3):
        hotter = trains(PROMPTS, ROWS, seed=1)
    assert hotter == sampler(population, temperature=1.3)(PROMPTS, ROWS, seed=1) != before
    assert trains(PROMPTS, ROWS, seed=1) == before


def test_settings_come_back_after_an_error(population):
    trains = sampler(population, temperature=0.7, top_p=0.5)
    settings = dict(vars(trains))
    with pytest.raises(KeyError), trains.decoding(temperature=0.0, max_completion_length=3):
        raise KeyError
    assert vars(trains) == settings
