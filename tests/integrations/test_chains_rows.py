"""Rows that the base of chains is trained on: worked answers that the sandbox agrees with, families, tokens."""

import random
from collections import Counter
from dataclasses import asdict, replace

import pytest
import torch

from recipes.chains.make.base import Settings, Training, build_tokenizer
from recipes.chains.make.rows import (
    KIND_SHARES,
    LEVEL_SHARES,
    SHARES,
    TASK_KWARGS,
    ChainExamples,
    families,
    weak_shares,
)
from recipes.chains.make.worked import confusion, trace, worked_input, worked_output
from recipes.tiny.make.small_llama import save
from trl_populora.executor import Job, literals
from trl_populora.tasks import Referee, Refusal, make_task_types
from trl_populora.tasks.code.families import FAMILIES
from trl_populora.tasks.code.families.chains import CHAINS, depth


TYPES = make_task_types(style="compact", kwargs=TASK_KWARGS)
NAMES = [family.__name__ for family in CHAINS]
SMALL = Settings(
    steps=4,
    decay_steps=0,
    warmup_steps=1,
    short_steps=2,
    stop_steps=0,
    rows=4,
    vocabulary=400,
    tokenizer_rows=40,
    hidden=32,
    layers=1,
)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(Settings(vocabulary=768, tokenizer_rows=600))


def drawn(type_id: str, each: int = 3):
    rng = random.Random(type_id)
    return [TYPES[type_id].generate(rng, families=[name]) for name in NAMES for _ in range(each)]


# Worked answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_id, work", [("code_o", worked_output), ("code_i", worked_input)])
def test_worked_answers_are_right(type_id, work, executor):
    tasks = drawn(type_id)
    verdicts = Referee(TYPES, executor.run_many).judge(tasks, [work(task) for task in tasks])
    assert [verdict.solved for verdict in verdicts] == [True] * len(tasks)


def test_states_on_the_way_are_those_of_the_sandbox(executor):
    """Each state is what the program returns if it ends after that statement."""
    jobs, states = [], []
    for task in drawn("code_o"):
        if "    for " in task.payload.program or "    if " in task.payload.program:
            continue
        lines, (start,) = task.payload.program.splitlines(), literals.parse_arguments(task.payload.input)
        steps = trace(task.payload.program, start)
        assert len(steps) == depth(task.payload.program)
        for number, step in enumerate(steps, 2):
            jobs.append(Job("\n".join([*lines[:number], "    return x"]), ((start,),)))
            states.append(step.after)
    found = [execution.values[0].literal for execution in executor.run_many(jobs)]
    assert [literals.parse_literal(text) for text in found] == states
    assert len(jobs) > 100


def test_a_worked_answer_to_read():
    program = "def f(x):\n    x = x[::-1]\n    if 4 in x:\n        x = x + [1]\n    if 5 in x:\n        x = [2] + x\n"
    program += "    for _ in range(2):\n        x = x[1:]\n    return x"
    steps = trace(program, [4, 8])
    assert [(step.text, step.after, step.holds) for step in steps] == [
        ("x = x[::-1]", [8, 4], None),
        ("if 4 in x:", [8, 4], True),
        ("x = x + [1]", [8, 4, 1], None),
        ("if 5 in x:", [8, 4, 1], False),
        ("for _ in range(2):", [8, 4, 1], None),
        ("x = x[1:]", [4, 1], None),
        ("x = x[1:]", [1], None),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("type_id, work", [("code_o", worked_output), ("code_i", worked_input)])
def test_answers_that_end_too_early_are_beginnings_of_whole_ones(type_id, work):
    rng, ended, lines = random.Random(0), 0, 0
    for task in drawn(type_id, each=20):
        whole, part = (work(task, stops=stops, rng=rng).partition("\n```")[0].splitlines() for stops in (0.0, 0.6))
        assert part == whole[: len(part)] and len(part) >= min(3, len(whole))
        for place in range(3, len(part) + 1):
            if place < len(whole):  # whether it ends is drawn
                lines, ended = lines + 1, ended + (place == len(part))
        assert not isinstance(TYPES[type_id].parse_answer(task, work(task, stops=0.6, rng=rng)), Refusal)
    assert abs(ended / lines - 0.6) < 4 * (0.6 * 0.4 / lines) ** 0.5 and lines > 100


def test_as_many_statements_are_confused_as_the_chance_says():
    rng = random.Random(0)
    program = "def f(x):\n    x = x[1:] + [5]\n    x = x[::-1]\n    return x"
    ends = Counter(str(trace(program, [1, 2], confused=0.6, rng=rng)[-1].after) for _ in range(400))
    assert set(ends) == {"[5, 2]", "[5, 2, 1]"}
    assert abs(ends["[5, 2, 1]"] / 400 - 0.6) < 4 * (0.6 * 0.4 / 400) ** 0.5


# Rows ----------------------------------------------------------------------------------------------------------------


def test_shares_and_families():
    assert sum(SHARES.values()) == pytest.approx(1)
    assert set(families()) == {f"{kind}_{level}" for kind in KIND_SHARES for level in LEVEL_SHARES} <= set(FAMILIES)
    assert not [name for name in families() if name.endswith("held_out")]
    assert families(["chain_text"], {"long": 3}) == ("chain_text_long",) * 9


@pytest.mark.slow
def test_proposals_and_tasks_to_solve_may_have_levels_of_their_own():
    rows = ChainExamples(0, levels=weak_shares(5), types=["code_o"]).batch(300, seed="0")
    proposed = [row for row in rows if "```python" in row.completion]
    texts = {"solve": [row.messages[0]["content"] for row in rows if row not in proposed]}
    texts["propose"] = [row.completion for row in proposed]
    shares = {
        role: sum(any(confusion(line.strip()) for line in text.splitlines()) for text in own) / len(own)
        for role, own in texts.items()
    }
    assert abs(shares["solve"] - 0.5) < 0.12 and abs(shares["propose"] - 0.2) < 0.17
    assert (
        weak_shares(25)["propose"] == {"short": 96, "held_out": 4}
        and weak_shares(25)["solve"] == weak_shares(5)["solve"]
    )


@pytest.mark.slow
def test_batches_depend_on_their_seed_alone():
    examples = ChainExamples(0)
    first = examples.batch(8, seed="a")
    examples.batch(3, seed="b")
    assert examples.batch(8, seed="a") == first == ChainExamples(0).batch(8, seed="a")
    assert examples.batch(8, seed="b") != first


def test_rows_of_chosen_kinds_and_types():
    rows = ChainExamples(
        0, kinds=["chain_text"], levels=dict.fromkeys(("solve", "propose"), {"short": 1}), types=["code_o"]
    ).batch(40, seed="0")
    texts = [row.messages[0]["content"] + row.completion for row in rows]
    assert not [text for text in texts if "[v " in text or "items()" in text or "```message" in text]
    assert {"```python" in row.completion for row in rows} == {True, False}


# Tokens --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_statement_is_the_same_tokens_in_a_program_and_in_an_answer(tokenizer):
    def tokens(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    for task in drawn("code_o", each=2):
        program = tokens(task.payload.program + "\n```")
        for line in worked_output(task).partition("\n```")[0].splitlines():
            statement = tokens(line.partition(" # ")[0])
            assert any(program[i : i + len(statement)] == statement for i in range(len(program))), line


@pytest.mark.slow
def test_texts_come_back_from_their_tokens(tokenizer):
    for example in ChainExamples(1).batch(60, seed="x"):
        for text in (example.completion, example.messages[0]["content"]):
            assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


@pytest.mark.parametrize(
    "text, data", [(" # [4, 0, 7]\n", "407"), ("x = 'abca'", "abca"), (" # {'a': 3, 'b': 0}\n", "a3b0"), ("x[:3]", "")]
)
def test_each_digit_and_letter_of_data_is_a_token_of_its_own(text, data, tokenizer):
    pieces = [tokenizer.decode([one]) for one in tokenizer(text, add_special_tokens=False)["input_ids"]]
    assert [one for one in pieces if one.isalnum() and one != "x"] == list(data)


# Training ------------------------------------------------------------------------------------------------------------


def weights(training):
    return {name: value.clone() for name, value in training.model.state_dict().items()}


@pytest.mark.slow
def test_a_training_that_was_stopped_ends_in_the_same_bits(tmp_path):
    whole = Training(tmp_path / "whole", SMALL)
    start = weights(whole)
    whole.run()
    for steps in (1, 3, 4):
        part = Training(tmp_path / "part", replace(SMALL, steps=steps))
        part.run()
    assert part.step == whole.step == 4
    for name, value in weights(part).items():
        assert value.equal(weights(whole)[name]), name
    assert not any(value.equal(start[name]) for name, value in weights(whole).items() if "mlp" in name)


@pytest.mark.slow
def test_a_last_phase_and_a_state_of_another_model_is_refused(tmp_path):
    settings = replace(SMALL, steps=2, stop_steps=2)
    training = Training(tmp_path, settings)
    training.run()
    assert training.step == 4 and (tmp_path / "step_2.pt").exists()
    assert Training(tmp_path, settings).step == 4
    with pytest.raises(ValueError, match="layers.*another folder"):
        Training(tmp_path, replace(settings, layers=2))


@pytest.mark.slow
def test_a_last_phase_of_confusions(tmp_path):
    settings = replace(SMALL, steps=1, short_steps=0, stop_steps=0, confused_steps=2, types="code_o")
    training, plain = Training(tmp_path / "a", settings), Training(tmp_path / "b", replace(settings, confused=0.0))
    for one in (training, plain):
        one.run()
    assert training.step == plain.step == 3
    assert not all(value.equal(weights(plain)[name]) for name, value in weights(training).items())


def test_two_last_phases_are_refused():
    with pytest.raises(ValueError, match="stop_steps=1 and confused_steps=2"):
        replace(SMALL, stop_steps=1, confused_steps=2)


@pytest.mark.slow
def test_a_training_begins_with_given_weights(tmp_path):
    first = Training(tmp_path / "first", replace(SMALL, precision="float32"))
    save(first.model, first.tokenizer, tmp_path / "start", how="settings.json", settings=asdict(SMALL))
    again = Training(tmp_path / "again", replace(SMALL, seed=1), start=tmp_path / "start")
    assert again.step == 0 and again.tokenizer.get_vocab() == first.tokenizer.get_vocab()
    for name, value in weights(again).items():
        torch.testing.assert_close(value, weights(first)[name].bfloat16().float(), atol=0, rtol=0)
    again.run()
    with pytest.raises(ValueError, match="start.*another folder"):
        Training(tmp_path / "again", replace(SMALL, seed=1))


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="precision='fp32' must be"):
        replace(SMALL, precision="fp32")
