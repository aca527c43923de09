"""What `benchmarks/weak_statements.py` counts: valid tasks of teachers, by rounds, of finished runs."""

import json
import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest


SCRIPT = Path(__file__).parents[2] / "benchmarks" / "weak_statements.py"
WEAK = "def f(x):\n    x = x[1:] + [4]\n    x = x[-3:]\n    return x"
KNOWN = "def f(x):\n    x = x[::-1]\n    return x"


def write(run: Path, *rounds: list[tuple[str, bool, str]], finished: bool = True) -> None:
    (run / "rounds").mkdir(parents=True)
    for number, rows in enumerate(rounds):
        table = [
            {"role": role, "valid": valid, "payload": json.dumps({"program": program})}
            for role, valid, program in rows
        ]
        pd.DataFrame(table).to_parquet(run / "rounds" / f"round_{number:06d}.parquet")
    if finished:
        (run / "evaluation").mkdir()
        (run / "evaluation" / "evaluation.json").write_text("{}")


def count(folder: Path, monkeypatch, *options: str) -> dict:
    monkeypatch.setattr(sys, "argv", ["weak", str(folder), "--json", str(folder / "out.json"), *options])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    return json.loads((folder / "out.json").read_text())["arms"]


def test_shares_and_kinds(tmp_path, monkeypatch):
    task = ("teacher", True, WEAK)
    write(
        tmp_path / "a" / "seed_0", [task, ("teacher", True, KNOWN), ("teacher", False, WEAK), ("student", True, WEAK)]
    )
    write(tmp_path / "a" / "seed_1", [task, task], [("teacher", False, WEAK)])
    write(tmp_path / "a" / "seed_2", [("teacher", True, KNOWN)], finished=False)
    assert count(tmp_path, monkeypatch) == {"a": {"runs": 2, "blocks": [{"share": 0.75, "per_round": 2.0}]}}


def test_a_run_by_itself_need_not_be_finished(tmp_path, monkeypatch):
    write(tmp_path / "run", [("teacher", True, KNOWN)], finished=False)
    assert count(tmp_path / "run", monkeypatch)["run"]["blocks"] == [{"share": 0.0, "per_round": 0.0}]


def test_earlier_runs_count_as_many_times_as_there_are(tmp_path, monkeypatch):
    earlier = {"a": {"runs": 3, "blocks": [{"share": 0.2, "per_round": 3.0}]}, "b": {"runs": 1, "blocks": []}}
    (tmp_path / "earlier.json").write_text(json.dumps({"block": 20, "arms": earlier}))
    write(tmp_path / "a" / "seed_4", [("teacher", True, WEAK)])
    found = count(tmp_path, monkeypatch, "--join", str(tmp_path / "earlier.json"))
    assert found == {"a": {"runs": 4, "blocks": [{"share": 0.4, "per_round": 2.75}]}, "b": earlier["b"]}


def test_a_folder_without_runs_is_refused(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="holds no run"):
        count(tmp_path, monkeypatch)
