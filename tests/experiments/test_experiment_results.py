"""`benchmarks/experiment_results.py`: all pairs of arms, curves, and tables that say what the JSON says."""

import json
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from scipy import stats

from tests.archives import unpack
from tests.experiments.test_questions import ANSWERS, EXAM, run  # noqa: F401 (a fixture)
from tests.experiments.test_results import finished  # noqa: F401 (a fixture)


ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "experiment_results.py"))


@pytest.fixture
def record(finished, plan):  # noqa: F811
    found, _ = finished(seeds=[0, 1, 2], arms={"one": {}, "two": {"teacher_reward": "frontier"}})
    folder = plan.folder / "out"
    (folder / "results.json").write_text(json.dumps(found))
    return SCRIPT["record_of"](folder)


def test_every_pair_of_arms_is_compared_seed_by_seed(record):
    (pair,) = record["pairs"]["solved"]
    own, values = record["pairs"]["solved"][pair], record["values"]["solved"]
    ends = stats.ttest_rel(*(list(values[arm].values()) for arm in ("two", "one"))).confidence_interval(0.95)
    assert pair == "two - one" and own["paired"]
    assert (own["difference"], own["low"], own["high"]) == pytest.approx((0.2, ends.low, ends.high), abs=1e-4)


def test_curves_are_means_of_blocks_over_seeds(record, monkeypatch):
    assert record["curves"]["solve_rate"] == {"one": [], "two": []}  # four rounds are less than a block
    points = [{n + 1: seed + n for n in range(20)} for seed in (0, 2)]
    runs = [SimpleNamespace(rounds=20, curve={"x": own}.get) for own in points]
    first, last = SCRIPT["curve"](runs, "x")
    assert first[:2] == [10, 5.5] and last[:2] == [20, 15.5]
    assert first[2] == pytest.approx(5.5 - stats.t.ppf(0.975, 1), abs=1e-3)


def test_answers_are_kept_question_by_question(run):  # noqa: F811
    measures = {"solve": {"metric": "solve_rate"}, "one": {"exam": "quiz", "of": "average"}}
    measures |= {"all": {"exam": "quiz", "of": "mean"}, "most": {"exam": "quiz", "of": "best"}}
    other = run(4, {"student_0": {"a": ["spared"], "c": ["solved"]}})
    found = SCRIPT["answers_by_question"]({"arm": [run(3, ANSWERS), other], "none": []}, measures, {"quiz": EXAM})
    assert found == {
        "quiz, average": {"arm": {"3": "1 0.5 0", "4": "- - 1"}, "none": {}},
        "quiz, mean": {"arm": {"3": "0.25 0.5 -", "4": "- - 1"}, "none": {}},
    }


def test_a_metric_without_a_value_is_left_out():
    assert SCRIPT["_interval"]({"0": 0.5, "1": None}) == [0.5, None, None]
    assert SCRIPT["_interval"]({"1": None}) is None
    values = {"one": {"0": 0.5, "1": None}, "two": {"0": 0.7, "1": 0.9}, "three": {"0": None}}
    pairs = SCRIPT["_pairs"](values, dict.fromkeys(values, []), {}, {})
    assert list(pairs) == ["two - one"] and pairs["two - one"]["difference"] == 0.2


def test_groups_of_several_exams_are_kept_apart():
    scores = {"base": {"groups": {"code_o": 0.1}}, "student_0": {"groups": {"code_o": 0.3}}}
    exams = [{"exam": name, "scores": scores, "groups": ["code_o"]} for name in ("short", "long")]
    told = {"base": [0.1], "students": [0.3]}
    groups = SCRIPT["_groups"]([type("Run", (), {"evaluation": {"exams": exams}})])
    assert groups == {"short: code_o": told, "long: code_o": told}
    assert SCRIPT["_groups"]([type("Run", (), {"evaluation": {"exams": exams[:1]}})]) == {"code_o": told}


@pytest.mark.slow
def test_kept_runs_give_the_same_results_again(finished, plan, tmp_path):  # noqa: F811
    found, _ = finished()
    folder = plan.folder / "out"
    (folder / "results.json").write_text(json.dumps(found))
    before = SCRIPT["record_of"](folder)
    probes = plan.folder / found["jobs"][0]["folder"] / "probes.jsonl"
    probes.write_text('{"step": 0, "round": 0, "exams": {}}\n')
    SCRIPT["keep_runs"](folder, tmp_path / "kept.tar.xz")
    shutil.rmtree(folder)
    unpack(tmp_path / "kept.tar.xz", folder.parent)
    assert probes.exists()
    again, _ = finished(instead={job["job"]: "raise SystemExit('it ran again')" for job in found["jobs"]})
    assert again["complete"] and again["values"] == found["values"]
    (folder / "results.json").write_text(json.dumps(found))
    assert SCRIPT["record_of"](folder) == before


def test_tables_name_what_is_missing(record):
    record["jobs"]["two/2"]["state"] = "unfinished"
    text = SCRIPT["tables"](record)
    assert "two (2 of 3 seeds)" in text and "Not finished: two/2." in text
    assert "| two - one | solved | +0.200 |" in text


def test_what_is_one_number_in_both_arms_stands_once(record):
    """With one student, the mean, the best and the weakest student are the same."""
    for key in ("values", "means", "pairs"):
        record[key] |= {"best": json.loads(json.dumps(record[key]["solved"])), "other": record[key]["solved"]}
    record["values"]["other"] = {arm: {"0": 0.5} for arm in record["arms"]}
    rows = [line for line in SCRIPT["tables"](record).splitlines() if line.startswith("| two - one | ")]
    told = [row.split(" | ")[1] for row in rows]
    assert told[0] == "solved" and "other" in told and "best" not in told


def test_an_experiment_without_a_page_is_refused(record, monkeypatch):
    assert "| measure |" in SCRIPT["filled"]("<!-- begin small -->\nold\n<!-- end small -->", record)
    monkeypatch.chdir(ROOT)
    with pytest.raises(ValueError, match="none of .*results/size.md.* has the lines .*'<!-- begin small -->'"):
        SCRIPT["page_of"]("small")


@pytest.mark.parametrize("path", sorted((ROOT / SCRIPT["RESULTS"]).glob("*.json")), ids=lambda path: path.stem)
def test_docs_say_what_the_committed_results_say(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = SCRIPT["page_of"](path.stem).read_text()
    assert SCRIPT["filled"](page, json.loads(path.read_text())) == page


@pytest.mark.slow
def test_exams_along_the_run_are_drawn_too(record, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("matplotlib.pyplot.close", drawn.append)
    record["measures"]["learning"] = {"metric": "exam/quiz/mean", "last": 20}
    record["curves"]["exam/quiz/mean"] = {"one": [[20, 0.5, 0.4, 0.6]], "two": []}
    SCRIPT["draw"](record, tmp_path / "figure.png")
    _, along, *_ = drawn[0].axes
    assert [list(line.get_ydata()) for line in along.lines] == [[0.5]] and "along" in along.get_ylabel()


@pytest.mark.slow
def test_a_figure_is_drawn_of_any_record(record, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("matplotlib.pyplot.close", drawn.append)
    record["groups"] = {"one": {"a": {"base": [0.2, 0.4], "students": [0.5, 0.7]}}}
    record["curves"]["solve_rate"]["two"] = [[10, 0.5, None, None], [20, 0.6, 0.5, 0.7]]  # equal seeds at first
    record["jobs"] |= {f"two/{seed}": {"state": "done"} for seed in range(3)}
    SCRIPT["draw"](record, tmp_path / "figure.png")
    exam, solve_rate = drawn[0].axes  # no arm has sizes of programs
    assert [list(line.get_xdata()) for line in exam.lines] == [[0.6], [pytest.approx(0.3)]]
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["one", "base"]
    assert [list(line.get_ydata()) for line in solve_rate.lines] == [[0.5, 0.6]]
    assert exam.lines[0].get_color() == "C0" and solve_rate.lines[0].get_color() == "C1"  # an arm keeps its colour
    assert solve_rate.collections[0].get_paths()[0].get_extents().bounds == pytest.approx((10, 0.5, 10, 0.2))
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize("path", sorted(Path(ROOT, SCRIPT["RESULTS"]).glob("*.json")), ids=lambda path: path.stem)
def test_committed_means_and_pairs_are_those_of_the_committed_values(path):
    kept = json.loads(path.read_text())
    for measure, values in kept["values"].items():
        assert kept["means"][measure] == {arm: SCRIPT["_interval"](own) for arm, own in values.items()}
        again = SCRIPT["_pairs"](values, dict.fromkeys(values, []), {}, {})
        told = ("difference", "low", "high")
        pairs = {pair: [own[name] for name in told] for pair, own in kept["pairs"][measure].items()}
        assert pairs == {pair: [own[name] for name in told] for pair, own in again.items()}, measure
