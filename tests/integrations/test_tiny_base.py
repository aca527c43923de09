"""The tiny base: its rows, its tokenizer, that its training repeats, and the copy kept in the repository."""

import ast
import json
import random
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipes.tiny.make.skill import measure_proposing
from recipes.tiny.make.tiny_base import Recipe, build_tokenizer, train
from recipes.tiny.make.tiny_rows import (
    HELD_OUT_FAMILIES,
    NUM_FUNCTION_INPUTS,
    SHARES,
    TRAINED_FAMILIES,
    TinyExamples,
    invalid_proposal,
    trivial_proposal,
    wrong_answer,
)
from tests.code_tasks import code_buffer, code_draw, code_seeds, code_types
from trl_populora.integrations import resolve_base
from trl_populora.integrations.base_models import TINY_FOLDER
from trl_populora.self_play.sampling import Completion
from trl_populora.tasks import Refusal
from trl_populora.tasks.code.families import EASY_FAMILIES


TYPES = code_types("compact", num_function_inputs=NUM_FUNCTION_INPUTS)


def tasks(type_id: str, count: int):
    rng = random.Random(type_id)
    for _ in range(count):
        yield code_draw(type_id, rng, families=TRAINED_FAMILIES, num_function_inputs=NUM_FUNCTION_INPUTS)


# Rows ---------------------------------------------------------------------------------------------------------------


def test_families_are_easy_and_leave_some_held_out():
    assert set(TRAINED_FAMILIES) | set(HELD_OUT_FAMILIES) <= set(EASY_FAMILIES)
    assert not set(TRAINED_FAMILIES) & set(HELD_OUT_FAMILIES)
    assert sum(SHARES.values()) == pytest.approx(1)


@pytest.mark.slow
def test_wrong_answers_are_well_formed_and_wrong():
    for task in tasks("code_o", 300):
        answer = TYPES["code_o"].parse_answer(task, wrong_answer(TYPES["code_o"].solve_completion(task)))
        assert not isinstance(answer, Refusal), task.payload.output
        assert not TYPES["code_o"].judge([task], [answer], list)[0], task.payload.output


@pytest.mark.slow
@pytest.mark.parametrize("type_id", ["code_i", "code_f"])
def test_other_wrong_answers_are_well_formed(type_id):
    for task in tasks(type_id, 200):
        right = TYPES[type_id].solve_completion(task)
        assert wrong_answer(right) != right
        assert not isinstance(TYPES[type_id].parse_answer(task, wrong_answer(right)), Refusal), right


@pytest.mark.slow
@pytest.mark.parametrize("type_id", list(TYPES))
def test_invalid_proposals_are_refused(type_id):
    rng = random.Random(0)
    for task in tasks(type_id, 100):
        completion = invalid_proposal(TYPES[type_id].propose_completion(task), rng)
        assert isinstance(TYPES[type_id].parse_proposal(completion, [task]), Refusal), completion


@pytest.mark.slow
def test_trivial_proposals_give_their_argument_back():
    for task in tasks("code_o", 200):
        draft = TYPES["code_o"].parse_proposal(trivial_proposal(TYPES["code_o"].propose_completion(task)), [])
        assert not isinstance(draft, Refusal)
        (function,) = ast.parse(draft.content.program).body
        assert len(function.body) == 1
        assert ast.unparse(function.body[0]) == f"return {function.args.args[0].arg}"
        assert draft.content.inputs[0] == ast.literal_eval(f"({task.payload.input},)")


def test_a_code_f_proposal_without_a_program_cannot_be_trivial():
    (task,) = tasks("code_f", 1)
    completion = TYPES["code_f"].propose_completion(task)
    assert trivial_proposal(completion) == completion


@pytest.mark.slow
def test_rows_repeat_by_seed_and_shares_are_kept():
    first, again, other = TinyExamples(0), TinyExamples(0), TinyExamples(1)
    rows = [first.draw() for _ in range(50)]
    assert rows == [again.draw() for _ in range(50)]
    assert rows != [other.draw() for _ in range(50)]
    spoilt = TinyExamples(0, wrong_answers=1.0)
    answers = [example for example in (spoilt.draw() for _ in range(200)) if "```output\n" in example.completion]
    assert 60 < len(answers) < 140  # half the rows are code_o answers


# Tokenizer and training ---------------------------------------------------------------------------------------------

SMALL = Recipe(steps=2, latent_steps=1, rows=8, hidden=32, layers=1, vocabulary=400, tokenizer_rows=200)


@pytest.mark.slow
def test_tokenizer_keeps_digits_and_data_letters_apart_and_any_text_whole():
    tokenizer = build_tokenizer(TinyExamples(0), SMALL)
    assert len(tokenizer) <= SMALL.vocabulary
    pieces = [tokenizer.decode(token) for token in tokenizer("'abcab', 1234")["input_ids"]]
    for letter in "abc1234":
        assert any(letter in piece for piece in pieces)
    assert not any(sum(map(piece.count, "abcd0123456789")) > 1 for piece in pieces), pieces
    for text in ("```python\ndef f(x):\n    return x\n```", "Zażółć 你好 \x00", "'ABBA' <|im_end|>"):
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


@pytest.mark.slow
def test_training_repeats_bit_for_bit():
    one, tokenizer = train(SMALL)
    other, again = train(SMALL)
    assert tokenizer.get_vocab() == again.get_vocab()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    assert not one.training


# The copy in the repository -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base():
    folder = resolve_base("tiny")
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def test_committed_base_is_small_and_says_how_it_was_made():
    files = [path for path in TINY_FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 4_000_000
    assert json.loads((TINY_FOLDER / "recipe.json").read_text()) == asdict(Recipe())
    card = (TINY_FOLDER / "README.md").read_text()
    assert "recipes.tiny.make.tiny_base" in card and "apache-2.0" in card.lower()


def test_committed_base_loads_as_a_plain_chat_model(base):
    model, tokenizer = base
    assert model.dtype == torch.float32
    assert model.num_parameters() < 2_000_000
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.pad_token == "<|endoftext|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
    )
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.slow  # tests/evaluation/test_chain_base.py asks the other base
def test_committed_base_solves_and_proposes_part_of_the_time(base):
    """Latent ability: neither useless nor perfect. The bounds are far outside the noise of 64 tasks."""
    from recipes.tiny.make.tiny_base import measure

    results = measure(Path(resolve_base("tiny")), tasks=64, proposals=48)["trained"]
    assert 0.08 < results["greedy"]["code_o"] < 0.6
    assert 0.05 < results["sampled"]["code_o"] < 0.5
    for outcome in results["proposing"].values():
        assert 0.3 < outcome["valid"] < 0.95


def test_measuring_tells_valid_from_new(run):
    """A scripted proposer: a fresh program, the reference itself, and rubbish, in turn."""
    known = code_seeds(1, type="code_o", families=("add",))
    buffer, kind = code_buffer(tasks=known), TYPES["code_o"]
    fresh = "```python\ndef f(x):\n    return [x]\n```\n```input\n1\n```"
    varied = kind.propose_completion(known[0]).replace(f"```input\n{known[0].payload.input}", "```input\n77")
    replies = [fresh, varied, "rubbish", fresh]

    def sampler(prompts, members, *, seed):
        return [Completion(text) for text in replies[: len(prompts)]]

    outcome = measure_proposing(sampler, None, {"code_o": kind}, buffer, run, proposals=4)["code_o"]
    assert (outcome.valid, outcome.distinct, outcome.new) == (0.75, 0.5, 0.5)
    assert outcome.reasons == {"no_program": 1}
