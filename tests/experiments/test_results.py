"""`results.json`: every run is in it, and its differences are those of scipy. Its page and table show the same."""

import io
import json
import re

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy import stats

from trl_populora.experiments.jobs import run_jobs
from trl_populora.experiments.registration import register
from trl_populora.experiments.results import results
from trl_populora.recipe import read_mapping
from trl_populora.reporting.experiment_page import experiment_page
from trl_populora.reporting.experiment_view import ExperimentView, results_remarks, results_table
from trl_populora.reporting.over_seeds import over_questions


ROUNDS = {"one": 4, "two": None}
EXAMS = {"held_out_easy[:2]": "held_out_easy[:2]"}


@pytest.fixture
def finished(plan, view, stub):
    """Runs an experiment of stubs, and gives its results."""

    def make(instead=None, **changes):
        experiment = plan.read(**changes)
        registered = register(experiment, read_mapping(experiment.recipe), str(plan.file), EXAMS)
        problems = run_jobs(experiment.all_jobs, experiment.asked(EXAMS), stub(**(instead or {})), view, slots=2)
        return results(experiment, registered, problems, ROUNDS)

    return make


def test_values_and_differences(finished):
    record, comparison = finished(seeds=[0, 1, 2])
    assert record["complete"] and {job["state"] for job in record["jobs"]} == {"done"}
    assert record["values"]["exam"] == {
        "one": {"0": 0.25, "1": 0.25, "2": 0.25},
        "two": {"0": 0.5, "1": 0.75, "2": 1.0},
    }
    one, two = (np.array([record["values"]["solved"][arm][str(seed)] for seed in range(3)]) for arm in ("one", "two"))
    assert one == pytest.approx([0.5, 0.51, 0.52]) and two == pytest.approx([0.6, 0.71, 0.82])
    solved, exam = record["differences"]
    ends = stats.ttest_rel(two, one).confidence_interval(0.95)
    assert (solved["measure"], solved["arm"], solved["control"], solved["paired"]) == ("solved", "two", "one", True)
    assert (solved["difference"], solved["low"], solved["high"]) == pytest.approx((0.2, ends.low, ends.high))
    assert solved["effect"] == pytest.approx(0.5642 * 0.2 / 0.1, rel=1e-3)  # J of 2 degrees of freedom: 0.5642
    assert exam["difference"] == pytest.approx(0.5) and record["comparisons"] == 2
    assert not solved["clear"] and solved["p"] < 0.1
    assert comparison.arms[0].name == "one"


def test_a_run_without_its_record_keeps_its_seed(finished, plan):
    whole, _ = finished(seeds=[0, 1, 2])
    (plan.folder / "out/two/seed_2/run.json").unlink(missing_ok=True)
    again, _ = finished(seeds=[0, 1, 2])
    assert again["values"] == whole["values"] and again["differences"] == whole["differences"]


def test_what_was_registered_and_what_it_cost_are_in_it(finished, plan):
    record, _ = finished()
    registered = json.loads((plan.folder / "out/experiment.json").read_text())
    assert record["hypotheses"] == ["The second is."] and record["arms"]["two"] == {"teacher_reward": "frontier"}
    assert {name: record["registered"][name] for name in ("registered", "sha256", "git")} == {
        name: registered[name] for name in ("registered", "sha256", "git")
    }
    cost = record["compute"]["one"]
    assert (cost["runs"], cost["adapters"], cost["rows"], cost["rows_per_adapter"]) == (2, 3, 192, 64)


def test_failed_and_missing_runs_are_listed(finished, plan, view):
    record, _ = finished(instead={"two/1": "raise SystemExit('broken')"})
    (job,) = [job for job in record["jobs"] if job["state"] != "done"]
    assert (job["job"], job["state"], record["complete"]) == ("two/1", "failed", False)
    assert "broken" in job["why"] and record["values"]["solved"]["two"].keys() == {"0"}
    assert all(one["low"] is None and "one seed" in one["why"] for one in record["differences"])
    experiment = plan.read(seeds=[0, 1, 5])
    registered = register(experiment, read_mapping(experiment.recipe), str(plan.file), EXAMS)
    states = {job["job"]: job["state"] for job in results(experiment, registered, {}, ROUNDS)[0]["jobs"]}
    assert (states["one/5"], states["two/5"], states["two/1"]) == ("missing", "missing", "unfinished")
    (again,) = [job for job in results(experiment, registered, {}, ROUNDS)[0]["jobs"] if job["job"] == "two/1"]
    assert "training is next; its log ends with: broken" in again["why"]


def test_scores_that_replaced_those_of_the_experiment_are_not_its_results(finished, plan):
    """`populora evaluate` writes where the exams of the experiment were."""
    place = plan.folder / "out/one/seed_1/evaluation/evaluation.json"
    taken = json.loads(place.read_text()) if finished()[0]["complete"] else {}
    exam = taken["exams"][0]
    other = exam | {"decoding": {"samples": 3, "temperature": 1.0}}
    for replaced, why in (
        (other, "was last taken with samples=3 and temperature=1.0 instead of 1 and 0.0"),
        (exam | {"scores": {"base": {"accuracy": 0.5}}}, "was last taken without student_0"),
        (exam | {"exam": "gsm8k"}, "was not taken"),
    ):
        place.write_text(json.dumps({"exams": [replaced]}))
        experiment = plan.read()
        registered = register(experiment, read_mapping(experiment.recipe), str(plan.file), EXAMS)
        record, _ = results(experiment, registered, {}, ROUNDS)
        (job,) = [job for job in record["jobs"] if job["state"] != "done"]
        assert (job["job"], job["state"]) == ("one/1", "unfinished")
        assert f"exams is next (held_out_easy[:2] {why})" in job["why"]
        assert list(record["values"]["exam"]["one"]) == ["0"]
    assert finished()[0]["complete"]  # the exams are taken again


def test_a_record_that_lost_rounds_is_told(finished, plan):
    finished()
    history = plan.folder / "out/one/seed_0/history.jsonl"
    history.write_text("".join(history.read_text().splitlines(keepends=True)[:3]))
    record, _ = finished()
    assert "One/0: only 3 of 4 rounds are recorded; its numbers are of these." in results_remarks(record)


def test_a_difference_without_an_interval_over_seeds_may_be_clear_over_questions():
    """As where all seeds have the same difference."""
    reach = {"low": 0.2, "high": 0.8, "p": 0.007}
    one = {"measure": "exam", "arm": "two", "difference": 0.5, "low": None, "high": None, "p": None, "effect": None}
    one |= {"with_questions": reach, "clear": True, "why": ""}
    record = {"measure": "exam", "arm": "two", "seeds": [0, 1], "control": "one", "differences": [one]}
    record |= {"values": {"exam": {"one": {"0": 0.0, "1": 0.0}, "two": {"0": 0.5, "1": 0.5}}}}
    *_, clear = results_table(record).columns
    assert list(clear.cells) == ["-", "yes"]


def test_lost_answers_are_told(finished, plan):
    told = "Final exam held_out_easy[:2]: no answers that can be read in "
    record, _ = finished()
    assert [line for line in record["circumstances"] if line.startswith(told)]  # stubs leave none
    for job in plan.read().all_jobs:
        rows = [{"exam": "held_out_easy[:2]", "player": "student_0", "question": "a", "verdict": "solved"}]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), f"{job.folder}/evaluation/answers.parquet")
    record, _ = finished()
    assert not [line for line in record["circumstances"] if line.startswith(told)]
    torn = plan.folder / "out/two/seed_0/evaluation/answers.parquet"
    torn.write_bytes(torn.read_bytes()[:-9])
    record, _ = finished()
    (line,) = [line for line in record["circumstances"] if line.startswith(told)]
    assert line.startswith(f"{told}{torn.parents[1]}; differences there have no interval over questions")


def test_both_intervals_are_of_the_runs_with_a_score(finished, plan):
    """The weights of one run are not those that were evaluated, so that its score is left out."""
    finished(seeds=[0, 1, 2])
    for job in plan.read(seeds=[0, 1, 2]).all_jobs:
        right = {"a": job.arm == "two", "b": job.arm == "two" and job.seed > 0, "c": False}
        row = {"exam": "held_out_easy[:2]", "player": "student_0"}
        rows = [row | {"question": name, "verdict": "solved" if own else "wrong"} for name, own in right.items()]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), f"{job.folder}/evaluation/answers.parquet")
    other = plan.folder / "out/two/seed_2"
    scores = json.loads((other / "evaluation/evaluation.json").read_text())
    (other / "evaluation/evaluation.json").write_text(json.dumps(scores | {"weights": {"student_0": "others"}}))
    (other / "student_0").mkdir()
    (other / "student_0/adapter_model.safetensors").write_bytes(b"weights")
    record, _ = finished(seeds=[0, 1, 2])
    exam = record["differences"][1]
    assert record["values"]["exam"]["two"]["2"] is None and exam["seeds"] == exam["control_seeds"] == 2
    reach = over_questions(np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]))
    assert reach and exam["with_questions"] == pytest.approx(reach._asdict())


@pytest.mark.parametrize("content", ["{}", '{"exams": 5}', '{"exams": [{"exam": "held_out_easy[:2]"}]}', "["])
def test_a_damaged_evaluation_costs_one_run(finished, plan, content):
    before, _ = finished()
    (plan.folder / "out" / "one" / "seed_1" / "evaluation" / "evaluation.json").write_text(content)
    record, _ = finished()
    states = {job["job"]: job["state"] for job in record["jobs"]}
    assert states == {"one/0": "done", "one/1": "failed", "two/0": "done", "two/1": "done"} and not record["complete"]
    (why,) = [job["why"] for job in record["jobs"] if job["job"] == "one/1"]
    assert re.search(r"evaluation.json is damaged \(.*\). Restore the file.", why)
    assert record["values"]["exam"]["one"] == {"0": before["values"]["exam"]["one"]["0"]}
    assert record["values"]["exam"]["two"] == before["values"]["exam"]["two"]


def test_without_the_control_nothing_is_compared(finished):
    broken = "raise SystemExit(1)"
    record, comparison = finished(instead={"one/0": broken, "one/1": broken})
    assert comparison is None and record["differences"] == [] and record["values"]["exam"]["two"]["0"] == 0.5
    assert "Hypothesis 1: The second is." in experiment_page(record, comparison)


def test_the_table_says_what_the_record_says(finished):
    record, _ = finished(instead={"two/1": "raise SystemExit('broken')"})
    with ExperimentView({}, file=(told := io.StringIO())) as view:
        view.tables(record)
    text = told.getvalue()
    assert "two/1: failed: training ended with exit code 1; its log ends with: broken" in text
    assert "An arm has one seed, 0: the difference is that of this seed (solved of two, exam of two)." in " ".join(
        text.split()
    )
    row = next(line.split() for line in text.splitlines() if line.startswith("exam") and "two" in line)
    assert row == ["exam", "two", "1", "of", "2", "0.5", "+0.25", "-", "-", "-"]


def test_long_names_and_numbers_of_the_table_are_not_cut(finished):
    record, _ = finished(arms={"one": {}, "two_" * 30: {}})
    with ExperimentView({}, file=(told := io.StringIO())) as view:
        view.tables(record)
    assert "…" not in told.getvalue()


def test_names_of_measures_are_no_markup(finished, plan):
    plan.given["measures"]["of [bold] [/red] :fire:"] = plan.given["measures"]["solved"]
    record, _ = finished()
    with ExperimentView({}, file=(told := io.StringIO())) as view:
        view.tables(record)
    assert "of [bold] [/red] :fire:" in told.getvalue()


def test_progress_tells_the_time_left():
    clock = iter(range(0, 10_000, 100)).__next__
    view = ExperimentView({"a/0": 10, "b/0": 10}, file=(told := io.StringIO()), clock=clock)
    view.progress({"a/0": 5, "b/0": 0}, ["a/0"])  # 5 rounds of an earlier call
    view.progress({"a/0": 10, "b/0": 0}, ["b/0"])  # 5 rounds in 200 s
    assert told.getvalue().splitlines() == [
        "5 of 20 rounds; running a/0 (5/10)",
        "10 of 20 rounds; running b/0 (0/10); about 6:40 left, without exams",
    ]


def test_intervals_of_exams_along_the_run_are_cut(finished):
    record, comparison = finished()
    record["measures"]["solved"] = {"metric": "exam/held_out/mean"}
    record["means"]["solved"]["two"] = {"mean": 0.9375, "low": -0.1, "high": 1.2}
    assert "0.9375 [0, 1]" in experiment_page(record, comparison)


def test_the_page_says_what_is_missing(finished):
    html = experiment_page(*finished(instead={"two/1": "raise SystemExit('broken')"}))
    for expected in ("Which is better?", "Hypothesis 1: The second is.", "two/1 is failed", "One seed only: two"):
        assert expected in html
