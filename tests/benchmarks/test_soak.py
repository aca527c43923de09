"""Two hundred rounds: memory stays flat, files stay bounded, nothing is left that the documentation does not name.

`python benchmarks/soak.py` runs five hundred; docs/performance.md has the numbers.
"""

import pytest

from benchmarks.soak import soak, trainer_growth


def test_growth_is_that_of_the_worst_fifty_rounds():
    flat = [(number, 500.0) for number in range(10, 301, 10)]
    assert trainer_growth(flat) == 1.0
    assert trainer_growth([(number, 900.0 if number < 50 else mib) for number, mib in flat]) == 1.0  # warming up
    assert trainer_growth([(number, 525.0 if number >= 150 else mib) for number, mib in flat]) == 1.05
    assert trainer_growth([(number, 550.0 if 150 <= number < 200 else mib) for number, mib in flat]) == 1.1  # undone
    assert trainer_growth([(number, 900.0 if number == 170 else mib) for number, mib in flat]) == 1.0  # one reading


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_rounds(tmp_path):
    result = soak(200, str(tmp_path / "run"))
    assert result["memory_growth"] <= 1.02, result["memory_mib"]
    assert max(result["executor_mib"]) <= 2.2 * result["executor_mib"][0], "more than a second set of fork servers"
    assert result["undeclared"] == []
    assert result["checkpoints"] == ["checkpoint-150", "checkpoint-200"]
    assert max(result["buffers"].values()) <= result["capacity"]
    assert result["newest_task_step"] > 0, "no proposal was ever valid: nothing was soaked"
    assert result["largest_file_mb"] < 30
