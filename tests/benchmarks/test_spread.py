"""`benchmarks/spread.py`: standard deviations over seeds."""

import json
import sys

import numpy as np
import pytest
from scipy import stats

from benchmarks import spread


def results(path, **arms):
    path.write_text(json.dumps({"values": {"score": arms}}))
    return str(path)


def called(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["spread.py", *options, "--measure", "score"])
    spread.main()


def test_what_differs_between_files_is_no_spread(tmp_path, monkeypatch, capsys):
    first = results(tmp_path / "a.json", wide={"0": 0.1, "1": 0.5, "4": 0.9}, narrow={"0": 0.3, "1": 0.4})
    second = results(tmp_path / "b.json", wide={"2": 2.9}, narrow={"2": 7.3, "3": 7.4}, alone={"2": 0.5})
    called(monkeypatch, first, second, "--json", str(tmp_path / "out.json"))
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["standard_deviation"]["wide"] == {"runs": 3, "value": 0.4}
    assert found["standard_deviation"]["narrow"] == {"runs": 4, "value": round(0.005**0.5, 4)}
    assert "alone" not in found["standard_deviation"]  # one run has none
    ratio = found["ratio"]["wide / narrow"]
    assert ratio["value"] == pytest.approx(0.4 / 0.005**0.5, abs=1e-3)
    assert ratio["low"] == pytest.approx(ratio["value"] / stats.f(2, 2).ppf(0.975) ** 0.5, abs=1e-3)
    assert json.loads(capsys.readouterr().out) == {key: found[key] for key in ("standard_deviation", "ratio")}


@pytest.mark.slow
def test_interval_holds_as_often_as_it_says():
    rng, held = np.random.default_rng(0), 0
    for _ in range(1000):
        found = spread.spread({"one": [list(rng.normal(0, 2, 5))], "other": [list(rng.normal(0, 1, 5))]})
        held += (one := found["ratio"]["one / other"])["low"] <= 2 <= one["high"]
    assert 930 <= held <= 970  # 950, three standard errors


@pytest.mark.parametrize("problem", ["twice", "unknown"])
def test_bad_input_is_named(problem, tmp_path, monkeypatch, capsys):
    first = results(tmp_path / "a.json", arm={"0": 0.1, "1": 0.5})
    second = results(tmp_path / "b.json", arm={"1": 0.9})
    if problem == "unknown":
        (tmp_path / "b.json").write_text(json.dumps({"values": {"other": {}}}))
    with pytest.raises(SystemExit):
        called(monkeypatch, first, second)
    wanted = (
        "seeds 1 of arm are in an earlier file" if problem == "twice" else "no measure 'score': choose one of other"
    )
    assert wanted in capsys.readouterr().err
