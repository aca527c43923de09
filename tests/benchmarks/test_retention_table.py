import json
import sys
from pathlib import Path

import pytest

from benchmarks import retention_table


ROOT = Path(__file__).resolve().parents[2]


def curve(operator, seed, *differences):
    clone = [0.5, 0.75]
    return {
        "operator": operator,
        "seed": seed,
        "parent_pass_at_1": 0.5,
        "rounds": [0, 20],
        "pass_at_1": [one + own for one, own in zip(clone, differences, strict=True)],
        "difference": list(differences),
        "standard_error": [0.01, 0.01],
        "spared": [0, 0],
        "steps_to_recover": None,
    }


def call(monkeypatch, *argv):
    monkeypatch.setattr(sys, "argv", ["retention_table.py", *map(str, argv)])
    retention_table.main()


def test_seeds_of_several_files_make_one_table(tmp_path, monkeypatch, capsys):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps([curve("clone", 3, 0.0, 0.0), curve("dare", 3, -0.25, 0.0)]))
    second.write_text(json.dumps([curve("clone", 1, 0.0, 0.0), curve("dare", 1, -0.25, -0.125)]))
    call(monkeypatch, first, second, "--json", tmp_path / "all.json", "--picture", tmp_path / "all.png")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Seeds 1, 3: first parents 50.0 %, clones 50.0 % at birth and 75.0 % after 20 rounds."
    # at birth both seeds have the same difference, so there is no interval; t of one degree of freedom is 12.706
    assert lines[-1] == "| `dare` | -25.0 | -6.2 (-85.7 to 73.2) | never, 20 |"
    assert [one["seed"] for one in json.loads((tmp_path / "all.json").read_text())] == [1, 1, 3, 3]
    assert (tmp_path / "all.png").stat().st_size > 1_000


def test_the_same_seed_in_two_files_is_refused(tmp_path, monkeypatch, capsys):
    file = tmp_path / "one.json"
    file.write_text(json.dumps([curve("clone", 3, 0.0, 0.0)]))
    with pytest.raises(SystemExit):
        call(monkeypatch, file, file)
    assert "seeds [3] are in more than one file" in capsys.readouterr().err


def test_the_committed_table_is_that_of_the_committed_curves(monkeypatch, capsys):
    call(monkeypatch, ROOT / "benchmarks" / "results" / "retention_chains.json")
    page = (ROOT / "docs" / "evolution.md").read_text(encoding="utf-8")
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    assert rows and all(row in page for row in rows)
