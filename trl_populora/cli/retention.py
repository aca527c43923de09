"""`populora retention`: how many steps a child of each variation operator needs to be back at its parent's level."""

import os


def add_arguments(parser) -> None:
    parser.add_argument(
        "--config", required=True, metavar="RECIPE", help="recipe of the runs, as for `populora train`"
    )
    parser.add_argument(
        "--operators", nargs="+", metavar="NAME", help="operators to test (default: all); dare:p=0.5 sets a parameter"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="default: 0 1 2")
    parser.add_argument("--parent-rounds", type=int, default=40, metavar="N", help="the parents' rounds (default: 40)")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="the children's rounds (default: 20)")
    parser.add_argument("--every", type=int, default=2, metavar="N", help="rounds between exams (default: 2)")
    parser.add_argument("--tasks", type=int, default=128, metavar="N", help="held-out tasks per type (default: 128)")
    parser.add_argument("--output", metavar="FOLDER", default="runs/retention", help="default: runs/retention")


def run(options) -> int:
    from ..evolution import OPERATORS
    from ..retention import measure_retention, save_curves

    curves = measure_retention(
        ["--config", options.config],
        options.operators or list(OPERATORS),
        folder=options.output,
        seeds=options.seeds,
        parent_rounds=options.parent_rounds,
        rounds=options.rounds,
        every=options.every,
        tasks=options.tasks,
        report=lambda line: print(line, flush=True),
    )
    print()
    print_table(curves)
    path = os.path.join(options.output, "retention.json")
    save_curves(curves, path)
    print(f"\nCurves: {path}")
    try:
        from ..reporting.retention_plot import save_retention_plot

        print(f"Picture: {save_retention_plot(curves, os.path.join(options.output, 'retention.png'))}")
    except ValueError as error:
        print(f"No picture: {error}")
    return 0


def print_table(curves) -> None:
    """One line per operator: what its children lost at birth, where they ended, and when they were back."""
    names = list(dict.fromkeys(curve.operator for curve in curves))
    width = max(map(len, names))
    print(f"{'':{width}}  at birth  at the end  rounds until back, by seed")
    for name in names:
        own = [curve for curve in curves if curve.operator == name]
        first, last = (sum(curve.difference[i] for curve in own) / len(own) for i in (0, -1))
        steps = ["never" if curve.steps_to_recover is None else str(curve.steps_to_recover) for curve in own]
        print(f"{name:{width}}  {100 * first:+7.1f}%  {100 * last:+9.1f}%  {' '.join(steps)}")
