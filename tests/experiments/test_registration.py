"""The plan is written down before the runs. Afterwards arms and seeds can be added, and nothing else changed."""

import json

import pytest

from trl_populora.experiments.plan import file_hash
from trl_populora.experiments.registration import register
from trl_populora.recipe import read_mapping


NAMES = {"held_out_easy[:2]": "held_out_easy[:2]"}


@pytest.fixture
def registered(plan):
    def make(**changes):
        experiment = plan.read(**changes)
        return register(experiment, read_mapping(experiment.recipe), str(plan.file), NAMES)

    return make


def begin(plan, arm="one", seed=0) -> None:
    folder = plan.folder / "out" / arm / f"seed_{seed}"
    folder.mkdir(parents=True)
    (folder / "job.log").write_text("")


def test_the_plan_is_written_with_hashes_time_and_commit(plan, registered):
    record = registered()
    assert record == json.loads((plan.folder / "out" / "experiment.json").read_text())
    assert record["sha256"] == file_hash(str(plan.file)) and record["recipe_sha256"] == file_hash(str(plan.recipe))
    assert record["registered"].endswith("+00:00") and "git" in record
    assert record["plan"]["hypotheses"] == ["The second is."] and record["recipe"]["max_steps"] == 4


def test_before_the_first_run_everything_may_change(registered):
    registered()
    record = registered(question="Another?")
    assert record["plan"]["question"] == "Another?" and record["changes"] == []


def test_added_seeds_and_arms_are_recorded_with_their_time(plan, registered):
    first = registered()
    begin(plan)
    assert registered()["changes"] == []
    record = registered(seeds=[0, 1, 2], arms={**plan.given["arms"], "three": {"lora_r": 2}})
    (change,) = record["changes"]
    assert change["added"] == {"arms": ["three"], "seeds": [2]} and change["time"] >= first["registered"]
    assert change["sha256"] == file_hash(str(plan.file)) != first["sha256"] == record["sha256"]
    assert registered(seeds=[0, 1, 2], arms={**plan.given["arms"], "three": {"lora_r": 2}}) == record


def test_a_plan_that_did_not_change_is_not_written_again(plan, registered):
    registered()
    begin(plan)
    place = plan.folder / "out" / "experiment.json"
    before = place.stat().st_ino
    registered()
    assert place.stat().st_ino == before  # jobs of one experiment start at the same time


def test_keys_that_json_makes_texts_are_no_change(plan, registered):
    arms = {"one": {}, "two": {"model_init_kwargs": {"max_memory": {0: "20GB"}}}}
    plan.write_recipe(model_init_kwargs={"max_memory": {1: "20GB"}})
    registered(arms=arms)
    begin(plan)
    assert registered(arms=arms)["changes"] == []
    plan.write_recipe(model_init_kwargs={"max_memory": {1: "30GB"}})
    with pytest.raises(ValueError, match="has changed in model_init_kwargs"):
        registered(arms=arms)


def test_where_and_how_many_at_once_may_change(plan, registered):
    registered()
    begin(plan)
    assert registered(jobs=3, slurm={"timeout_min": 5})["changes"][0]["added"] == {"arms": [], "seeds": []}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"question": "Another?"}, "question changed since the runs of .*experiment.json began"),
        ({"measures": {"solved": {"metric": "solve_rate", "last": 3}}}, "measures changed"),
        ({"hypotheses": []}, "hypotheses changed"),
        ({"seeds": [1]}, r"seeds \(without 0\) changed"),
        ({"arms": {"one": {}}}, r"arms \(without two\) changed"),
        ({"arms": {"one": {}, "two": {"teacher_reward": "learnability"}}}, "arms.two changed"),
    ],
)
def test_other_changes_are_refused(plan, registered, changes, message):
    before = registered()
    begin(plan)
    with pytest.raises(ValueError, match=message):
        registered(**changes)
    assert json.loads((plan.folder / "out" / "experiment.json").read_text()) == before


def test_a_changed_recipe_is_refused(plan, registered):
    registered()
    begin(plan)
    plan.write_recipe(max_steps=5)
    with pytest.raises(ValueError, match="recipe.yaml has changed in max_steps"):
        registered()


def test_runs_without_their_plan_are_not_taken_for_runs_of_this_one(plan, registered):
    registered()
    begin(plan)
    (plan.folder / "out" / "one" / "seed_0" / "history.jsonl").write_text("")
    (plan.folder / "out" / "experiment.json").unlink()
    with pytest.raises(
        ValueError, match=r"experiment.json is missing, but runs have begun .one/0.. Restore the file, or"
    ):
        registered()
    (plan.folder / "out" / "experiment.json").write_text("{}")
    with pytest.raises(ValueError, match=r"experiment.json is damaged \(it holds no plan\)"):
        registered()
