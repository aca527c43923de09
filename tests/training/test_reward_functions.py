"""What users' reward functions return, and what their metrics are called."""

import asyncio

import numpy as np
import pytest
import torch
from torch import nn
from trl.trainer.utils import is_async_callable

from trl_populora.training.reward_functions import check_reward_functions, checked, numbered


def test_functions_of_one_name_are_numbered():
    assert numbered(["self_play_reward", "<lambda>", "<lambda>", "self_play_reward", "<lambda>"]) == [
        "self_play_reward",
        "<lambda>",
        "<lambda>_2",
        "self_play_reward_2",
        "<lambda>_3",
    ]
    assert numbered(["a", "a", "a_2"]) == ["a", "a_2", "a_2_2"]


@pytest.mark.parametrize("given", [None, 0.5, ["a"], "0.5", [[1.0]], [1.0, "2"], [10**400]])
def test_what_is_no_list_of_numbers_is_told_with_the_functions_name(given):
    def mine(**columns):
        return given

    (call,) = checked([mine], ["mine"])
    told = "The reward function 'mine' returned .*Return a list with a number, or None"
    with pytest.raises(TypeError, match=told):
        call(completions=["a"])

    async def later(**columns):
        return given

    with pytest.raises(TypeError, match=told):
        asyncio.run(checked([later], ["mine"])[0](completions=["a"]))


@pytest.mark.parametrize(
    "given", [[1, None, True], np.array([0.5, 1.0]), torch.tensor([0.5, 1.0]), (0.5, float("nan"))]
)
def test_numbers_pass(given):
    (call,) = checked([lambda **columns: given], ["mine"])
    assert len(call(completions=[])) == len(given)


def test_what_a_function_raises_is_its_own():
    def mine(**columns):
        raise KeyError("answer")

    with pytest.raises(KeyError, match="answer"):
        checked([mine], ["mine"])[0](completions=[])


def test_asynchronous_functions_stay_so_and_models_are_left_to_trl():
    async def later(**columns):
        return 1, None

    model = nn.Linear(1, 1)
    same, call = checked([model, later], ["model", "later"])
    assert same is model and is_async_callable(call) and asyncio.run(call(completions=["a", "b"])) == [1, None]


def test_columns_of_self_play():
    columns, of = ("player", "role", "task_type", "self_play_reward"), "the rows of self-play"
    check_reward_functions([lambda completions, player, **kwargs: []], columns, of=of)
    with pytest.raises(ValueError, match="cannot be called with the columns of the rows of self-play .*'answer'"):
        check_reward_functions([lambda completions, answer, **kwargs: []], columns, of=of)


@pytest.mark.parametrize("given", [3, (len,), None])
def test_what_is_no_function(given):
    with pytest.raises(ValueError, match="reward_funcs: .* is no function. Give a function or a model, or a list"):
        check_reward_functions([given], ["player"], of="train_dataset")
