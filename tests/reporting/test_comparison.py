"""Which runs are seeds of one arm, what stands for a run, and what arms have cost."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tests.reporting.conftest import make_round
from trl_populora.reporting import comparison_page
from trl_populora.reporting.comparison import Arm, Comparison, group_arms, tail_mean
from trl_populora.reporting.played_run import PlayedRun, flat, read_run
from trl_populora.reporting.tables import compute_table
from trl_populora.run_files.files import write_json, write_lines


def made(seed: int, *, rounds: int = 6, folder: str = "", rate=lambda number: 0.5, record=None, **settings):
    """A run whose solve rate after round n is `rate(n)`."""
    record = record or {"model": "tiny", "versions": {"torch": "2"}, "git": {"commit": "a", "changed": False}}
    own = {"seed": seed, "teacher_reward": "adversarial", "executor_kwargs": {"workers": seed}} | settings
    history = [make_round(n, solve_rate=rate(n)) for n in range(rounds)]
    norm = 0.3 + seed + len(str(settings))  # runs of other settings learn in another way
    history = [replace(one, members=tuple(replace(own, grad_norm=norm) for own in one.members)) for one in history]
    return PlayedRun(folder or f"runs/{seed}", record | {"settings": own}, history)


def exam(mean: float, **members: float) -> dict:
    scores = {name: {"accuracy": value} for name, value in members.items()}
    return {"exam": "e", "scores": scores | {"base": {"accuracy": 0.1}}, "summaries": {"mean": {"accuracy": mean}}}


def test_runs_that_differ_by_seed_and_places_are_one_arm():
    runs = [made(0), made(1), made(0, teacher_reward="frontier"), made(1, overwrite_output_dir=True)]
    first, second = group_arms(runs)
    assert [run.seed for run in first.runs] == [0, 1, 1] and second.runs == (runs[2],)
    assert (first.name, second.name) == ("teacher_reward=adversarial", "teacher_reward=frontier")


def test_a_run_that_was_only_stopped_and_made_longer_is_no_other_arm():
    def resumed(changed, **settings):
        run = made(0, max_steps=30, **settings)
        run.record["resumed"] = [{"step": 4, "changed": changed}]
        return run

    runs = [made(0, max_steps=30), resumed({"max_steps": [8, 30]})]
    assert len(group_arms(runs)) == 1 and Comparison(group_arms(runs)).circumstances() == []
    other = resumed({"max_steps": [8, 30], "pairing": ["hard", "variance"]})
    names = [arm.name for arm in group_arms([*runs, other])]
    assert names == ["resumed=unset", 'resumed=[{"pairing": ["hard", "variance"]}]']
    elsewhere = resumed({"data_seed": [1, 2], "kwargs.base_url": ["http://a:1", "http://b:1"]})  # as between seeds
    assert len(group_arms([runs[0], elsewhere])) == 1
    linear = {"lr_scheduler_type": "linear"}  # the rates of the first rounds were those of 8 steps
    runs = [made(0, max_steps=30, **linear), resumed({"max_steps": [8, 30]}, **linear)]
    assert len(group_arms(runs)) == 2


def test_arms_with_many_settings_are_named_by_their_folders():
    settings = {"a": 1, "b": 2, "c": 3}
    runs = [
        made(s, folder=f"runs/{name}_{s}", **own) for name, own in {"x": {}, "y": settings}.items() for s in (0, 1)
    ]
    assert [arm.name for arm in group_arms(runs)] == ["x", "y"]


def test_arms_of_one_name_are_told_apart_by_their_folders():
    settings = {"a": 1, "b": 2, "c": 3}
    names = [arm.name for arm in group_arms([made(0, folder="p/run"), made(0, folder="q/run", **settings)])]
    assert names == ["run (p/run)", "run (q/run)"]


def test_a_run_without_a_record_is_an_arm_of_its_own():
    bare = [PlayedRun(name, {}, [make_round(0)]) for name in ("a", "b")]
    assert len(group_arms(bare)) == 2
    assert len(Comparison(group_arms(bare)).settings()[0]["folder"]) == 2
    assert [json.loads(run.settings["folder"]) for run in bare] == ["a", "b"]


def test_a_curve_is_the_mean_over_seeds_with_students_band():
    rates = np.random.default_rng(0).uniform(size=(3, 6))
    arm = Arm("x", tuple(made(s, rate=lambda n, s=s: rates[s, n]) for s in range(3)))
    points = Comparison((arm,)).curve(arm, "solve_rate")
    assert [point.round for point in points] == [1, 2, 3, 4, 5, 6]
    for n, point in enumerate(points):
        ends = stats.ttest_1samp(rates[:, n], 0).confidence_interval(0.95)
        assert point[1:] == pytest.approx((rates[:, n].mean(), ends.low, ends.high, 3))


def test_a_seed_that_was_run_twice_counts_once():
    arm = Arm("x", (made(0, rate=lambda n: 0.2), made(0, rate=lambda n: 0.4), made(1, rate=lambda n: 0.9)))
    (point, *_) = Comparison((arm,)).curve(arm, "solve_rate")
    assert (point.mean, point.seeds) == (pytest.approx((0.3 + 0.9) / 2), 2)


def test_runs_of_one_seed_are_told_apart_by_their_folders():
    runs = [made(0, folder="runs/a"), made(0, folder="runs/b"), made(1, folder="runs/c")]
    runs[1].record["git"] = {"commit": "b", "changed": False}
    assert Comparison((Arm("x", tuple(runs)),)).circumstances() == ["Commit: a in runs/a, x/1; b in runs/b."]


def test_runs_of_different_length_are_compared_over_their_common_rounds():
    short, long = made(0, rounds=4, rate=lambda n: n), made(0, rounds=9, rate=lambda n: n, teacher_reward="frontier")
    found = Comparison(group_arms([short, long]))
    assert (found.rounds, found.last) == (4, 2)
    assert [point.round for point in found.curve(found.arms[1], "solve_rate")] == [1, 2, 3, 4]
    row = found.row("solve_rate")
    assert [value.mean for value in row.values] == [2.5, 2.5]
    assert found.cost(found.arms[1]).rows == found.cost(found.arms[0]).rows == 4 * 4 * 16


def continued(run: PlayedRun, first: int) -> PlayedRun:
    """A run that continues another: its folder has the rounds from this one, counted from 1."""
    return replace(run, history=run.history[first - 1 :])


def test_a_run_that_continues_another_is_compared_over_the_rounds_it_has():
    whole, part = made(0, rounds=9), continued(made(0, rounds=8, teacher_reward="frontier"), 4)
    found = Comparison(group_arms([whole, part]))
    assert (found.first, found.rounds, found.last, found.span) == (4, 8, 2, "rounds 4 to 8")
    assert found.cost(found.arms[0]).rows == found.cost(found.arms[1]).rows == 5 * 4 * 16
    assert found.adapters(found.arms[0])["student_1"][0] == 5 * 16
    for arm in found.arms:
        assert [point.round for point in found.curve(arm, "solve_rate")] == [4, 5, 6, 7, 8]
    assert Comparison(group_arms([whole])).span == "9 rounds"


def test_runs_without_a_common_round_are_refused():
    later = continued(made(0, rounds=8, folder="runs/later"), 5)
    with pytest.raises(ValueError, match="No round is in the history of all runs: .*runs/later has rounds 5 to 8"):
        group_arms([made(0, rounds=4), later])


def test_exams_along_a_run_stand_by_the_newest_that_all_have():
    def probe(number, mean):
        return {"round": number, "exams": {"e": {"mean": mean, "players": {"base": {"accuracy": 0.1}}}}}

    one, other = made(0), made(0, teacher_reward="frontier")
    one = PlayedRun(one.folder, one.record, one.history, [probe(0, 0.1), probe(3, 0.2), probe(6, 0.9)])
    other = PlayedRun(other.folder, other.record, other.history, [probe(0, 0.3), probe(3, 0.5)])
    row = Comparison(group_arms([one, other])).row("exam/e/mean")
    assert [value.mean for value in row.values] == [0.2, 0.5]


def test_final_exams_have_mean_best_and_weakest():
    team = PlayedRun("a", {}, [make_round(0)], evaluation={"exams": [exam(0.5, student_0=0.4, student_1=0.6)]})
    taken = {"exams": [exam(0.5, student_0=0.4) | {"summaries": {}}]}
    single = [replace(make_round(0), members=[one for one in make_round(0).members if one.name != "student_1"])]
    alone = PlayedRun("b", {}, single, evaluation=taken)
    assert team.exams == {"e": {"mean": 0.5, "base": 0.1}}
    assert alone.exams == {"e": {"mean": 0.4, "weakest": 0.4, "best": 0.4, "average": 0.4, "base": 0.1}}
    assert PlayedRun("c", {}, [make_round(0)], evaluation=taken).exams == {}  # one of two students took it


def test_compute_is_summed_over_rounds_and_averaged_over_seeds():
    arm = Arm("x", (made(0, rounds=3), made(1, rounds=3)))
    found = Comparison((arm,))
    cost = found.cost(arm)
    assert (cost.adapters, cost.rows, cost.completion_tokens, cost.updates) == (4, 3 * 4 * 16, 3 * 4 * 700, 12)
    assert cost.seconds == pytest.approx(3 * 6.11)
    assert found.adapters(arm)["student_1"] == (48, 300, 2100, 3, 0, 0)
    assert "champions" not in found.adapters(arm)


def test_rows_of_champions_stand_beside_those_of_adapters():
    run = made(0, rounds=2)
    guests = [replace(one, guest_rows=3 * number, guest_tokens=10) for number, one in enumerate(run.history)]
    arm = Arm("x", (replace(run, history=guests),))
    found = Comparison((arm,))
    assert found.adapters(arm)["champions"] == (0, 0, 0, 0, 3, 20)
    assert found.cost(arm).unlearned_rows == sum(own[4] for own in found.adapters(arm).values()) == 3
    each = comparison_page.compute_table(found).rows[1]
    assert each[3] == found.cost(arm).rows / found.cost(arm).adapters and list(each[7:9]) == [0, 0]
    printed = compute_table(guests, plain=True)
    assert [list(column.cells)[-1] for column in printed.columns] == ["champions", "0", "0", "0", "0", "3", "20"]


def test_a_round_without_a_refusal_counts_as_none():
    """Otherwise what happens in one round of ten would count as if it happened in all."""
    refused = {"teachers": {"duplicate": 4}}
    arms = []
    for name, numbers in (("a", [1]), ("b", [0, 1])):
        history = [replace(make_round(n), refusals=refused if n in numbers else {}) for n in range(2)]
        arms.append(Arm(name, (replace(made(0, rounds=2), history=history),)))
    found = Comparison(tuple(arms))
    assert [found.value(arm.runs[0], "teachers/refused/duplicate") for arm in arms] == [4.0, 4.0]  # the last round
    assert [point.mean for point in found.curve(arms[0], "teachers/refused/duplicate")] == [0.0, 4.0]
    assert arms[0].runs[0].curve("teachers/refused/exception") == {1: 0.0, 2: 0.0}
    assert tail_mean(arms[0].runs[0].curve("teachers/refused/duplicate"), 2, 2) == 2.0
    on_data = replace(made(0, rounds=1), history=[replace(make_round(0), teachers=(), refusals={})])
    assert not on_data.curve("teachers/refused/duplicate") and on_data.curve("seconds/recombine") == {1: 0.0}


def test_settings_that_differ_come_with_every_arm():
    found = Comparison(group_arms([made(0), made(0, teacher_reward="frontier", probe_kwargs={"founders": 2})]))
    differ, same = found.settings()
    assert differ == {
        "settings.teacher_reward": ['"adversarial"', '"frontier"'],
        "settings.probe_kwargs.founders": ["", "2"],
    }
    assert same == {"model": '"tiny"'}


def test_arms_that_play_the_same_runs_are_told():
    runs = [made(0), made(1), made(0, teacher_reward="frontier"), made(1, teacher_reward="frontier")]
    same = [runs[0], runs[1], replace(runs[2], history=runs[0].history), runs[3]]
    assert Comparison(group_arms(runs)).equal_runs() == []
    assert Comparison(group_arms(same)).equal_runs() == [
        "teacher_reward=adversarial/0, teacher_reward=frontier/0: all rewards and gradient norms of these runs are "
        "equal, so what the arms set differently has changed nothing."
    ]


def test_what_else_differs_is_said_in_words():
    base = {"model": "tiny", "versions": {"torch": "2", "trl": "1"}, "git": {"commit": "a", "changed": False}}
    newer = base | {"versions": {"torch": "3", "trl": "1"}}
    runs = [made(0, record=base), made(1, record=base), made(0, record=newer, teacher_reward="frontier")]
    for number, run in enumerate(runs):
        run.record["process"] = {"host": "a", "id": number}  # every run has another
    (told,) = Comparison(group_arms(runs)).circumstances()
    assert told.startswith("Version of torch: 2 in teacher_reward=adversarial; 3 in teacher_reward=frontier.")
    assert "either may be the cause" in told
    (told,) = Comparison(group_arms([runs[0], made(1, record=newer)])).circumstances()
    assert told.endswith("/0; 3 in " + told.rpartition(" in ")[2]) and "/1." in told and "cause" not in told
    assert Comparison(group_arms(runs[:2])).circumstances() == []


def test_final_exams_of_other_questions_are_told():
    runs = [
        replace(made(seed), evaluation={"exams": [exam(0.5) | {"version": version}]})
        for seed, version in ((0, "aaa"), (1, "aaa"), (2, "bbb"))
    ]
    assert Comparison(group_arms(runs[:2])).circumstances() == []
    (told,) = Comparison(group_arms(runs)).circumstances()
    assert "final exam e" in told.lower() and "aaa" in told and "bbb" in told


def test_a_final_exam_that_a_run_was_not_given_is_one_line():
    asked = exam(0.5) | {"version": "aaa", "decoding": {"temperature": 0.0, "max_tokens": 8}}
    runs = [replace(made(0), evaluation={"exams": [asked]}), made(1, teacher_reward="frontier")]
    assert Comparison(group_arms(runs)).circumstances() == ["Final exam e: not given to teacher_reward=frontier."]


@pytest.mark.parametrize("key", ["lora", "dataset_part", "dataset_hash", "quantization"])
def test_runs_on_other_data_or_adapters_are_other_arms(key):
    one, other = ({"model": "tiny", key: {"rows": rows}} for rows in (8, 9))
    assert len(group_arms([made(0, record=one), made(1, record=one)])) == 1
    assert len(group_arms([made(0, record=one), made(1, record=other)])) == 2


def test_a_run_is_read_from_its_folder(tmp_path):
    write_lines(tmp_path / "history.jsonl", [make_round(n).to_json() for n in range(3)])
    write_json(tmp_path / "run.json", {"model": "tiny", "settings": {"seed": 7}})
    probe = {"step": 0, "round": 0, "exams": {"e": {"mean": 0.5, "players": {}}}, "founders": None, "seconds": 1.0}
    write_lines(tmp_path / "probes.jsonl", [probe])
    write_json(tmp_path / "evaluation" / "evaluation.json", {"exams": [exam(0.5, student_0=0.5, student_1=0.5)]})
    run = read_run(str(tmp_path))
    assert (run.seed, run.rounds, run.exams["e"]["mean"]) == (7, 3, 0.5)
    assert run.curves["exam/e/mean"] == {0: 0.5} and run.curves["tokens/learned"] == {1: 2800, 2: 2800, 3: 2800}
    with pytest.raises(ValueError, match="no history"):
        read_run(str(tmp_path / "evaluation"))
    (tmp_path / "probes.jsonl").write_text("not JSON\n")
    (tmp_path / "run.json").write_text("{")
    (tmp_path / "evaluation" / "evaluation.json").write_text("{")
    damaged = read_run(str(tmp_path))
    assert damaged.curves.keys() == {name for name in run.curves if not name.startswith("exam/")} and not damaged.exams
    assert [remark.split(",")[0].split(" is ")[0] for remark in damaged.remarks] == [
        f"Left out: {tmp_path}/run.json",
        f"Left out: {tmp_path}/probes.jsonl",
        f"Left out: {tmp_path}/evaluation/evaluation.json",
    ]


def test_small_parts():
    assert tail_mean({1: 1.0, 2: 2.0, 4: 6.0, 9: 100.0}, rounds=4, last=3) == 4.0
    assert tail_mean({1: 1.0}, rounds=9, last=3) is None
    assert flat({"a": {"b": [1], "c": {}}, "d": None}) == {"a.b": "[1]", "a.c": "{}", "d": "null"}
