"""Jobs as processes: what is done is skipped, what failed ends nothing else, what was stopped leaves nobody behind."""

import os
import signal
import subprocess
import sys

import pytest
import yaml

from trl_populora.experiments.jobs import Commands, Stage, rounds_done, run_jobs, shares, stage
from trl_populora.experiments.plan import Asked
from trl_populora.run_files.files import open_log


EXAMS = Asked(("held_out_easy[:2]",))


def run(plan, view, command, **options):
    return run_jobs(plan.read().all_jobs, EXAMS, command, view, **options)


def test_every_job_is_trained_and_examined_and_then_skipped(plan, view, stub):
    assert run(plan, view, stub(), slots=2) == {}
    jobs = plan.read().all_jobs
    assert all(stage(job, EXAMS) is Stage.DONE and rounds_done(job) == 4 for job in jobs)
    assert view.counts[-1] == ({job.name: 4 for job in jobs}, [])
    log = (plan.folder / "out/one/seed_0/job.log").read_text()
    assert log.count("\n$ ") == 2 and "\ntrained\n" in log
    view.notes.clear()
    assert run(plan, view, lambda job, stage: pytest.fail("nothing is left to do")) == {}
    assert view.notes == [f"{job.name}: done already" for job in jobs]


@pytest.mark.slow
def test_a_failure_ends_no_other_job(plan, view, stub):
    problems = run(plan, view, stub(**{"one/0": "print('hm'); raise SystemExit('no such thing')", "two/1": "pass"}))
    assert problems.keys() == {"one/0", "two/1"}
    assert "training ended with exit code 1; its log ends with: no such thing (" in problems["one/0"]
    assert "job.log)" in problems["one/0"]
    assert "training was stopped before its last round" in problems["two/1"]  # it left no population
    states = {job.name: stage(job, EXAMS) for job in plan.read().all_jobs}
    assert states == {"one/0": Stage.TRAIN, "two/0": Stage.DONE, "one/1": Stage.DONE, "two/1": Stage.TRAIN}
    assert run(plan, view, stub()) == {}


@pytest.mark.slow
@pytest.mark.parametrize("at", [Stage.TRAIN, Stage.EXAMS])
def test_a_job_that_cannot_start_ends_no_other_job(plan, view, stub, at):
    """Such as a full disk when its recipe is written, while others run."""

    def command(job, now):
        if (job.name, now) == ("two/0", at):
            raise OSError(28, "No space left on device", "recipe.yaml")
        return stub()(job, now)

    problems = run(plan, view, command, slots=2)
    assert problems == {"two/0": "[Errno 28] No space left on device: 'recipe.yaml'"}
    states = [stage(job, EXAMS) for job in plan.read().all_jobs]
    assert states == [Stage.DONE, at, Stage.DONE, Stage.DONE]
    (free := open_log(str(plan.folder / "out/two/seed_0/job.log"))).close()
    assert free is not None and run(plan, view, stub()) == {}


def test_a_folder_that_is_damaged_or_in_the_way_ends_no_other_job(plan, view, stub):
    (plan.folder / "out/two").mkdir(parents=True)
    (plan.folder / "out/two/seed_0").write_text("a file")
    damaged = plan.folder / "out/one/seed_1"
    (damaged / "evaluation").mkdir(parents=True)
    (damaged / "population.json").write_text("{}")
    (damaged / "evaluation/evaluation.json").write_text("torn")
    problems = run(plan, view, stub())
    assert problems.keys() == {"two/0", "one/1"}
    assert "out/two/seed_0" in problems["two/0"] and "evaluation.json is damaged" in problems["one/1"]
    assert "one/0: done" in view.notes and "two/1: done" in view.notes


def test_the_log_of_a_job_that_leaves_damage_is_free_at_once(plan, view, stub):
    first = plan.read().all_jobs[0]
    damage = f"import os\nos.makedirs({first.folder!r} + '/evaluation')\n"
    damage += f"open({first.folder!r} + '/population.json', 'w').write('{{}}')\n"
    damage += f"open({first.folder!r} + '/evaluation/evaluation.json', 'w').write('torn')\n"
    free = []

    def command(job, now):
        if job != first:
            log = open_log(os.path.join(first.folder, "job.log"))
            free.append(log is not None)
            if log is not None:
                log.close()
        return stub(**{first.name: damage})(job, now)

    problems = run(plan, view, command)
    assert problems.keys() == {first.name} and "evaluation.json is damaged" in problems[first.name]
    assert free and all(free)


def test_a_line_that_cannot_be_logged_is_no_reason_not_to_run(plan, view, stub, monkeypatch):
    class Full:
        """A log on a full disk."""

        def __init__(self, file) -> None:
            self.file, self.name, self.close, self.fileno = file, file.name, file.close, file.fileno

        def write(self, line) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("trl_populora.experiments.jobs.open_log", lambda path: Full(open_log(path)))
    assert run(plan, view, stub()) == {}
    assert "$ " not in (plan.folder / "out/one/seed_0/job.log").read_text()


def test_exams_alone_are_taken_where_training_has_ended(plan, view, stub):
    (job, *_) = jobs = plan.read().all_jobs
    run_jobs([job], Asked(), stub(), view)
    stages = []
    run_jobs(jobs[:1], EXAMS, lambda job, now: (stages.append(now), stub()(job, now))[1], view)
    assert stages == [Stage.EXAMS]


def test_what_other_processes_run_is_waited_for(plan, view, stub):
    """As after a kill that took only the command: its processes go on, and hold the log."""
    job = plan.read().all_jobs[0]
    log = open_log(os.path.join(job.folder, "job.log"))
    words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    other = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log)
    log.close()
    assert run_jobs([job], EXAMS, stub(), view, wait=False) == {"one/0": "other processes run it"}
    assert view.notes.pop() == "one/0: other processes already run it" and not view.notes

    def end_the_other(text):
        view.notes.append(text)
        if "waiting" in text:
            other.communicate()

    view.note = end_the_other
    assert run_jobs([job], EXAMS, stub(), view) == {}
    assert (
        view.notes[0] == "one/0: other processes already run it; waiting for them" and view.notes[-1] == "one/0: done"
    )


def test_stopping_ends_all_that_was_started(plan, view, monkeypatch):
    """The grandchild, which ignores the first signal, holds the log until it is dead."""
    code = "import signal, subprocess, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += "print('up', flush=True)\nsubprocess.run([sys.executable, '-c', 'import sys; sys.stdin.read()'])\n"
    code += "signal.pause()"
    log = plan.folder / "out/one/seed_0/job.log"

    def look(done, running):
        if log.read_text().endswith("up\n"):
            raise KeyboardInterrupt

    view.progress = look
    monkeypatch.setattr("trl_populora.experiments.jobs.GRACE", 0.1)
    with pytest.raises(KeyboardInterrupt):
        run(plan, view, lambda job, stage: [sys.executable, "-c", code])
    (free := open_log(str(log))).close()
    assert free is not None


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_a_process_starts_leaves_none(plan, view, monkeypatch, signum):
    """It comes after the process is there, and before anybody knows of it."""
    started, real = [], subprocess.Popen

    def start(*args, **options):
        started.append(real(*args, **options))
        os.kill(os.getpid(), signum)
        return started[-1]

    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("the handler of the command is kept for later"))
    monkeypatch.setattr(subprocess, "Popen", start)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(plan, view, lambda job, stage: [sys.executable, "-c", "import time; time.sleep(60)"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(started) == 1 and started[0].returncode == -signal.SIGTERM


def test_exams_run_where_the_recipe_accepts_no_sandbox(plan):
    experiment = plan.read()
    job = experiment.job("two/1")
    for told in (True, False):
        base = {"executor_kwargs": {"accept_unsafe": told}}
        assert ("--accept-unsafe" in Commands(experiment, base)(job, Stage.EXAMS)) is told


def test_the_commands_are_the_ordinary_ones(plan):
    experiment = plan.read(exam_samples=4, exam_temperature=0.8, exam_data="data")
    job = experiment.job("two/1")
    train, evaluate = (Commands(experiment, {"seed": 9, "lora_r": 4})(job, now) for now in (Stage.TRAIN, Stage.EXAMS))
    recipe = os.path.join(job.folder, "recipe.yaml")
    assert train == [sys.executable, "-m", "trl_populora.train", "--config", recipe]
    with open(recipe) as file:
        assert yaml.safe_load(file) == {
            "run_name": "small-two-1",
            "lora_r": 4,
            "teacher_reward": "frontier",
            "reserved_exams": ["held_out_easy[:2]"],
            "seed": 1,
            "output_dir": job.folder,
            "resume_from_checkpoint": "auto",
        }
    assert evaluate[3:] == [
        *("evaluate", job.folder, "--exams", "held_out_easy[:2]", "--output", f"{job.folder}/evaluation"),
        *("--samples", "4", "--temperature", "0.8", "--data", "data"),
    ]


def test_jobs_share_cores_and_gpus(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = [shares(3, cores=8, gpus=["4", "7"])(slot) for slot in range(3)]
    assert [one["OMP_NUM_THREADS"] for one in found] == ["2", "2", "2"]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in found] == ["4", "7", "4"]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert shares(16, cores=2)(0)["OMP_NUM_THREADS"] == "5"
