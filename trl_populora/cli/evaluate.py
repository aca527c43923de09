"""`populora evaluate`: what members and the base score in exams: held-out tasks, public benchmarks, your own.

An evaluation that was stopped goes on where it was. docs/evaluation.md says what the numbers mean.
"""

from __future__ import annotations

import argparse
import os

from ..run_files.layout import EVALUATION_FILE, EVALUATION_FOLDER


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="*", metavar="RUN", help="output_dir of a run, or a checkpoint in it")
    parser.add_argument(
        "--exams",
        "--benchmarks",
        nargs="+",
        default=["held_out"],
        metavar="NAME",
        help="held_out, held_out_easy, tasks:PATH, a benchmark such as gsm8k, or module:Name (default: held_out)",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="the first N questions of each exam; all if unset")
    parser.add_argument("--data", metavar="FOLDER", help="folder with the files of benchmarks; the Hub if unset")
    parser.add_argument("--members", nargs="+", metavar="NAME", help="members to evaluate; all students if unset")
    parser.add_argument("--teachers", action="store_true", help="the teachers too")
    parser.add_argument("--base", metavar="MODEL", help="base model; the recorded one if unset")
    parser.add_argument("--no-base", action="store_true", help="do not evaluate the base")
    parser.add_argument("--samples", type=int, metavar="K", default=1, help="answers per question (default: 1)")
    parser.add_argument("--temperature", type=float, default=0.0, help="default: 0, the likeliest answer")
    parser.add_argument("--seed", type=int, default=0, help="of the noise, where the temperature is not 0")
    parser.add_argument(
        "--max-completion-length", type=int, metavar="N", help="tokens of an answer; the exam's or run's if unset"
    )
    parser.add_argument("--batch-size", type=int, metavar="N", help="answers written at once; the run's if unset")
    parser.add_argument("--output", metavar="FOLDER", help=f"folder for the results; RUN/{EVALUATION_FOLDER} if unset")


def run(options: argparse.Namespace) -> int:
    from ..evaluation import make_exams
    from ..evaluation.evaluating import Decoding, fingerprints, take_exam
    from ..evaluation.records import save_evaluation
    from ..reporting.evaluation_view import EvaluationView
    from ..reporting.model_card import versions
    from ..run_files.run import open_run
    from .runs import load_population, make_executor, make_sampler, make_task_types

    (folder,) = options.folders
    opened = open_run(folder, base=options.base)
    members = options.members or [n for n in opened.members if options.teachers or not n.startswith("teacher")]
    unknown = sorted(set(members) - set(opened.members))
    if unknown:
        raise ValueError(f"no such members: {unknown}; choose from {list(opened.members)}")
    decoding = Decoding(
        options.samples,
        options.temperature,
        options.max_completion_length,
        options.seed,
        options.batch_size or opened.setting("generation_rows", 64),
    )
    exams = make_exams(options.exams, make_task_types(opened), data=options.data, limit=options.limit)
    output = options.output or os.path.join(folder, EVALUATION_FOLDER)
    population, tokenizer = load_population(opened)
    sampler = make_sampler(opened, population, tokenizer, temperature=0.0)
    sampler.batch_size = decoding.rows_per_call
    weights = fingerprints(sampler, members)
    identity = {"weights": weights, "versions": versions(), "dtype": str(population.base_model.dtype)}
    runs = []
    with EvaluationView() as view, make_executor(opened) as executor:
        view.note(f"{folder}: {len(members)} members, {', '.join(f'{e.name} ({len(e.questions)})' for e in exams)}")
        try:
            for exam in exams:
                view.begin(exam.name)
                runs.append(
                    take_exam(
                        exam,
                        members,
                        sampler,
                        executor.run_many,
                        folder=output,
                        decoding=decoding,
                        base=not options.no_base,
                        identity=identity,
                        on_progress=view.progress,
                    )
                )
        except KeyboardInterrupt:
            view.note(f"Stopped. The answers so far are in {output}; the same command goes on from there.")
            return 130
        about = {"run": folder, "base": opened.base, "template": sampler.template, **identity}
        record = save_evaluation(output, runs, about)
        for one in record["exams"]:
            view.table(one)
        view.note(f"\nScores: {os.path.join(output, EVALUATION_FILE)}")
    return 0
