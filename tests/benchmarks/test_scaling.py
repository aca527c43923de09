"""`benchmarks/scaling.py`: the tables of docs/scaling.md are what it prints."""

import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_every_counted_row_stands_in_the_page():
    done = subprocess.run(
        [sys.executable, "scaling.py"], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ") and "resident" not in line]
    page = set((ROOT / "docs" / "scaling.md").read_text(encoding="utf-8").splitlines())
    assert len(rows) > 50 and not [row for row in rows if row not in page]
