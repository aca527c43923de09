"""Runs of another experiment are used where they are the same, and nowhere else."""

import json
import shutil

import pytest

from tests.experiments.conftest import table_of
from trl_populora.experiments import read_experiment
from trl_populora.experiments.jobs import Commands, run_jobs
from trl_populora.experiments.reuse import reuse_runs, reused
from trl_populora.recipe import read_mapping


EXAMS = {"held_out_easy[:2]": "1"}


def examined(experiment):
    """The same exams in all arms."""
    return dict.fromkeys(experiment.arms, EXAMS)


def finished(read, stub, view):
    """The experiment, after its jobs have run and left their recipes."""
    write = Commands(read, read_mapping(read.recipe))

    def command(job, stage):
        write(job, stage)
        return stub()(job, stage)

    assert run_jobs(read.all_jobs, read.asked(EXAMS), command, view) == {}
    return read


@pytest.fixture
def old(plan, stub, view):
    """A finished experiment: arms "one" and "two", seeds 0 and 1."""
    return finished(plan.read(), stub, view)


@pytest.fixture
def link(plan, old):
    """Links the runs of a new experiment to those of the old one; returns the jobs that were linked."""

    def link(**changes):
        new = plan.read(**({"name": "new", "output": str(plan.folder / "new"), "reuse": [old.output]} | changes))
        return new, reuse_runs(new, read_mapping(new.recipe), new.all_jobs, examined(new))

    return link


def test_the_same_runs_are_used(link, old):
    arms = {"plain": {"teacher_reward": "adversarial"}, "default": {}, "better": {"teacher_reward": "frontier"}}
    new, found = link(arms=arms, control="better", seeds=[1, 2])
    assert found == {"default/1": f"{old.output}/one/seed_1", "better/1": f"{old.output}/two/seed_1"}
    assert [reused(job) for job in new.all_jobs] == [
        f"{old.output}/two/seed_1", None, f"{old.output}/one/seed_1", None, None, None
    ]  # fmt: skip
    assert reuse_runs(new, read_mapping(new.recipe), new.all_jobs, examined(new)) == {}  # they are linked already


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"max_steps": 5}},
        pytest.param({"settings": {"evolution_kwargs": {"elites": 2}}}, marks=pytest.mark.slow),
        pytest.param({"exam_samples": 2, "exam_temperature": 1.0}, marks=pytest.mark.slow),
        {"exam_temperature": 0.5},
        {"seeds": [7]},
        {"reuse": ["/no/such/folder"]},
        {"reuse": []},
    ],
)
def test_other_runs_are_not(link, changes):
    assert link(**changes)[1] == {}


def test_every_arm_has_its_own_version_of_an_exam(plan, old):
    """As where arms have different task types."""
    new = plan.read(name="new", output=str(plan.folder / "new"), reuse=[old.output])
    versions = {"one": EXAMS, "two": {"held_out_easy[:2]": "2"}}
    assert set(reuse_runs(new, read_mapping(new.recipe), new.all_jobs, versions)) == {"one/0", "one/1"}


def test_a_damaged_run_is_passed_over(link, plan):
    (plan.folder / "out/one/seed_0/evaluation/evaluation.json").write_text("{")
    assert set(link()[1]) == {"two/0", "one/1", "two/1"}


def test_unfinished_runs_and_links_are_not(link, old, plan):
    shutil.rmtree(plan.folder / "out/one/seed_0/evaluation")
    assert set(link()[1]) == {"two/0", "one/1", "two/1"}
    third = read_experiment(str(plan.file))
    record = plan.read(name="third", output=str(plan.folder / "third"), reuse=[third.output])
    assert reuse_runs(record, read_mapping(record.recipe), record.all_jobs, examined(record)) == {}


def test_the_average_must_have_been_examined(link, plan):
    measures = {"both": {"exam": "held_out_easy[:2]", "of": "average"}}
    assert len(link(measures=measures)[1]) == 4  # with one student, it is the student


def test_all_students_and_their_average_must_have_been_examined(plan, stub, view):
    two = {"settings": {"num_students": 2, "per_device_train_batch_size": 10}, "seeds": [0], "arms": {"one": {}}}
    read = finished(plan.read(**two), stub, view)
    (plan.folder / "out/one/seed_0/population.json").write_text(json.dumps(table_of(2)))
    file = plan.folder / "out/one/seed_0/evaluation/evaluation.json"
    record = json.loads(file.read_text())
    scores = record["exams"][0]["scores"]
    measures = {"both": {"exam": "held_out_easy[:2]", "of": "average"}}
    for more, of, found in (
        ({}, "mean", 0),
        ({"student_1": {}}, "mean", 1),
        ({}, "average", 0),
        ({"average": {}}, "average", 1),
    ):
        scores |= more
        file.write_text(json.dumps(record))
        shutil.rmtree(plan.folder / "new", ignore_errors=True)
        measures["both"]["of"] = of
        new = plan.read(**two, name="new", output=str(plan.folder / "new"), reuse=[read.output], measures=measures)
        assert len(reuse_runs(new, read_mapping(new.recipe), new.all_jobs, examined(new))) == found
    record["exams"][0]["version"] = "2"  # other questions under the same name
    file.write_text(json.dumps(record))
    shutil.rmtree(plan.folder / "new")
    assert reuse_runs(new, read_mapping(new.recipe), new.all_jobs, examined(new)) == {}


def test_a_deleted_run_is_made_again_and_one_that_goes_on_is_left_alone(link, plan, view, capsys):
    new, _ = link()
    (plan.folder / "out/one/seed_0/population.json").unlink()
    problems = run_jobs(new.all_jobs, new.asked(EXAMS), lambda job, stage: pytest.fail("nothing may be started"), view)
    assert list(problems) == ["one/0"] and "not finished any more; remove the link" in problems["one/0"]
    shutil.rmtree(plan.folder / "out/one/seed_0")
    assert link()[1] == {} and not (plan.folder / "new/one/seed_0").is_symlink()


def test_a_link_works_from_an_output_that_is_a_link_itself(link, plan):
    (plan.folder / "scratch/deep").mkdir(parents=True)
    (plan.folder / "new").symlink_to("scratch/deep")
    new, found = link()
    assert len(found) == 4 and (plan.folder / "new/one/seed_0/population.json").is_file()


def test_a_run_that_has_begun_is_its_own(link, plan):
    (plan.folder / "new/one/seed_0").mkdir(parents=True)
    assert set(link()[1]) == {"two/0", "one/1", "two/1"}


@pytest.mark.slow
def test_results_name_what_was_reused(link, old, plan, capsys):
    from trl_populora.cli import main

    link(reuse=[old.output, "/no/such/folder"])
    assert main(["experiment", str(plan.file)]) == 0
    told = capsys.readouterr().out
    assert told.count("done already") == 4 and told.count("does not exist here") == 1
    assert "reuse: /no/such/folder does not exist here" in told
    record = json.loads((plan.folder / "new/results.json").read_text())
    assert [job["why"] for job in record["jobs"]] == [
        f"the run {old.output}/{arm}/seed_{seed}" for seed in (0, 1) for arm in ("one", "two")
    ]
    assert record["complete"] and main(["experiment", str(plan.file)]) == 0


def test_its_own_folder_is_refused(plan):
    with pytest.raises(ValueError, match="names the experiment's own output"):
        plan.read(reuse=[str(plan.folder / "out")])
