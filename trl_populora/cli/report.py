"""`populora report`: tables and plots of a run.

Reads `history.jsonl` and `lineage.jsonl` of the run folder; needs no model.
"""

import argparse
import os

from ..run_files.layout import HISTORY_FILE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="output_dir of a run")
    parser.add_argument("--output", help="folder for the plots; FOLDER/plots if unset")
    parser.add_argument("--no-plots", action="store_true", help="print the tables only")


def run(options: argparse.Namespace) -> int:
    if not os.path.isfile(os.path.join(options.folder, HISTORY_FILE)):
        raise ValueError(f"{options.folder} has no {HISTORY_FILE}; give the output_dir of a run")

    from ..reporting import family_tree, read_history, read_probes, save_plots
    from ..reporting.probes import probe_line
    from ..reporting.tables import compute_table, event_line, print_table, round_line, round_tables
    from ..run_files.layout import PLOTS_FOLDER

    history = read_history(options.folder)
    if not history:
        raise ValueError(f"{options.folder} has no finished round yet")
    last = history[-1]
    print(f"{options.folder}: {len(history)} rounds\n")
    for number in sorted({0, len(history) // 2, len(history) - 1}):
        print(round_line(history[number]))
    print()
    for table in round_tables(last, plain=True):
        print_table(table)
        print()
    print_table(compute_table(history, plain=True))
    print()
    events = [(summary.round, event) for summary in history for event in summary.events]
    if events:
        print("Replacements")
        for number, event in events:
            print(f"  round {number + 1}: {event_line(event)}")
        print("\nFamily tree (* lives)")
        names = [member.name for member in last.members]
        print("\n".join(f"  {line}" for line in family_tree(options.folder, names).splitlines()))
    probes = read_probes(options.folder)
    if probes:
        print("\nProbes along the run")
        print("\n".join(f"  {probe_line(record)}" for record in probes))
    for alarm in last.alarms:
        print(f"\nAlarm: {alarm}")
    if not options.no_plots:
        paths = save_plots(history, options.output or os.path.join(options.folder, PLOTS_FOLDER), probes=probes)
        print("\nPlots")
        for path in paths:
            print(f"  {path}")
    return 0
