"""The YAML of an experiment: what it means, and what is refused at once."""

import pytest

from trl_populora.experiments.plan import merged


def test_jobs_are_arms_by_seeds_with_the_control_first(plan):
    found = plan.read(arms={"z": {}, "one": {}}, control="one")
    assert [job.name for job in found.all_jobs] == ["one/0", "z/0", "one/1", "z/1"]
    assert found.job("z/1").folder.endswith("out/z/seed_1")
    with pytest.raises(ValueError, match=r"no job 'z/2'. Did you mean 'z/\d'"):
        found.job("z/2")


def test_a_run_gets_recipe_settings_arm_and_seed(plan):
    found = plan.read(settings={"max_steps": 9, "lora_r": 4}, arms={"one": {}, "two": {"lora_r": 2}})
    base = {"seed": 5, "output_dir": "elsewhere", "overwrite_output_dir": True, "lora_r": 8, "model_name_or_path": "m"}
    job = found.job("two/1")
    assert found.run_recipe(base, job) == {
        "run_name": "small-two-1",
        "model_name_or_path": "m",
        "max_steps": 9,
        "lora_r": 2,
        "reserved_exams": ["held_out_easy[:2]"],
        "seed": 1,
        "output_dir": job.folder,
        "resume_from_checkpoint": "auto",
    }


def test_runs_do_not_learn_from_the_exams_of_the_experiment(plan):
    found = plan.read(exams=["held_out_easy[:2]", "a:b"], settings={"reserved_exams": ["c:d", "a:b"]})
    assert found.run_recipe({}, found.all_jobs[0])["reserved_exams"] == ["c:d", "a:b", "held_out_easy[:2]"]


def test_one_exam_may_be_reserved_as_text(plan):
    found = plan.read(settings={"reserved_exams": "c:d"})
    assert found.run_recipe({}, found.all_jobs[0])["reserved_exams"] == ["c:d", "held_out_easy[:2]"]
    found = plan.read(settings={"reserved_exams": 5})  # which a run refuses
    assert found.run_recipe({}, found.all_jobs[0])["reserved_exams"] == 5


def test_one_measure_of_the_average_needs_it(plan):
    measures = {"solved": {"metric": "solve_rate"}, "exam": {"exam": "held_out_easy[:2]"}}
    assert not plan.read(measures=measures).averages
    measures["average"] = {"exam": "held_out_easy[:2]", "of": "average"}
    assert plan.read(measures=measures).averages


def test_an_arm_may_be_left_empty(plan):
    """As in YAML `one:`: the recipe as it is."""
    found = plan.read(arms={"one": None, "two": {"lora_r": 2}}, settings={"lora_r": 4})
    assert [found.run_recipe({}, found.job(f"{arm}/0"))["lora_r"] for arm in ("one", "two")] == [4, 2]


def test_mappings_are_changed_key_by_key():
    base = {"a": {"x": 1, "y": {"z": 2}}, "b": 3}
    assert merged(base, {"a": {"y": {"w": 4}}, "b": {"c": 5}}) == {"a": {"x": 1, "y": {"z": 2, "w": 4}}, "b": {"c": 5}}
    assert base["a"] == {"x": 1, "y": {"z": 2}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"control": "tow"}, "plan.yaml: control='tow' is no arm. Did you mean 'two'"),
        ({"seeds": [0, 1, 0]}, "names 0 twice"),
        ({"seeds": ["1"]}, r"seeds=\['1'\] must be a list of whole numbers"),
        ({"seeds": [0, -1]}, r"seeds=\[0, -1\]: -1 must be from 0 to 4294967295"),
        ({"seeds": [2**32]}, "4294967296 must be from 0 to 4294967295"),
        ({"seeds": []}, "at least one"),
        ({"question": None}, "question is missing"),
        ({"colour": 1}, "Unknown key 'colour'"),
        ({"measures": {"m": {"metrics": "a"}}}, "Unknown key 'metrics' in measures.m. Did you mean 'metric'"),
        ({"measures": {"m": {"metric": "a", "exam": "b"}}}, "measures.m: name either"),
        ({"measures": {"m": {"metric": "a", "last": 0}}}, "last=0"),
        ({"measures": {"m": {"exam": "held_out_easy[:2]", "last": 3}}}, "last=3 is for metrics of the rounds"),
        ({"measures": {"m": {"exam": "held_out_easy[:2]", "of": "chosen"}}}, "of='chosen' must be one of"),
        (
            {"measures": {"m": {"exam": "held_out_easy"}}},
            "'held_out_easy' is not among the exams of the experiment. Did you mean",
        ),
        ({"arms": {"one": {"seed": 1}, "two": {}}}, r"arms.one.seed cannot be set in an experiment: name seeds"),
        ({"settings": {"output_dir": "x"}}, "settings.output_dir cannot be set"),
        ({"arms": {"one": 3, "two": {}}}, "arms.one=3 must be a mapping"),
        ({"arms": {"a/b": {}}, "control": "a/b"}, "needs a name of letters"),
        ({"arms": {"results.json": {}}, "control": "results.json"}, "'results.json' needs another name"),
        ({"measures": {"m": {"metric": "a", "of": "best"}}}, "measures.m: of='best' is for exams"),
        ({"measures": {True: {"metric": "a"}}}, "the name True of a measure must be text"),
        ({"measures": {"m": 1}}, "measures.m=1 must be a mapping"),
        ({"jobs": 0}, "jobs=0"),
        ({"exams": ["a", "a"]}, "an exam twice"),
        ({"exam_samples": 4}, "set exam_temperature"),
        ({"exam_temperature": float("inf")}, "exam_temperature=inf a number of at least 0"),
        ({"exam_temperature": float("nan")}, "exam_temperature=nan a number of at least 0"),
    ],
)
def test_mistakes_are_told_at_once(plan, changes, message):
    with pytest.raises(ValueError, match=message):
        plan.read(**changes)


def test_a_file_that_cannot_be_read(plan, tmp_path):
    from trl_populora.experiments import read_experiment

    with pytest.raises(ValueError, match="nowhere.yaml cannot be read"):
        read_experiment(str(tmp_path / "nowhere.yaml"))
    plan.file.write_text("a: [")
    with pytest.raises(ValueError, match="is not YAML"):
        read_experiment(str(plan.file))
    plan.file.write_text("- a")
    with pytest.raises(ValueError, match="must be a mapping"):
        read_experiment(str(plan.file))
