"""The names of all files and folders of a run. No other module contains one of these names
(tests/run_files/test_layout.py).

Adapters are in folders with the members' names.
"""

import os
import re
from collections.abc import Mapping


# The record of a run, in its output_dir.
HISTORY_FILE = "history.jsonl"  # one summary per round
LINEAGE_FILE = "lineage.jsonl"  # one replacement event per line
ROUNDS_FOLDER = "rounds"  # one table per round, one row per completion
TABLE_SUFFIX = ".parquet"  # of the tables in it, and in others
PROBES_FILE = "probes.jsonl"  # one evaluation along the run per line
PROBES_FOLDER = "probes"  # one table per evaluation, one row per answer
RUN_FILE = "run.json"  # base model, settings and versions, for the commands that open a run
CARD_FILE = "README.md"
PLOTS_FOLDER = "plots"
REPORT_FILE = "report.html"  # the page that `populora report` writes
EVALUATION_FOLDER = "evaluation"  # what `populora evaluate` leaves: a table of answers per exam, and
EVALUATION_FILE = "evaluation.json"  # the scores
PARTIAL_SUFFIX = ".partial.jsonl"  # answers of an evaluation that has not ended

# State, in a checkpoint and in the output_dir of a finished run.
POPULATION_FILE = "population.json"  # the table of members
STATE_FILE = "self_play.json"  # ratings, buffer, lineage, strikes of the guard
HALL_FOLDER = "hall_of_fame"
HALL_FILE = "hall_of_fame.json"  # the table of champions, in that folder
FOUNDERS_FOLDER = "founders"  # students as they were at the start, where probes play against them
MANIFEST_FILE = "manifest.json"  # every file of a checkpoint with its size and checksum
STAGING_FOLDER = ".saving"  # what is being written, and what a killed process left of it
SCRATCH_SUFFIX = ".saving"  # the same of a single file
UPLOAD_PREFIX = ".uploading-"  # folders of files as they were when their upload began
LAST_CHECKPOINT = "last-checkpoint"  # the newest checkpoint, in a repository on the Hub

# Names that PEFT and transformers give.
ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_FILES = (ADAPTER_FILE, "adapter_model.bin")  # either; `populora` writes the first
ADAPTER_CONFIG_FILE = "adapter_config.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
TRAINER_STATE_FILE = "trainer_state.json"
TRAINING_ARGS_FILE = "training_args.bin"
OPTIMIZER_FILE = "optimizer.pt"
SCHEDULER_FILE = "scheduler.pt"

# What commands leave in a folder of their own.
EVOLUTION_FILE = "evolution.json"  # how `populora evolve` made the child beside it
RETENTION_FILE = "retention.json"
RETENTION_PLOT = "retention.png"
COMPARISON_PAGE = "comparison.html"  # of several runs

# Of an experiment, in its folder and in those of its jobs, which are the output_dirs of runs.
PLAN_FILE = "experiment.json"  # what was registered before the runs
RESULTS_FILE = "results.json"
RESULTS_PAGE = "results.html"
JOB_RECIPE = "recipe.yaml"  # all settings of the run
JOB_LOG = "job.log"  # what its processes have said; locked while one of them lives
SUBMITTED_FOLDER = "submitted"  # what submitit keeps of jobs that SLURM runs

CHECKPOINT_PREFIX = "checkpoint-"  # and the training step
DAMAGED_SUFFIX = ".damaged"  # of a checkpoint that `auto` passed over


def checkpoint_folder(output_dir: str, step: int) -> str:
    return os.path.join(output_dir, f"{CHECKPOINT_PREFIX}{step}")


def checkpoint_step(folder: str) -> int:
    return int(folder.rpartition(CHECKPOINT_PREFIX)[2])


def checkpoints(output_dir: str) -> list[str]:
    """All `checkpoint-N` of a folder, complete or not, oldest first."""
    return sorted(_named(output_dir, rf"{CHECKPOINT_PREFIX}\d+"), key=checkpoint_step)


def damaged_checkpoints(output_dir: str) -> list[str]:
    """Checkpoints that resumed runs have passed over and put aside."""
    return _named(output_dir, rf"{CHECKPOINT_PREFIX}\d+{re.escape(DAMAGED_SUFFIX)}")


def left_by_a_run(output_dir: str) -> list[str]:
    """Paths of files that a run has left in a folder, and that a new run there would overwrite or mix with its own."""
    record = (HISTORY_FILE, LINEAGE_FILE, ROUNDS_FOLDER, PROBES_FILE, PROBES_FOLDER, PLOTS_FOLDER, EVALUATION_FOLDER)
    state = (STATE_FILE, POPULATION_FILE, HALL_FOLDER, FOUNDERS_FOLDER, STAGING_FOLDER)
    paths = (os.path.join(output_dir, name) for name in record + state)
    found = [path for path in paths if os.path.exists(path)]
    return [*found, *uploads(output_dir), *checkpoints(output_dir), *damaged_checkpoints(output_dir)]


def holds_a_run(output_dir: str) -> bool:
    """Whether a folder has results of a run: a finished round, a probe, a checkpoint or members."""
    names = (HISTORY_FILE, PROBES_FILE, POPULATION_FILE)
    return any(os.path.isfile(os.path.join(output_dir, name)) for name in names) or bool(checkpoints(output_dir))


def begun_by_a_run(output_dir: str) -> bool:
    """Whether a run has written into a folder. `run.json` is its first file."""
    return os.path.isfile(os.path.join(output_dir, RUN_FILE)) or holds_a_run(output_dir)


def uploads(output_dir: str) -> list[str]:
    """Folders with files for uploads, including uploads that a kill has ended."""
    return _named(output_dir, rf"{re.escape(UPLOAD_PREFIX)}.*")


def _named(folder: str, pattern: str) -> list[str]:
    """Paths of what is in a folder, if there is one, under names that match a pattern."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if re.fullmatch(pattern, name)]


def round_file(output_dir: str, round: int) -> str:
    """The table of a round. Names sort in the order of rounds."""
    return os.path.join(output_dir, ROUNDS_FOLDER, f"round_{round:06d}{TABLE_SUFFIX}")


def answers_file(folder: str, exam: str) -> str:
    """The table of answers to an exam, from its name as a file name."""
    return os.path.join(folder, f"{exam}{TABLE_SUFFIX}")


def probe_file(output_dir: str, step: int) -> str:
    """The table of an evaluation during the run. Names sort in the order of steps."""
    return os.path.join(output_dir, PROBES_FOLDER, f"step_{step:06d}{TABLE_SUFFIX}")


def founder_file(name: str) -> str:
    """Name of a founder's weights."""
    return f"{name}.safetensors"


def champion_file(champion: Mapping) -> str:
    """Name of a champion's weights in the hall of fame, from its row in the table."""
    return f"{champion['name']}_v{champion['version']}_step{champion['step']}.safetensors"
