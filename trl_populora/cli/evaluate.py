"""`populora evaluate`: greedy pass@1 of every member, and of the base, on held-out tasks.

The tasks are drawn from the seed generator; those that the run's buffers hold are left out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..run_files.layout import EVALUATION_FILE


if TYPE_CHECKING:
    from ..evaluation import Score


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="output_dir of a run, or a checkpoint in it")
    parser.add_argument("--tasks", type=int, default=64, metavar="N", help="tasks per type (default: 64)")
    parser.add_argument("--members", nargs="+", metavar="NAME", help="members to evaluate; all students if unset")
    parser.add_argument("--families", nargs="+", metavar="NAME", help="seed families; those of the run if unset")
    parser.add_argument("--base", help="base model; the recorded one if unset")
    parser.add_argument("--no-base", action="store_true", help="do not evaluate the base")
    parser.add_argument("--output", help=f"file for the scores; FOLDER/{EVALUATION_FILE} if unset")


def run(options: argparse.Namespace) -> int:
    from ..evaluation import evaluate_members, held_out_tasks
    from ..run_files.files import write_json
    from ..run_files.run import open_run
    from .runs import load_population, make_executor, make_sampler, make_task_types

    if options.tasks < 1:
        raise ValueError(f"--tasks {options.tasks} must be at least 1")
    opened = open_run(options.folder, base=options.base)
    members = options.members or [n for n in opened.members if not n.startswith("teacher")]
    unknown = sorted(set(members) - set(opened.members))
    if unknown:
        raise ValueError(f"no such members: {unknown}; choose from {list(opened.members)}")
    types = make_task_types(opened)
    tasks = held_out_tasks(
        types,
        options.tasks,
        families=options.families or opened.setting("seed_families", None),
        exclude={task["id"] for task in opened.source.get("buffer", {"tasks": ()})["tasks"]},
    )
    print(f"{len(members)} members of {options.folder}, {len(tasks)} held-out tasks ({', '.join(types)})", flush=True)
    population, tokenizer = load_population(opened)
    sampler = make_sampler(opened, population, tokenizer, temperature=0.0)
    with make_executor(opened) as executor:
        scores = evaluate_members(
            members, sampler, tasks, task_types=types, run_many=executor.run_many, base=not options.no_base
        )
    print_scores(scores, types)
    path = options.output or os.path.join(options.folder, EVALUATION_FILE)
    data = {"tasks": len(tasks), "base": opened.base, "scores": {name: s.to_json() for name, s in scores.items()}}
    write_json(path, data)
    print(f"\nScores: {path}")
    return 0


def print_scores(scores: Mapping[str, Score], types: Iterable[str]) -> None:
    """One line per member, best first, then the base and the mean."""
    apart = [name for name in ("base", "mean") if name in scores]
    order = sorted(set(scores) - set(apart), key=lambda name: (-scores[name].pass_at_1, name)) + apart
    width = max(map(len, order))
    print(f"\n{'':{width}}  pass@1  95% interval   well-formed  " + "  ".join(f"{name:>6}" for name in types))
    for name in order:
        score = scores[name]
        interval = f"{100 * score.low:5.1f} - {100 * score.high:5.1f}"
        kinds = "  ".join(
            f"{100 * score.by_type[kind]:5.1f}%" if kind in score.by_type else "     -" for kind in types
        )
        print(f"{name:{width}}  {100 * score.pass_at_1:5.1f}%  {interval}  {100 * score.well_formed:10.1f}%  {kinds}")
    spared = sum(score.spared for name, score in scores.items() if name != "mean")
    if spared:
        print(f"{spared} answers are in no share: the executor failed on them, twice. See `populora doctor`.")
