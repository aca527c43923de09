"""A small experiment, and processes that leave what a run leaves, without one."""

import json
import sys
from dataclasses import replace

import pytest
import yaml

from tests.reporting.conftest import make_round
from trl_populora.experiments import jobs, read_experiment
from trl_populora.experiments.jobs import Stage
from trl_populora.run_files.run import TABLE_VERSION


class Plan:
    """An experiment's file in a folder of its own, with a recipe beside it."""

    def __init__(self, folder) -> None:
        self.folder, self.file = folder, folder / "plan.yaml"
        self.recipe = folder / "recipe.yaml"
        self.write_recipe()
        self.given = {
            "name": "small",
            "question": "Which is better?",
            "hypotheses": ["The second is."],
            "measures": {"solved": {"metric": "solve_rate", "last": 2}, "exam": {"exam": "held_out_easy[:2]"}},
            "recipe": str(self.recipe),
            "arms": {"one": {}, "two": {"teacher_reward": "frontier"}},
            "control": "one",
            "seeds": [0, 1],
            "exams": ["held_out_easy[:2]"],
            "output": str(folder / "out"),
        }

    def write_recipe(self, **changes) -> None:
        settings = {"model_name_or_path": "tiny", "use_cpu": True, "bf16": False, "gradient_checkpointing": False}
        settings |= {"num_teachers": 1, "num_students": 1, "task_types": ["code_o"], "max_steps": 4}
        settings |= {"num_generations": 2, "per_device_train_batch_size": 6, "report_to": "none", "seed": 5}
        settings |= {"evolution_kwargs": {"elites": 1, "fraction": 0.5}, "output_dir": "elsewhere"}
        self.recipe.write_text(yaml.safe_dump(settings | changes))

    def read(self, **changes):
        self.file.write_text(yaml.safe_dump(self.given | changes, sort_keys=False))
        return read_experiment(str(self.file))


@pytest.fixture(autouse=True)
def prompt_jobs(monkeypatch):
    """Jobs that end in a moment are seen to end in a moment."""
    monkeypatch.setattr(jobs, "POLL", 0.01)


@pytest.fixture
def plan(tmp_path):
    return Plan(tmp_path)


class View:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.notes, self.counts = [], []

    def note(self, text) -> None:
        self.notes.append(text)

    def progress(self, done, running) -> None:
        self.counts.append((dict(done), list(running)))


@pytest.fixture
def view():
    return View()


def table_of(students: int) -> dict:
    """`population.json` of a teacher and these students."""
    names = ["teacher_0", *(f"student_{i}" for i in range(students))]
    row = {"version": 0, "operator": "", "parents": []}
    members = [row | {"id": name, "role": name.partition("_")[0]} for name in names]
    sizes = {"num_teachers": 1, "num_students": students, "shared_member": False}
    return {"format": TABLE_VERSION, "members": members, **sizes}


def left_by_training(job) -> dict[str, str]:
    """File -> content. The arm "two" solves more, the more the higher the seed."""
    gain = 0.1 * (1 + job.seed) if job.arm == "two" else 0.0
    made = [make_round(n, solve_rate=0.5 + gain + 0.01 * job.seed) for n in range(4)]
    rounds = [replace(one, members=[m for m in one.members if m.name != "student_1"]).to_json() for one in made]
    reward = "frontier" if job.arm == "two" else "adversarial"
    return {
        "history.jsonl": "".join(f"{json.dumps(one)}\n" for one in rounds),
        "run.json": json.dumps({"model": "tiny", "settings": {"seed": job.seed, "teacher_reward": reward}}),
        "population.json": json.dumps(table_of(1)),
    }


def left_by_exams(job) -> dict[str, str]:
    scores = {"student_0": {"accuracy": 0.25 + 0.25 * (job.arm == "two") * (1 + job.seed)}, "base": {"accuracy": 0.0}}
    exam = {"exam": "held_out_easy[:2]", "scores": scores, "summaries": {}}
    exam["version"] = "1"
    exam["decoding"] = {"samples": 1, "temperature": 0.0}
    return {"evaluation/evaluation.json": json.dumps({"exams": [exam]})}


@pytest.fixture
def stub():
    """Commands in place of training and exams; `stub(**{"two/1": code})` runs other code for a job's training."""

    def make(**instead):
        def command(job, stage):
            files = left_by_training(job) if stage is Stage.TRAIN else left_by_exams(job)
            code = f"import os\nos.makedirs({job.folder!r} + '/evaluation', exist_ok=True)\n"
            code += f"for name, text in {files!r}.items():\n    open({job.folder!r} + '/' + name, 'w').write(text)\n"
            code += "print('trained')"
            return [sys.executable, "-c", instead.get(job.name, code) if stage is Stage.TRAIN else code]

        return command

    return make
