"""`populora experiment`, with processes that leave at once what runs leave."""

import json

import pytest

from trl_populora.cli import main
from trl_populora.experiments import jobs
from trl_populora.run_files.files import open_log


@pytest.fixture
def populora(plan, stub, monkeypatch):
    """Runs the command on the small experiment; returns its exit code."""
    plan.read()

    real = jobs.Commands.__call__

    def run(*options, **instead):
        def command(self, job, stage):
            real(self, job, stage)  # writes the recipe of the run
            return stub(**instead)(job, stage)

        monkeypatch.setattr(jobs.Commands, "__call__", command)
        return main(["experiment", str(plan.file), *options])

    return run


def test_from_the_file_to_the_results(populora, plan, capsys):
    assert populora("--jobs", "2", **{"one/1": "raise SystemExit('broken')"}) == 1
    said = capsys.readouterr().out
    assert "two/1: done" in said
    assert "one/1: failed: training ended with exit code 1; its log ends with: broken" in said
    record = json.loads((plan.folder / "out/results.json").read_text())
    assert [job["state"] for job in record["jobs"]] == ["done", "done", "failed", "done"]
    assert "one/1 is failed" in (plan.folder / "out/results.html").read_text()
    assert populora() == 0
    said = capsys.readouterr().out
    assert said.count("done already") == 3 and "one/1: training started" in said
    assert json.loads((plan.folder / "out/results.json").read_text())["complete"]


@pytest.mark.slow
def test_the_table_is_shown_where_the_results_cannot_be_written(populora, plan, capsys, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device", path)

    with monkeypatch.context() as patch:
        patch.setattr("trl_populora.experiments.registration.write_json", lambda *_: None)  # first: this imports it
        patch.setattr("trl_populora.run_files.files.write_json", full)
        assert populora() == 1
    told = capsys.readouterr()
    assert "two/1: done" in told.out and "minus control" in told.out
    assert told.err.startswith("populora: error: [Errno 28] No space left on device") and "results.json" in told.err


def test_initial_adapters_are_looked_for_before_the_first_run(populora, plan, capsys):
    plan.write_recipe(initial_adapters="./warm")
    assert populora("--dry-run") == 0 and populora() == 2
    told = capsys.readouterr()
    assert "arm 'one': initial_adapters='./warm': there is no such folder." in told.err
    assert not (plan.folder / "out").exists()
    (plan.folder / "warm").mkdir()
    plan.write_recipe(initial_adapters=[str(plan.folder / "warm"), str(plan.folder / "out/one/seed_0")])  # of a run
    assert populora() == 0
    (plan.folder / "warm").rmdir()
    assert populora() == 0  # all have begun


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model_name_or_path": "./base"}, "model='./base': no such folder"),
        ({"reward_funcs": "math.nothing"}, "reward_funcs: 'math.nothing': the module 'math' has no 'nothing'"),
        ({"sampler": "math:Nothing"}, "sampler: 'math:Nothing': the module 'math' has no 'Nothing'"),
        ({"warm_start_steps": 2, "beta": 0.1}, "beta=0.1 with warm_start_steps=2: the penalty pulls members"),
    ],
)
def test_what_an_arm_names_is_looked_for_before_the_first_run(populora, plan, capsys, settings, said):
    plan.read(arms={"one": {}, "two": settings})
    assert populora() == 2 and f"arm 'two': {said}" in capsys.readouterr().err
    assert not (plan.folder / "out").exists()


def test_metrics_of_reward_functions_are_looked_for_before_the_first_run(populora, plan, capsys):
    measures = {"m": {"metric": "students/rewards/sqrt/mean"}}
    plan.read(
        settings={"reward_funcs": ["math.sqrt"]}, measures=measures | {"n": {"metric": "students/rewards/sqr/mean"}}
    )
    assert populora() == 2
    assert "measures.n: its rounds have no metric 'students/rewards/sqr/mean'. Did you" in capsys.readouterr().err
    plan.read(measures=measures)  # without reward functions
    assert (
        populora() == 2
        and "'students/rewards/sqrt/mean'. Reward functions in self-play: []" in capsys.readouterr().err
    )
    plan.read(settings={"reward_funcs": ["math.sqrt"]}, measures=measures)
    assert populora() == 0


def test_one_job_alone(populora, plan, capsys):
    assert populora("--only", "two/1") == 0
    assert (plan.folder / "out/two/seed_1/population.json").exists()
    assert not (plan.folder / "out/one").exists() and not (plan.folder / "out/results.json").exists()
    with open_log(str(plan.folder / "out/one/seed_0/job.log")):
        assert populora("--only", "one/0") == 1
    assert "other processes already run it" not in capsys.readouterr().err
    assert populora("--only", "two/7") == 2


def test_what_is_listed_and_printed_runs_nothing(populora, plan, capsys):
    assert populora("--dry-run") == 0
    said = capsys.readouterr().out
    assert "one/0: 2 adapters, 4 rounds, 24 rows to learn from" in said
    assert "together: 16 rounds, 96 rows, at most 49,152 completion tokens; 0 of 4 runs are done" in said
    assert not (plan.folder / "out").exists()
    assert populora("--launcher", "print") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["one/0", "two/0", "one/1", "two/1"]
    assert populora("--launcher", "print", "--only", "two/0") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("--only two/0") and not (plan.folder / "out/two").exists()
    assert (plan.folder / "out/experiment.json").exists() and not (plan.folder / "out/one").exists()


def test_nothing_but_commands_is_printed_for_a_scheduler(populora, plan, capsys):
    plain = {"exams": [], "measures": {"solved": {"metric": "solve_rate"}}}
    plan.read(**plain)
    assert populora("--only", "one/0") == 0
    plan.read(**plain, output=str(plan.folder / "new"), reuse=[str(plan.folder / "out")])
    capsys.readouterr()
    assert populora("--launcher", "print") == 0
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()] == ["cd"] * 3
    assert "one/0: the same run is in" in told.err


@pytest.mark.slow
def test_the_list_says_what_is_done(populora, plan, capsys):
    assert populora("--only", "two/1") == 0
    begun = plan.folder / "out/one/seed_1"
    begun.mkdir(parents=True)
    (begun / "history.jsonl").write_text("{}\n{}\n{}\n")
    capsys.readouterr()
    assert populora("--dry-run") == 0
    said = capsys.readouterr().out
    ends = [line.rpartition(": ")[2] for line in said.splitlines()[1:-1]]
    assert ends == ["not begun", "not begun", "3 rounds done", "done"] and "; 1 of 4 runs are done" in said
    assert populora("--dry-run", "--only", "one/1") == 0
    assert (
        "together: 4 rounds, 24 rows, at most 12,288 completion tokens; 0 of 1 runs are done"
        in capsys.readouterr().out
    )


@pytest.mark.slow
def test_the_list_names_a_damaged_run(populora, plan, capsys):
    assert populora("--only", "two/1") == 0
    (plan.folder / "out/two/seed_1/evaluation/evaluation.json").write_text("{")
    capsys.readouterr()
    assert populora("--dry-run") == 0
    said = capsys.readouterr().out.splitlines()
    assert "two/seed_1/evaluation/evaluation.json is damaged" in said[4] and "0 of 4 runs are done" in said[-1]
    assert populora("--launcher", "print") == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_the_list_refuses_what_the_experiment_would_refuse(populora, plan, capsys):
    assert populora("--only", "two/1") == 0
    place = plan.folder / "out/experiment.json"
    before = place.read_bytes()
    plan.read(arms={"one": {}, "two": {"teacher_reward": "learnability"}}, seeds=[0, 1, 2])
    assert populora("--dry-run") == 2
    assert "arms.two changed since the runs of" in capsys.readouterr().err
    plan.read(seeds=[0, 1, 2])  # an addition
    assert populora("--dry-run") == 0
    assert place.read_bytes() == before


def test_results_of_nothing(populora, plan, capsys):
    assert populora("--results") == 1
    assert capsys.readouterr().out.count("missing: training is next") == 4
    assert "Not all runs are done" in (plan.folder / "out/results.html").read_text()


def test_mistakes_end_with_code_2(populora, plan, capsys):
    plan.read(measures={"m": {"metric": "solv_rate"}})
    assert populora() == 2
    assert "populora: error: arm 'one': measures.m" in capsys.readouterr().err
    assert populora("--jobs", "0") == 2


@pytest.mark.parametrize(
    ("slurm", "words"),
    [
        ({"timeout_min": "ten"}, """"timeout_min" expected type <class 'int'> (but value: "ten")"""),
        ({"max_num_timeout": "often"}, "slurm: max_num_timeout='often' must be a whole number"),
        ({"colour": 1}, "'colour'"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--launcher", "slurm")])
def test_wrong_parameters_of_slurm_are_told_in_one_sentence(populora, plan, capsys, slurm, words, options):
    pytest.importorskip("submitit", reason="submitit is not installed")
    plan.read(slurm=slurm)
    assert populora(*options) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert not (plan.folder / "out").exists()
