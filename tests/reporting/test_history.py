"""The rounds of a run, read back from its history."""

import json
from dataclasses import replace

import pytest

from trl_populora.reporting import read_history
from trl_populora.reporting.history import changes


def test_history_comes_back_in_order_and_without_a_torn_line(run, rounds):
    assert read_history(run) == rounds
    path = run / "history.jsonl"
    lines = path.read_text().splitlines()
    again = json.loads(lines[2]) | {"matches": 77}  # a resumed run played round 2 once more
    path.write_text("\n".join([*lines, json.dumps(again), lines[5][:40]]))
    history = read_history(run)
    assert [summary.round for summary in history] == [0, 1, 2, 3, 4, 5]
    assert history[2].matches == 77


def test_damaged_or_missing_history_is_refused(run, tmp_path_factory):
    path = run / "history.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{}", lines[1]]))
    with pytest.raises(ValueError, match=r"history\.jsonl, line 2, cannot be read"):
        read_history(run)
    with pytest.raises(ValueError, match=r"has no history\.jsonl"):
        read_history(tmp_path_factory.mktemp("empty"))


def test_changes_of_a_run_in_words(rounds):
    plain = [replace(one, events=(), recombined=()) for one in rounds[:3]]
    assert changes(plain) == "0 replacements"
    mixed = [plain[0], replace(plain[1], recombined=("student_0", "student_1")), plain[2]]
    assert changes(mixed) == "0 replacements and 1 recombination"
