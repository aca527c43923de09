import json
import sys
from pathlib import Path

import pytest

from benchmarks import by_member
from tests.archives import unpack


RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
SEEDS = tuple(f"stops_rates/{arm}/seed_{seed}/" for arm in ("none", "clone") for seed in (0, 1))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Four runs of the committed archive."""
    folder = tmp_path_factory.mktemp("unpacked")
    unpack(RESULTS / "experiments" / "stops_rates.tar.xz", folder, *SEEDS)
    return folder / "stops_rates"


@pytest.mark.slow
def test_the_committed_numbers_come_from_the_archive(runs, tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    argv = ["by_member.py", str(runs), "--exam", "chains", "--without", "none/student_3", "--json", str(out)]
    monkeypatch.setattr(sys, "argv", argv)
    by_member.main()
    got = json.loads(out.read_text())
    wanted = json.loads((RESULTS / "stops_rates_by_member.json").read_text())["students"]
    for arm in ("none", "clone"):
        for seed in ("0", "1"):
            assert got["students"][arm][seed] == wanted[arm][seed]
    broken = [got["students"]["none"][seed]["student_3"] for seed in ("0", "1")]
    assert [one["score"] for one in broken] == [0, 0] and [one["first_replaced"] for one in broken] == [None, None]
    others = [one["score"] for seed in got["students"]["none"].values() for who, one in seed.items() if who[-1] != "3"]
    assert got["means"]["none"][0] == pytest.approx(sum(others) / 6)


@pytest.mark.slow
@pytest.mark.parametrize("without", ["nobody/student_3", "none/student_9"])
def test_a_student_that_is_not_there(runs, without, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["by_member.py", str(runs), "--exam", "chains", "--without", without])
    with pytest.raises(SystemExit):
        by_member.main()
    assert f"--without {without}: choose an arm of ['clone', 'none']" in capsys.readouterr().err
