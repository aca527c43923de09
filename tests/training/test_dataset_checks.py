"""A prompt or a missing column that would end the run on the way is found before it starts."""

import json
from functools import partial

import pytest
from datasets import Dataset, Features, Json
from torch import nn
from trl.rewards import accuracy_reward, think_format_reward

from trl_populora.training.dataset_checks import check_prompts
from trl_populora.training.dataset_source import DatasetSource


def check(functions, name, rows):
    source = DatasetSource()
    source._functions = functions
    source._check(name, rows)


ASKED = {"role": "user", "content": "2 + 2?"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [{"name": "add"}]}


@pytest.mark.parametrize(
    "bad, words",
    [
        (None, "is null"),
        ("", "is empty"),
        ([], "is empty"),
        ([ASKED, {"role": "user", "content": None}], "has a message without role or content"),
        ([{"role": None, "content": "2 + 2?"}], "has a message without role or content"),
        ([None], "has a message without role or content"),
        (str([ASKED]), r"is chat messages written as a text, as in CSV \(use JSON lines or Parquet\)"),
        (json.dumps([ASKED], indent=1), "is chat messages written as a text"),
    ],
)
def test_the_first_bad_prompt_is_named_with_its_row(bad, words):
    good = "[{'a': 2 + 2?" if bad is None or isinstance(bad, str) else [ASKED]
    dataset = Dataset.from_dict({"prompt": [good, good, bad, bad]})
    with pytest.raises(ValueError, match=rf"train_dataset: the prompt of row 3 \(index 2\) {words}.*Give the row"):
        check_prompts("train_dataset", dataset)
    with pytest.raises(ValueError, match=r"row 2 \(index 1\)"):
        check_prompts("train_dataset", dataset.select([1, 3]))
    check_prompts("train_dataset", dataset.select([0, 1]))


def test_texts_and_chat_messages_in_one_column():
    """TRL takes a batch for what its first prompt is."""
    dataset = Dataset.from_dict({"prompt": [[ASKED], [ASKED], "2 + 2?"]}, features=Features({"prompt": Json()}))
    with pytest.raises(
        ValueError, match="train_dataset: the prompt of row 3 is a text and that of row 1 is chat mess"
    ):
        check_prompts("train_dataset", dataset)
    check_prompts("train_dataset", dataset.select([0, 1]))


def test_messages_without_the_key_of_the_role():
    with pytest.raises(ValueError, match=r"row 1 \(index 0\) has a message without role or content"):
        check_prompts("train_dataset", Dataset.from_dict({"prompt": [[{"content": "2 + 2?"}]]}))


@pytest.mark.parametrize("prompt", [3, 0.5, True, b"2 + 2?", ASKED, ["alpha", "beta"], [1, 2]])
def test_prompts_of_another_type(prompt):
    """Lists of texts would be taken for tokens, without the chat template."""
    with pytest.raises(
        ValueError, match="its prompts have the type .* A prompt is a text, or a list of chat messages"
    ):
        check_prompts("eval_dataset", Dataset.from_dict({"prompt": [prompt]}))


def test_good_prompts():
    check_prompts("train_dataset", Dataset.from_dict({"prompt": [[ASKED], [ASKED, CALLED]]}))
    made = Dataset.from_dict({"prompt": [None]}).with_transform(lambda rows: {"prompt": ["2 + 2?"]})
    check_prompts("train_dataset", made)


def length(completions, answer, **kwargs): ...


def strict(prompts, completions, completion_ids, answer, player, trainer_state, log_extra, log_metric): ...


class Graded:
    async def __call__(self, completions, answer, **kwargs): ...


@pytest.mark.parametrize("function", [length, strict, Graded(), think_format_reward])
def test_reward_functions_that_can_be_called(function):
    rows = Dataset.from_dict({"prompt": ["2 + 2?"], "answer": ["4"]})
    check([function], "train_dataset", rows)
    made = rows.remove_columns("answer").with_transform(lambda rows: {**rows, "answer": ["4"] * len(rows["prompt"])})
    check([function], "train_dataset", made)


def test_prompts_that_a_transform_makes_or_a_format_leaves_out():
    asked = Dataset.from_dict({"question": ["2 + 2?"], "answer": ["4"]})
    check([length], "train_dataset", asked.with_transform(lambda rows: {"prompt": rows["question"], **rows}))
    given = asked.rename_column("question", "prompt")
    for hidden in (
        given.with_format("python", columns=["answer"]),
        given.with_transform(lambda rows: {"answer": [1]}),
    ):
        with pytest.raises(ValueError, match=r"train_dataset has no column 'prompt', only \['answer'\]"):
            check([length], "train_dataset", hidden)


def test_a_column_that_the_format_leaves_out():
    rows = Dataset.from_dict({"prompt": ["2 + 2?"], "answer": ["4"]}).with_format("torch", columns=["prompt"])
    with pytest.raises(ValueError, match="required argument: 'answer'"):
        check([length], "train_dataset", rows)


@pytest.mark.parametrize(
    "function, words",
    [
        (
            length,
            r"length\(completions, answer, \*\*kwargs\) cannot .* required argument: 'answer'.*Add the column, rename",
        ),
        (Graded(), r"Graded\(completions, answer, .* required argument: 'answer'"),
        (accuracy_reward, "missing a required argument: 'solution'"),
        (partial(length, answer=1, wanted=2), None),  # the column is bound
        (strict, "required argument: 'answer'"),
        (lambda prompts, completions, completion_ids, trainer_state, log_extra, log_metric: [], "argument 'player'"),
        (lambda completions: [], r"unexpected keyword argument 'prompts'.*end the parameters with \*\*kwargs"),
        (lambda completions, trainer_state, /: [], "positional"),
    ],
)
def test_reward_functions_that_cannot(function, words):
    rows = Dataset.from_dict({"prompt": ["2 + 2?"], "question": ["2 + 2?"]})
    if words is None:
        return check([function], "eval_dataset", rows)
    with pytest.raises(ValueError, match=f"reward_funcs: .*{words}") as told:
        check(["org/reward-model", function], "eval_dataset", rows)
    assert "the columns of eval_dataset" in str(told.value) and "the columns ['player', 'question']" in str(told.value)


def test_what_python_cannot_look_into_is_left_to_trl():
    check(["org/reward-model", nn.Linear(1, 1), min], "x", Dataset.from_dict({"prompt": ["2 + 2?"]}))
