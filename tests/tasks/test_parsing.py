import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.tasks.parsing import (
    FENCE,
    MAX_COMPLETION,
    RESERVED,
    Fence,
    completion_fences,
    fence,
    fences,
    final_text,
    last_body,
    num_bytes,
    reserved_in,
)


bodies = st.text(alphabet=st.characters(exclude_characters="`\r"), max_size=40).map(lambda s: s.strip())
labels = st.sampled_from(["python", "input", "output", "message"])


@given(st.lists(st.tuples(labels, bodies), max_size=5), st.text(alphabet="ab <>\n.", max_size=20))
def test_rendered_fences_are_read_back(blocks, chatter):
    text = chatter + "\n" + f"\n{chatter}\n".join(fence(label, body) for label, body in blocks) + "\n" + chatter
    assert fences(text) == [Fence(label, body) for label, body in blocks]


@given(st.text(alphabet="`pyin \n<>/answerthk", max_size=300))
def test_any_text_is_read_without_an_error(text):
    for block in completion_fences(text):
        assert FENCE not in block.body
        assert block.label == "" or block.label.isalnum()


@pytest.mark.parametrize("label", ["python", "Python", "py", "python3", " python "])
def test_labels_of_programs(label):
    assert fences(f"```{label}\nx\n```") == [Fence("python", "x")]


def test_bodies_keep_their_indentation_and_lose_blank_ends():
    assert fences("```python\n\n  \n    a\n  b  \n\n```")[0].body == "    a\n  b"
    assert fences("```input\r\n1\r\n2\r\n```")[0].body == "1\n2"


def test_backticks_inside_a_sentence_open_nothing():
    text = "I use ```f(x)``` and `y` here.\n```input\n1\n```"
    assert fences(text) == [Fence("input", "1")]


def test_an_unclosed_fence_does_not_count():
    assert fences("```input\n1\n```\n```output\n5") == [Fence("input", "1")]


def test_the_last_block_of_a_label_wins():
    blocks = fences("```input\n1\n```\n```output\n0\n```\n```input\n2\n```")
    assert last_body(blocks, "input") == "2"
    assert last_body(blocks, "python") is None


@pytest.mark.parametrize(
    "completion, counted",
    [
        ("x", "x"),
        ("<think>a</think>b", "b"),
        ("a</think>b</think>c", "c"),
        ("a<think>never closed", "a"),
        ("<think>a</think>b<think>c", "b"),
        ("<answer>a</answer><answer>b</answer>c", "b"),
        ("<think><answer>a</answer></think>b", "b"),
        ("<answer>never closed", "<answer>never closed"),
        ("stray</answer>b", "stray</answer>b"),
        ("<answer>a</answer><answer>cut off", "a"),
        ("", ""),
    ],
)
def test_the_part_of_a_completion_that_counts(completion, counted):
    assert final_text(completion) == counted


@pytest.mark.parametrize(
    "unit, label",
    [
        (FENCE, None),
        ("```a\n", "a"),
        ("``` \n", ""),
        ("<think>", None),
        ("</think>", None),
        ("<answer>", None),
        ("</answer>", None),
        ("<answer></answer>", None),
        ("`", None),
        ("```x y\n", None),
    ],
)
def test_long_repetitions_are_read_to_the_end(unit, label):
    """Every second fence opens a block. A quadratic scan of these 64 KiB takes minutes and meets the timeout."""
    number = MAX_COMPLETION // len(unit)
    blocks = completion_fences(unit * number)
    assert blocks == ([] if label is None else [Fence(label, "")] * (number // 2))


def test_overlong_completions_are_not_read():
    assert completion_fences(fence("input", "1") + " " * MAX_COMPLETION) is None


def test_reserved_markers_are_found():
    assert reserved_in("plain `text` < 3") is None
    for marker in RESERVED:
        assert reserved_in(f"a{marker}b") == marker


def test_bytes_are_counted_even_of_lone_surrogates():
    assert num_bytes("aé\ud800") == 6
