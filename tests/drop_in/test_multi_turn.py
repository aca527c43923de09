"""Tools and environments, which call back during generation: the same run to the bit."""

import pytest
from trl import GRPOTrainer

from tests.drop_in.multi_turn import Counter, add, add_later, scripted_turn, sums, tool_tokenizer
from tests.drop_in.pairs import chats, settings


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("tool", [add, add_later], ids=["sync", "async"])
def test_tools(tool, pair, folders, monkeypatch):
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", scripted_turn(tool.__name__))
    args = dict(
        max_completion_length=256,
        max_steps=1,
        max_tool_calling_iterations=2,
        chat_template_kwargs={"enable_thinking": False},
    )
    ours, _ = pair(
        lambda: dict(
            model=folders.base,
            reward_funcs=sums,
            args=settings(**args),
            train_dataset=chats(),
            processing_class=tool_tokenizer(),
            tools=[tool],
        )
    )
    assert ours.logs[0]["tools/call_frequency"] == 1 and ours.logs[0]["tools/failure_frequency"] == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("form", ["one", "named"])
def test_environments(form, pair, folders, monkeypatch):
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", scripted_turn("add"))
    named = dict(
        environment_factory={"counter": Counter}, train_dataset=chats().add_column("environment", ["counter"] * 8)
    )
    pair(
        lambda: (
            dict(
                model=folders.base,
                args=settings(max_completion_length=256, max_steps=1, max_tool_calling_iterations=1),
                processing_class=tool_tokenizer(),
            )
            | (named if form == "named" else dict(environment_factory=Counter))
        )
    )
