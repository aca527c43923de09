"""docs/task_types.md: its example keeps the contract, and what it says of the types is so."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from trl_populora.evaluation import exam_keys, make_exams
from trl_populora.tasks import make_task_types, task_type_class
from trl_populora.tasks.countdown import Countdown
from trl_populora.tasks.registry import BUILT_IN
from trl_populora.testing import check_task_type


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "task_types.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)\n```\n", PAGE, re.DOTALL)


@pytest.fixture
def my_types(tmp_path, monkeypatch):
    """The first block of the page as a module that other processes can import."""
    (tmp_path / "my_types.py").write_text(BLOCKS[0])
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("my_types")
    del sys.modules["my_types"]


@pytest.mark.slow
def test_the_example_is_short_and_keeps_the_contract(my_types):
    assert len(BLOCKS[0].splitlines()) <= 90
    scope = {"CountLetters": my_types.CountLetters}
    exec(BLOCKS[-1], scope)  # the page's own test
    scope["test_count_letters"]()


def test_the_example_can_be_named_in_a_recipe(my_types):
    types = make_task_types(["code_o", "my_types:CountLetters"], kwargs={"count_letters": {"max_length": 20}})
    assert list(types) == ["code_o", "count_letters"] and types["count_letters"].max_length == 20
    assert task_type_class("my_types:CountLetters") is my_types.CountLetters


def test_an_exam_of_the_example_is_kept_out_of_training(my_types, tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs" / "evaluation.md").read_text()
    (code,) = re.findall(r"<!-- tested: my_exam.py -->\n```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "my_exam.py").write_text(code)
    types = make_task_types(["my_types:CountLetters"])
    (exam,) = make_exams(["my_exam:letters"], types)
    assert len(exam.questions) == 100 and len(exam_keys(["my_exam:letters"], types)) == 100
    del sys.modules["my_exam"]


@pytest.mark.slow
def test_the_suite_finds_a_mistake_in_the_example(tmp_path, monkeypatch):
    (tmp_path / "my_mistake.py").write_text(BLOCKS[0].replace(" and len(text) <= 3", ""))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AssertionError, match="parse_answer raised ValueError"):
        check_task_type(importlib.import_module("my_mistake").CountLetters())


def test_the_table_names_every_type_of_the_package():
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert set(BUILT_IN) <= set(rows)


def test_the_page_states_the_settings_of_countdown():
    kind = Countdown()
    assert f"`min_numbers`, `max_numbers` | {kind.min_numbers}, {kind.max_numbers} |" in PAGE
    assert f"`largest_number` | {kind.largest_number} |" in PAGE
    assert f"`largest_target` | {kind.largest_target} |" in PAGE
    assert ", ".join(f"`{name}`" for name in kind.families) in " ".join(PAGE.split())
