"""Messages that are held back: they are still those of the libraries, and no others are lost."""

import importlib.util
import logging
import re
import warnings
from pathlib import Path

import pytest

from trl_populora.quiet import MESSAGES, WARNINGS, filter_messages


def source(module: str) -> str:
    """The text of a module, with literals that go over several lines in one piece."""
    text = Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8")
    return re.sub(r'"\s*\n\s*f?"', "", text)


@pytest.mark.parametrize("name, beginning", MESSAGES.items())
def test_a_message_is_one_of_its_library(name, beginning):
    assert beginning in source(name)


def test_a_message_is_held_back_and_others_of_its_logger_are_not(caplog):
    filter_messages()
    filter_messages()
    for name, beginning in MESSAGES.items():
        logger = logging.getLogger(name)
        assert len(logger.filters) == 1
        logger.addHandler(caplog.handler)  # those of transformers do not reach the root
        try:
            logger.warning(beginning + " and more")
            logger.warning("[RANK 0] " + beginning)
            logger.warning("another of %s", name)
        finally:
            logger.removeHandler(caplog.handler)
    assert {record.getMessage() for record in caplog.records} == {f"another of {name}" for name in MESSAGES}


def test_a_warning_is_held_back_and_others_are_not():
    assert "You are using 'rollout_func', which is an experimental feature" in source("trl.trainer.grpo_trainer")
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        filter_messages()
        for text, category in (
            ("You are using 'rollout_func', which is an experimental feature. This API", UserWarning),
            ("`a` is deprecated and will be removed in v6. Use `b`", FutureWarning),
            ("You are using 'environment_factory', which is an experimental feature.", UserWarning),
        ):
            warnings.warn(text, category, stacklevel=2)
        escape = "invalid escape sequence '\\ '"
        warnings.warn_explicit(escape, SyntaxWarning, "/lib/trueskill/__init__.py", 307)
        warnings.warn_explicit(escape, SyntaxWarning, "/home/me/rewards.py", 1)
    assert len(WARNINGS) == 3
    assert [str(one.message)[:22] for one in shown] == ["You are using 'environ", "invalid escape sequenc"]
