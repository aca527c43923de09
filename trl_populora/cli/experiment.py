"""`populora experiment`: runs an experiment or a sweep from one YAML file, and writes its results.

After a kill, the same command continues. docs/experiments.md explains the YAML file and the results.
"""

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never


if TYPE_CHECKING:
    from ..experiments import Experiment, Job
    from ..experiments.checks import Checked
    from ..experiments.plan import Asked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.yaml", help="the experiment")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="number of runs at the same time (default: the experiment's)"
    )
    parser.add_argument(
        "--launcher",
        choices=("local", "slurm", "print"),
        default="local",
        help="local: processes on this machine; slurm: submit jobs and return; print: print a command for each job",
    )
    parser.add_argument("--only", metavar="ARM/SEED", help="run only this one, and write no results")
    parser.add_argument("--results", action="store_true", help="run nothing, and write the results of existing runs")
    parser.add_argument("--dry-run", action="store_true", help="list the runs, their sizes and what is done")


def run(options: argparse.Namespace) -> int:
    from ..experiments import read_experiment
    from ..experiments.checks import check, check_sources
    from ..experiments.registration import check_registered, register
    from ..experiments.reuse import reuse_runs
    from ..recipe import read_mapping
    from ..reporting.experiment_view import ExperimentView

    experiment = read_experiment(options.file)
    jobs = [experiment.job(options.only)] if options.only else experiment.all_jobs
    if options.jobs is not None and options.jobs < 1:
        raise ValueError(f"--jobs {options.jobs} must be at least 1")
    base = read_mapping(experiment.recipe)
    checked = check(experiment, base)
    if options.dry_run:
        check_registered(experiment, base)
        list_jobs(experiment, jobs, checked)
        return 0
    if not options.results:
        check_sources(experiment, base, jobs)
    registered = register(experiment, base, options.file, checked.exam_names)
    asked = experiment.asked(checked.exam_names.values())
    rounds = {arm: size.rounds for arm, size in checked.sizes.items()}
    commands = options.launcher == "print" and not options.results  # and nothing else, on standard output
    told = sys.stderr if commands else None
    with ExperimentView({job.name: checked.sizes[job.arm].rounds for job in jobs}, file=told) as view:
        for folder in experiment.reuse:
            if not os.path.isdir(folder):
                view.note(f"reuse: {folder} does not exist here; no run is taken from it")
        for name, folder in reuse_runs(experiment, base, jobs, checked.exam_versions).items():
            view.note(f"{name}: the same run is in {folder}; it is used")
        if options.results:
            return write_results(experiment, registered, {}, rounds, view)
        if options.launcher != "local":
            return hand_over(experiment, options, jobs, asked, view)
        problems = run_here(experiment, base, jobs, asked, options, view)
        if problems is None:
            view.note("Stopped. The same command continues from there.")
            return 130
        if options.only:
            return 1 if problems else 0
        return write_results(experiment, registered, problems, rounds, view)


def run_here(
    experiment: "Experiment",
    base: Mapping[str, Any],
    jobs: "Sequence[Job]",
    asked: "Asked",
    options: argparse.Namespace,
    view: Any,
) -> dict[str, str] | None:
    """Runs jobs on this machine; returns those that failed, with the reason, or `None` if it was stopped."""
    from ..experiments.jobs import Commands, run_jobs, shares, visible_gpus

    slots = 1 if options.only else options.jobs or experiment.jobs
    environment = shares(slots, cores=len(os.sched_getaffinity(0)), gpus=visible_gpus())
    before = signal.signal(signal.SIGTERM, stop)
    try:
        command = Commands(experiment, base)
        return run_jobs(jobs, asked, command, view, slots=slots, environment=environment, wait=not options.only)
    except KeyboardInterrupt:
        return None
    finally:
        signal.signal(signal.SIGTERM, before)


def stop(*_: object) -> Never:
    """SIGTERM is what SLURM and others send first: end as after Ctrl-C, with all that was started."""
    raise KeyboardInterrupt


def hand_over(
    experiment: "Experiment", options: argparse.Namespace, jobs: "Sequence[Job]", asked: "Asked", view: Any
) -> int:
    """Prints a command for each job that is not done, or hands them to SLURM."""
    from ..experiments.jobs import Stage, state
    from ..experiments.launchers import printed, submit

    jobs = [job for job in jobs if state(job, asked)[0] is not Stage.DONE]
    if options.launcher == "print":
        for job in jobs:
            print(printed(options.file, job))
        return 0
    for name, number in submit(experiment, options.file, jobs).items():
        view.note(f"{name}: job {number}")
    view.note(f"When they are done: populora experiment {options.file} --results")
    return 0


def write_results(
    experiment: "Experiment",
    registered: Mapping[str, Any],
    problems: Mapping[str, str],
    rounds: Mapping[str, int | None],
    view: Any,
) -> int:
    """Writes `results.json` and the page, and shows the table; returns 1 if a run is missing."""
    from ..experiments.results import results
    from ..reporting.experiment_page import experiment_page
    from ..run_files.files import write_file, write_json
    from ..run_files.layout import RESULTS_FILE, RESULTS_PAGE

    record, comparison = results(experiment, registered, problems, rounds)
    path, page = (os.path.join(experiment.output, name) for name in (RESULTS_FILE, RESULTS_PAGE))
    view.tables(record)  # first: it is there even if nothing can be written
    write_json(path, record)
    view.note(f"\nResults: {path}")
    try:
        write_file(page, experiment_page(record, comparison))
        view.note(f"Page: {page}")
    except ValueError as error:
        view.note(f"No page: {error}")
    return 0 if record["complete"] else 1


def list_jobs(experiment: "Experiment", jobs: "Sequence[Job]", checked: "Checked") -> None:
    """What would be run, how much it is by the settings, and how much of it is done."""
    from ..experiments.jobs import Stage, begun, rounds_done, state

    exams = list(checked.exam_names.values())
    print(f"{experiment.name}: {len(jobs)} runs, {len(experiment.arms)} arms, {len(experiment.seeds)} seeds, exams: "
          f"{', '.join(exams) or 'none'}")  # fmt: skip
    states = {job: state(job, experiment.asked(exams)) for job in jobs}
    done = [job for job, (now, _) in states.items() if now is Stage.DONE]
    for job in jobs:
        size, rounds = checked.sizes[job.arm], rounds_done(job)
        told = "rounds by its data" if size.rounds is None else (
            f"{size.rounds:,} rounds, {size.rows:,} rows to learn from, at most {size.completions:,} completions of "
            f"{size.tokens:,} tokens together"
        )  # fmt: skip
        how = "done" if job in done else f"{rounds:,} rounds done" if rounds or begun(job) else "not begun"
        print(f"{job.name}: {size.members} adapters, {told}; {job.folder}: {states[job][1] or how}")
    sizes = [checked.sizes[job.arm] for job in jobs]
    rounds, rows, tokens = (sum(getattr(size, name) or 0 for size in sizes) for name in ("rounds", "rows", "tokens"))
    print(f"together: {rounds:,} rounds, {rows:,} rows, at most {tokens:,} completion tokens; {len(done)} of "
          f"{len(jobs)} runs are done")  # fmt: skip
