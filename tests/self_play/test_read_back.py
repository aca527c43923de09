"""Tokenizers that change texts: a task that members would read otherwise than it ran is refused."""

from functools import partial

import pytest
from tokenizers import pre_tokenizers
from transformers import Qwen2Tokenizer

from tests.code_tasks import code_task, code_types
from tests.self_play.script import scripted, self_play
from trl_populora.self_play import TokenLimits
from trl_populora.tasks import make_task_types, read_back
from trl_populora.tasks.registry import BUILT_IN


VOCABULARY = {token: i for i, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|endoftext|>"])}


def qwen():
    """Normalises to NFC, as all Qwen models do, and has a special token that no list of ours knows."""
    tokenizer = Qwen2Tokenizer(vocab=VOCABULARY, merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<file_sep>"]})
    return tokenizer


def limits(tokenizer) -> TokenLimits:
    return TokenLimits(lambda text: 1, prompt=9, answer=9, read=partial(read_back, tokenizer))


def task_of(program: str, text: str, output: str = "1"):
    return code_task("code_o", program, inputs=(f"'{text}'",), outputs=(output,))


SAME = "def f(s):\n    return s"
CHANGED = {
    "Kelvin": (SAME, "\u212a", "1", r"\u212a"),
    "in the answer": ("def f(s):\n    return chr(8490)", "a", "'\u212a'", r"\u212a"),
    "decomposed": (SAME, "cafe\u0301", "1", r"e\u0301"),
    "a fence": ("def f(s):\n    t = '\u1fef\u1fef\u1fef'\n    return s", "a", "1", r"\u1fef\u1fef\u1fef"),
    "a special token": (SAME, "a<file_sep>b", "1", "<file_sep>b"),
}


@pytest.mark.parametrize(("program", "text", "output", "place"), CHANGED.values(), ids=CHANGED)
def test_texts_that_the_tokenizer_changes_are_refused(program, text, output, place):
    refusal = limits(qwen()).refuse(code_types("compact")["code_o"], task_of(program, text, output))
    assert refusal.reason == "reserved_text"
    assert refusal.detail[:20] == "the tokenizer turns " and refusal.detail[21:].startswith(place)


@pytest.mark.parametrize("text", ["K", "caf\u00e9", "\u65e5\u672c", "\U0001f600", "a\u00a0b"])
def test_other_texts_are_kept(text):
    assert limits(qwen()).refuse(code_types("full")["code_o"], task_of(SAME, text)) is None


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("style", ["full", "compact"])
def test_seed_tasks_are_kept(name, style):
    kind = make_task_types([name], style=style)[name]
    limit = limits(qwen())
    assert [task for task in [kind.simplest(), *kind.seeds(30)] if limit.changed(kind, task)] == []


def test_such_a_proposal_does_not_become_a_task(executor):
    game = self_play(executor, types=("code_o",))
    game.lengths = limits(qwen())
    script = scripted(game, valid=1.0)

    def sample(prompts, members, *, seed):
        drawn = script(prompts, members, seed=seed)
        if len(script.calls) == 1:  # the proposals
            text = "```python\ndef f(s):\n    return ord(s)\n```\n```input\n'\u212a'\n```"
            drawn[0] = drawn[0]._replace(text=text)
        return drawn

    record = game.play(sample, round=0, step=0).record
    assert record.proposals[0].refusal.reason == "reserved_text" and record.proposals[0].reward == -1.0
    assert any(one.valid for one in record.proposals)
