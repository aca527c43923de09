"""A prompt that would end the run on the way is found before it starts."""

import pytest
from datasets import Dataset

from trl_populora.training.prompts import check_prompts


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
    ],
)
def test_the_first_bad_prompt_is_named_with_its_row(bad, words):
    good = "2 + 2?" if bad is None or bad == "" else [ASKED]
    dataset = Dataset.from_dict({"prompt": [good, good, bad, bad]})
    with pytest.raises(ValueError, match=rf"train_dataset: the prompt of row 3 \(index 2\) {words}. Give the row"):
        check_prompts("train_dataset", dataset)
    with pytest.raises(ValueError, match=r"row 2 \(index 1\)"):
        check_prompts("train_dataset", dataset.select([1, 3]))
    check_prompts("train_dataset", dataset.select([0, 1]))


def test_messages_without_the_key_of_the_role():
    with pytest.raises(ValueError, match=r"row 1 \(index 0\) has a message without role or content"):
        check_prompts("train_dataset", Dataset.from_dict({"prompt": [[{"content": "2 + 2?"}]]}))


@pytest.mark.parametrize("prompt", [3, 0.5, True, ASKED, ["alpha", "beta"], [1, 2]])
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
