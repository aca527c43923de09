"""`populora retention`: measures how many rounds a child of each operator needs until it scores as well as a clone."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from ..retention import RetentionCurve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", required=True, metavar="RECIPE", help="recipe of the runs, as for `populora train`"
    )
    parser.add_argument(
        "--operators",
        nargs="+",
        metavar="NAME",
        help="operators to test (default: all of the package; clone is always included); dare:p=0.5 sets a parameter, "
        "module:Name is one of your own",
    )
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=[0, 1, 2],
        metavar="N",
        help="seeds; parents and children are trained once with each (default: 0 1 2)",
    )
    parser.add_argument("--parent-rounds", type=int, default=40, metavar="N", help="the parents' rounds (default: 40)")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="the children's rounds (default: 20)")
    parser.add_argument("--every", type=int, default=2, metavar="N", help="rounds between exams (default: 2)")
    parser.add_argument("--tasks", type=int, default=128, metavar="N", help="held-out tasks per type (default: 128)")
    parser.add_argument("--exam", metavar="NAME", help="an exam in the place of these tasks, such as gsm8k[:200]")
    parser.add_argument("--output", metavar="FOLDER", help="folder (default: the recipe's output_dir)")


def run(options: argparse.Namespace) -> int:
    from ..recipe import read_recipe
    from ..recipe_checks import check_call

    argv = ["--config", options.config]
    recipe = read_recipe(argv)
    check_call(argv, recipe)
    folder = options.output or recipe.get("output_dir") or "runs/retention"
    if os.path.isfile(folder):
        raise ValueError(f"--output {folder} is a file; name a folder")

    from ..evolution import OPERATORS
    from ..output import steady_output
    from ..retention import measure_retention, save_curves
    from ..run_files.files import check_writable, gone_if_unused
    from ..run_files.layout import RETENTION_FILE, RETENTION_PLOT

    place = os.path.join(folder, RETENTION_FILE)
    with steady_output(), gone_if_unused(folder, lambda: any(files for _, _, files in os.walk(folder))):
        check_writable(folder, option="--output")
        curves = measure_retention(
            ["--config", options.config],
            options.operators or list(OPERATORS),
            folder=folder,
            **{
                name: getattr(options, name) for name in ("seeds", "parent_rounds", "rounds", "every", "tasks", "exam")
            },
            report=lambda line: print(line, flush=True),
        )
    print()
    print_table(curves)
    save_curves(curves, place)  # again: the disk may have been full
    print(f"\nCurves: {place}")
    try:
        from ..reporting.retention_plot import save_retention_plot

        print(f"Picture: {save_retention_plot(curves, os.path.join(folder, RETENTION_PLOT))}")
    except ValueError as error:
        print(f"No picture: {error}")
    return 0


def print_table(curves: Sequence[RetentionCurve]) -> None:
    """One line per operator: pass@1 minus the clone's at birth and at the end, in points, and rounds to recovery.

    Differences have one standard error of the mean over seeds, computed from the spread over tasks. The line of the
    clone has its own pass@1 instead. The first line has that of the first parents.
    """
    from ..reporting.retention_plot import standard_errors

    names = list(dict.fromkeys(curve.operator for curve in curves))
    width = max(map(len, names))
    parent = sum(curve.parent_pass_at_1 for curve in curves) / len(curves)
    print(f"First parents: pass@1 {100 * parent:.1f}%. Children minus the clone in the same round, means over seeds:")
    print(f"{'':{width}}  at birth       at the end     rounds until level, by seed")
    for name in names:
        own = [curve for curve in curves if curve.operator == name]
        values = [curve.pass_at_1 if name == "clone" else curve.difference for curve in own]
        first, last = (100 * sum(value[i] for value in values) / len(own) for i in (0, -1))
        if name == "clone":
            print(f"{name:{width}}  {first:5.1f} %        {last:5.1f} %        (its own pass@1)")
            continue
        errors = 100 * standard_errors(own)[[0, -1]]
        steps = ["never" if curve.steps_to_recover is None else str(curve.steps_to_recover) for curve in own]
        cells = [f"{value:+5.1f} ± {error:3.1f} %" for value, error in zip((first, last), errors, strict=True)]
        print(f"{name:{width}}  {'  '.join(cells)}  {' '.join(steps)}")
