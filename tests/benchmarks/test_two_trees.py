"""`benchmarks/two_trees.py` on checkouts whose training does next to nothing."""

import json
import os
import runpy
from pathlib import Path

import pytest


MAIN = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "two_trees.py"))["main"]
TRAIN = """
import json, os, sys
if {meet!r}:  # opens only when the other side is open: both runs must be alive
    open(os.environ["MEETING"], {meet!r}).close()
with open(os.environ["CORES"] + "/{name}", "a") as file:
    print(sorted(os.sched_getaffinity(0)), file=file)
with open(sys.argv[sys.argv.index("--output_dir") + 1] + "/history.jsonl", "w") as file:
    for seconds in {seconds}:
        print(json.dumps({{"seconds": {{"solve": seconds, "learn": 1}}}}), file=file)
"""


def checkouts(folder: Path, monkeypatch, *, meet: bool) -> list[str]:
    monkeypatch.setenv("CORES", str(folder))
    monkeypatch.setenv("MEETING", str(folder / "meeting"))
    os.mkfifo(folder / "meeting")
    trees = []
    for name, mode, seconds in (("before", "w", (1, 3, 8)), ("after", "r", (1, 5, 5))):
        package = folder / f"tree_{name}" / "trl_populora"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "train.py").write_text(TRAIN.format(name=name, meet=mode if meet else "", seconds=seconds))
        trees.append(str(package.parent))
    return trees


def cores(folder: Path, name: str) -> list[list[int]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_together_on_a_core_each_and_swapped(tmp_path, monkeypatch, capsys):
    allowed = sorted(os.sched_getaffinity(0))
    MAIN([*checkouts(tmp_path, monkeypatch, meet=True), "--turns", "2", "--together"])
    first, second = [allowed[0]], [allowed[1]]
    assert (cores(tmp_path, "before"), cores(tmp_path, "after")) == ([first, second], [second, first])
    assert sorted(os.sched_getaffinity(0)) == allowed
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["ratio"]["round"] == [1.5, 1.5, 1.5]  # medians of 2, 4, 9 and of 2, 6, 6


def test_in_turn_on_any_core(tmp_path, monkeypatch, capsys):
    MAIN([*checkouts(tmp_path, monkeypatch, meet=False), "--turns", "2"])
    allowed = sorted(os.sched_getaffinity(0))
    assert cores(tmp_path, "before") == cores(tmp_path, "after") == [allowed, allowed]
    assert "'before': {'cpu'" in capsys.readouterr().out


def test_a_failed_run_says_why(tmp_path, monkeypatch):
    before, after = checkouts(tmp_path, monkeypatch, meet=False)
    (Path(after) / "trl_populora" / "train.py").write_text("raise ValueError('no such recipe')")
    with pytest.raises(RuntimeError, match="(?s)tree_after failed.*no such recipe"):
        MAIN([before, after, "--turns", "2"])


@pytest.mark.parametrize("turns", ["0", "3"])
def test_turns_must_be_even(turns, capsys):
    with pytest.raises(SystemExit):
        MAIN([".", ".", "--turns", turns])
    assert f"--turns {turns} must be even" in capsys.readouterr().err
