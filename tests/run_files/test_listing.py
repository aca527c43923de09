"""The list of runs: a damaged run is told, and hides no other."""

import json
import os

import pytest

from trl_populora.run_files import listing
from trl_populora.run_files.checkpoint import FORMAT_VERSION, find_defect
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
        ("population.json", b'{"format": 6, "memb', "population.json is damaged"),
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


def test_files_that_are_links_to_nothing_hide_no_other_run(tmp_path):
    """As DVC and git-annex leave them for files that are not fetched."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "history.jsonl").symlink_to(tmp_path / "gone")
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "history.jsonl").write_text(ROUND)
    bad, good = find_runs(str(tmp_path))
    assert bad.state == DAMAGED and "links to nothing" in bad.problem and good.rounds == 1


def test_a_checkpoint_that_goes_away_while_it_is_looked_at_hides_no_run(tmp_path, monkeypatch):
    """As by `save_total_limit` of a run that is going on."""
    for folder in ("going", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.json").write_text("{}")
        (tmp_path / folder / "history.jsonl").write_text(ROUND)
    place = tmp_path / "going" / "checkpoint-2"
    place.mkdir()
    (place / "file").write_text("x")
    manifest = {"format": FORMAT_VERSION, "files": {"file": [1, 0]}}
    (place / "manifest.json").write_text(json.dumps(manifest))
    real = os.path.getsize

    def gone(path):
        if str(path).endswith("checkpoint-2/file"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(os.path, "getsize", gone)
        assert find_defect(str(place)) == "file cannot be read (No such file or directory)"
    monkeypatch.setattr(
        listing, "read_lines", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    assert [run.problem for run in find_runs(str(tmp_path))] == ["[Errno 13] Permission denied"] * 2


def test_the_best_probe_is_by_the_exam_that_the_run_has_now(tmp_path):
    (tmp_path / "history.jsonl").write_text(ROUND)
    probes = [("easy", 0.9), ("hard", 0.2), ("hard", 0.3), ("hard", 0.1), ("hard", None)]
    records = ({"step": step, "exams": {name: {"mean": mean}}} for step, (name, mean) in enumerate(probes))
    (tmp_path / "probes.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert find_runs(str(tmp_path))[0].probe == ("hard", 0.3, 2)


def test_a_run_without_iterations_is_listed(tmp_path):
    (tmp_path / "run.json").write_text('{"settings": {"max_steps": 4, "num_iterations": 0}}')
    (tmp_path / "history.jsonl").write_text(ROUND)
    assert find_runs(str(tmp_path))[0].of == 4
