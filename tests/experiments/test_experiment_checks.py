"""What a run would refuse is refused before the first one, by the recipe's own checks."""

from pathlib import Path

import pytest

from tests.reporting.conftest import make_round
from trl_populora.diagnostics import round_metrics
from trl_populora.experiments import read_experiment
from trl_populora.experiments.checks import OPEN, check, known_metrics, parsed, run_size
from trl_populora.recipe import read_mapping


ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = sorted(ROOT.glob("recipes/experiments/*.yaml"))


def checked(plan, **changes):
    experiment = plan.read(**changes)
    return check(experiment, read_mapping(experiment.recipe))


def test_sizes_are_those_of_the_recipe(plan):
    found = checked(plan, arms={"one": {}, "two": {"max_steps": 6, "per_device_train_batch_size": 2}})
    # a round: 2 proposals and 2 attempts at each
    assert found.sizes["one"] == (2, 4, 24, 24, 24 * 512)
    assert found.sizes["two"][:4] == (2, 6, 36, 36)
    assert found.exam_names == {"held_out_easy[:2]": "held_out_easy[:2]"}


def test_sizes_have_rows_that_nobody_learns_from(plan):
    champions = {"hall_of_fame_probability": 0.1, "evolution_interval": 2}
    solvable = {"teacher_reward": "solvable", "solvable_attempts": 3, "solvable_rounds": 1}
    found = checked(plan, arms={"one": {}, "two": champions, "three": solvable})
    assert found.sizes["two"] == (2, 4, 24, 48, 48 * 512)
    assert found.sizes["three"] == (2, 4, 24, 24 + 4 * 2 * 3 * 2, 72 * 512)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": {"one": {}, "two": {"teacher_rewards": "x"}}}, "arm 'two': Unknown setting 'teacher_rewards'"),
        ({"arms": {"one": {}, "two": {"teacher_reward": "x"}}}, "arm 'two': .*teacher_reward"),
        ({"arms": {"one": {}, "two": {"evolution_kwargs": {"elite": 1}}}}, "arm 'two': Unknown key 'elite'"),
        ({"settings": {"lora_r": "many"}}, "lora_r='many'"),
        (
            {"measures": {"m": {"metric": "solv_rate"}}},
            "measures.m: .* no metric 'solv_rate'. Did you mean",
        ),
        ({"measures": {"m": {"metric": "population/student_7/reward"}}}, "no metric"),
        ({"measures": {"m": {"metric": "teachers/refused/duplicat"}}}, "Did you mean 'teachers/refused/duplicate'"),
        ({"exams": ["held_uot"], "measures": {"m": {"exam": "held_uot"}}}, "exams: exam 'held_uot' is unknown"),
    ],
)
def test_mistakes_of_arms_measures_and_exams(plan, changes, message):
    with pytest.raises(ValueError, match=message):
        checked(plan, **changes)


@pytest.mark.slow
def test_all_arms_are_asked_the_same_questions(plan):
    arms = {"one": {"task_types": ["code_i"]}, "two": {"task_types": ["code_i", "code_o"]}}
    exam = {"exams": ["held_out[:100]"], "measures": {"m": {"exam": "held_out[:100]"}}}
    said = r"arm 'two': exams: 'held_out\[:100\]' asks 100 questions here, of which 50 are among the 64 of arm 'one'"
    with pytest.raises(ValueError, match=said):
        checked(plan, arms=arms, **exam)
    exam = {"exams": ["held_out[:60]"], "measures": {"m": {"exam": "held_out[:60]"}}}
    with pytest.raises(ValueError, match=r"arm 'two': .* asks 60 questions here, of which 30 are among the 60"):
        checked(plan, arms=arms, **exam)
    probed = {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "probe_kwargs": {"exams": ["held_out[:60]"], "founders": 0},
    }
    along = {"exams": [], "settings": probed, "measures": {"m": {"metric": "exam/held_out[:60]/mean"}}}
    with pytest.raises(ValueError, match=r"arm 'two': .* asks 60 questions here, of which 30 are among the 60"):
        checked(plan, arms=arms, **along)
    along["measures"] = {"m": {"metric": "solve_rate"}}
    assert checked(plan, arms=arms, **along).sizes
    arms = {"one": {"prompt_style": "compact"}, "two": {"prompt_style": "full"}}
    found = checked(plan, arms=arms, **exam)
    assert found.exam_names == {"held_out[:60]": "held_out[:60]"}
    assert found.exam_versions["one"].keys() == found.exam_versions["two"].keys()


def test_a_file_is_no_folder_for_runs(plan):
    with pytest.raises(ValueError, match=r"output='.*recipe.yaml' is not a folder"):
        checked(plan, output=str(plan.recipe))


@pytest.mark.parametrize(
    "path",
    [path if path.stem == "stops_size" else pytest.param(path, marks=pytest.mark.slow) for path in EXPERIMENTS],
    ids=lambda path: path.stem,
)
def test_the_experiments_of_the_repository_pass(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    experiment = read_experiment(str(path))
    assert check(experiment, read_mapping(experiment.recipe)).sizes.keys() == experiment.arms.keys()


def test_exams_along_a_run_can_be_measured(plan):
    probed = {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "probe_kwargs": {"exams": ["held_out_easy[:2]"], "founders": 0},
    }
    measures = {"learning": {"metric": "exam/held_out_easy[:2]/mean", "last": 4}}
    assert checked(plan, settings=probed, measures=measures).sizes
    for settings in ({}, probed | {"probe_kwargs": {"exams": ["held_out_easy[:3]"]}}):
        with pytest.raises(ValueError, match="measures.learning: its rounds have no metric 'exam/held_out_easy"):
            checked(plan, settings=settings, measures=measures)
    with pytest.raises(ValueError, match="probe_kwargs.exams: exam 'held_uot' is unknown"):
        checked(plan, settings=probed | {"probe_kwargs": {"exams": ["held_uot"]}}, measures=measures)


def test_a_tracker_that_is_not_there_is_told_before_the_first_run(plan):
    plan.write_recipe(report_to="tensorbord")
    with pytest.raises(ValueError, match="arm 'one': report_to=.*Did you mean 'tensorboard'"):
        checked(plan)


def test_a_recipe_that_pushes_is_refused(plan):
    plan.write_recipe(push_to_hub=True, hub_model_id="user/name")
    with pytest.raises(ValueError, match="push all runs to one repository"):
        checked(plan)


@pytest.mark.parametrize(
    ("settings", "place"),
    [({"hub_token": "hf_x"}, "hub_token"), ({"sampler_kwargs": {"api_key": "x"}}, "sampler_kwargs.api_key")],
)
def test_a_recipe_with_secrets_is_refused(plan, settings, place):
    with pytest.raises(ValueError, match=f"{place}: secrets would be written into the files of the experiment"):
        checked(plan, settings=settings)


def test_every_metric_of_a_round_is_known(plan):
    experiment = plan.read(settings={"num_teachers": 2, "num_students": 2, "task_types": ["code_o", "code_i"]})
    _, args = parsed(experiment.run_recipe(read_mapping(experiment.recipe), experiment.all_jobs[0]))
    known = known_metrics(args)
    rounds = [make_round(n, attempts=((0, 1), (1, 0)), solved=((0, 1), (0, 0)), residual=0.1) for n in range(2)]
    given = {name for summary in rounds for name in round_metrics(summary)}
    assert {name for name in given - known if not name.startswith(OPEN)} == set()
    assert {"complexity/ast_nodes", "tasks/unsolved", "types/solve_rate/code_i", "seconds/extra"} <= known
    assert {"executor/cpu_timeout", "teachers/refused/duplicate", "compute/guest_rows"} <= known
    assert not {"fill_rate/teacher_0", "validity/student_0", "seconds/sample"} & known  # which no round has
    assert {"students/rating/dispersion", "teachers/weights/cosine_min"} <= known


def test_metrics_of_an_agent_that_plays_itself_are_known(plan):
    experiment = plan.read(settings={"shared_member": True, "pairing": "fixed", "evolution_interval": 0})
    _, args = parsed(experiment.run_recipe(read_mapping(experiment.recipe), experiment.all_jobs[0]))
    known = known_metrics(args)
    assert {"reward/agent_0", "teachers/validity", "students/reward"} <= known
    assert {"pairs/solve_rate/teacher_0/student_0", "coverage/filled/teacher_0"} <= known
    assert not {"students/rating/dispersion", "teachers/solve_rate_dispersion", "students/weights/cosine_mean"} & known


def test_what_no_type_measures_is_no_metric(plan, monkeypatch):
    experiment = plan.read(settings={"task_types": ["countdown"]})
    _, args = parsed(experiment.run_recipe(read_mapping(experiment.recipe), experiment.all_jobs[0]))
    assert {"coverage/filled", "complexity/numbers"} <= known_metrics(args)
    monkeypatch.setattr("trl_populora.tasks.countdown.Countdown.features", lambda self, task: None)
    assert not [name for name in known_metrics(args) if name.startswith(("coverage/", "complexity/"))]


def test_a_run_on_a_dataset_has_no_known_length(plan):
    _, args = parsed(
        {"model_name_or_path": "tiny", "num_teachers": 0, "num_students": 1, "max_steps": -1, "bf16": False,
         "num_generations": 2, "per_device_train_batch_size": 2, "output_dir": str(plan.folder), "report_to": "none"}
    )  # fmt: skip
    assert run_size(args) == (1, None, None, None, None)
    known = known_metrics(args)
    assert {"students/reward", "reward/student_0", "students/grad_norm", "seconds/sample"} <= known
    assert (
        not {"seconds/judge", "solve_rate", "fill_rate", "tasks/unsolved", "rating/residual", "teachers/reward"}
        & known
    )
