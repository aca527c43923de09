import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.tasks import Referee, Refusal, Verdict, make_task_types
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
    unseen_in,
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


@pytest.mark.parametrize(
    "label",
    ["python", "Python", "py", "python3", " python ", "python3.11", 'python title="a.py"', "python {.numbers}"],
)
def test_labels_of_programs(label):
    assert fences(f"```{label}\nx\n```") == [Fence("python", "x")]


@pytest.mark.parametrize("before", ["", "   ", "1. "])
@pytest.mark.parametrize(
    "info, label",
    [
        *((info, "") for info in ("c++", "python-repl", "pseudo-code", "step-by-step", "text/plain", "(trace)")),
        *(("plain text", "plain"), ("output:", "output"), ("Output of f", "output"), ("input\tx", "input")),
    ],
)
def test_the_first_line_of_a_block_may_hold_any_text(before, info, label):
    """The end of such a block was taken for the begin of another one, and the block after it was lost."""
    text = f"{before}```{info}\nx = 3\n```\n\n```output\n5\n```"
    assert fences(text) == [Fence(label, "x = 3"), Fence("output", "5")]


def test_a_sentence_before_backticks_makes_them_part_of_it():
    text = "I write ```f(x) and\nmean it.\n```input\n1\n``` and ```g(x) or\n```output\n2\n```"
    assert fences(text) == [Fence("input", "1"), Fence("output", "2")]
    assert fences("So: ```input\n1\n```") == [Fence("input", "1")]
    assert fences("```input x`y\n```output\n2\n```") == [Fence("output", "2")]


def test_programs_in_lists_are_moved_to_the_left():
    blocks = fences("1. So:\n   ```python\n   def f(x):\n\n       return x\n   ```\n   ```input\n   1\n     2\n   ```")
    assert last_body(blocks, "python") == "def f(x):\n\n    return x"
    assert last_body(blocks, "input") == "   1\n     2"
    kept = "def f(x):\n    return '''\n  \n'''"
    assert last_body(fences(fence("python", kept)), "python") == kept


def test_bodies_keep_their_indentation_and_lose_blank_ends():
    assert fences("```python\n\n  \n    a\n  b  \n\n```")[0].body == "    a\n  b"
    assert fences("```input\r\n1\r\n2\r\n```")[0].body == "1\n2"


def test_backticks_inside_a_sentence_open_nothing():
    text = "I use ```f(x)``` and `y` here.\n```input\n1\n```"
    assert fences(text) == [Fence("input", "1")]


def test_more_backticks_end_with_as_many():
    assert fences("````output\n5\n````\n```input\n1\n```") == [Fence("output", "5"), Fence("input", "1")]
    assert fences("````markdown\n```output\n5\n```\n````") == [Fence("output", "5")]
    assert fences("````output\n5\n```") == []
    assert fences("```output\n5\n````") == [Fence("output", "5")]


def test_the_marks_of_a_quotation_are_no_part_of_a_block():
    text = "So:\n\n> ```python\n> def f(x):\n>     return x > 1\n>\n> ```\n>\n> ```output\n> [4,\n>  5]\n> ```"
    assert fences(text) == [Fence("python", "def f(x):\n    return x > 1"), Fence("output", "[4,\n 5]")]
    assert fences("> ```output\n5\n```\n```output\n> 5\n```") == [Fence("output", "5"), Fence("output", "> 5")]


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
        ("```x y\n", "x"),
        ("a ```x y\n", None),
        ("```x+\n", ""),
        ("````\n", ""),
        ("> ```\n>\n", ""),
    ],
)
def test_long_repetitions_are_read_to_the_end(unit, label):
    """Every second fence opens a block. A quadratic scan of these 64 KiB takes minutes and meets the timeout."""
    number = MAX_COMPLETION // len(unit)
    blocks = completion_fences(unit * number)
    assert blocks == ([] if label is None else [Fence(label, "")] * (number // 2))


def test_overlong_completions_are_not_read():
    """Not even by the task type, which may be a user's."""
    task, text = make_task_types(["countdown"])["countdown"].simplest(), " " * (MAX_COMPLETION + 1)
    referee = Referee({"countdown": object()}, run=None)
    assert referee.parse(["countdown"], [text], [[task]]) == [Refusal("too_large", "the completion")]
    assert referee.judge([task], [text]) == [Verdict(False, Refusal("too_large", "the completion"))]


def test_reserved_markers_are_found():
    assert reserved_in("plain `text` < 3") is None
    for marker in RESERVED:
        assert reserved_in(f"a{marker}b") == marker


def test_signs_that_nobody_sees_are_found():
    assert unseen_in("año Δ 🙂 \u3000\u00a0\t\n漢") is None
    ranges = "fe00-fe0f e0100-e01ef 34f 115f-1160 17b4-17b5 180b-180f 3164 ffa0 200b-200f 202a-202e 2060-206f feff"
    for ends in ([int(end, 16) for end in text.split("-")] for text in f"{ranges} e0000-e007f 2800 ad".split()):
        for code in range(ends[0], ends[-1] + 1):
            assert unseen_in(f"a{chr(code)}b") == chr(code)


def test_bytes_are_counted_even_of_lone_surrogates():
    assert num_bytes("aé\ud800") == 6
