"""The list of runs: a damaged run is told, and hides no other."""

import pytest

from trl_populora.run_files.listing import DAMAGED, find_runs


ROUND = '{"round": 0, "seconds": {}, "members": []}\n'


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("run.json", b"[]", "run.json is damaged (it holds a list, not a mapping)"),
        ("run.json", b'{"settings": []}', "run.json is damaged (settings is [] and not a mapping)"),
        ("run.json", b"[" * 100_000, "run.json is damaged (RecursionError"),
        ("history.jsonl", b'{"round": 0, "seconds": [], "members": 1}\n', "a file holds what no run writes"),
        ("history.jsonl", b'{"round": "' + b"\xff" * 9000 + b'"}\n', "it is not UTF-8: invalid start byte). Restore"),
        ("history.jsonl", b"\0" * 100, "history.jsonl is damaged (it holds no JSON lines)"),
        ("history.jsonl", ROUND.replace("{", '{"solve_rate": [], ', 1).encode(), "damaged (solve_rate is [])"),
        ("history.jsonl", b"[]\n", "history.jsonl, line 1, cannot be read"),
        ("probes.jsonl", b"{}\n", "probes.jsonl, line 1, cannot be read"),
    ],
)
def test_a_damaged_run_hides_no_other(tmp_path, name, content, words):
    for folder in ("bad", "good"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.json").write_text("{}")
        (tmp_path / folder / "history.jsonl").write_text(ROUND)
    (tmp_path / "bad" / name).write_bytes(content)
    bad, good = find_runs(str(tmp_path))
    assert bad.state == DAMAGED and words in bad.problem
    assert good.state != DAMAGED and good.rounds == 1


def test_a_run_without_iterations_is_listed(tmp_path):
    (tmp_path / "run.json").write_text('{"settings": {"max_steps": 4, "num_iterations": 0}}')
    (tmp_path / "history.jsonl").write_text(ROUND)
    assert find_runs(str(tmp_path))[0].of == 4
