"""`populora report`: shows tables, plots and a page of a run, or a page that compares several runs.

Reads what runs have left in their folders; needs no model.
"""

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..output import printable, steady_output
from ..run_files.files import check_writable
from ..run_files.layout import COMPARISON_PAGE, PLOTS_FOLDER, REPORT_FILE


if TYPE_CHECKING:
    from ..reporting.played_run import PlayedRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders",
        nargs="+",
        metavar="RUN",
        help="output_dir of a run, which may still be running; several runs are compared",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help=f"where the page goes; RUN/{REPORT_FILE} if unset, {COMPARISON_PAGE} here for several runs",
    )
    parser.add_argument("--plots", metavar="DIR", help=f"folder for the plots; RUN/{PLOTS_FOLDER} if unset")
    parser.add_argument("--no-plots", action="store_true", help="write no plots")
    parser.add_argument("--no-page", action="store_true", help="write no page")
    parser.add_argument(
        "--watch", action="store_true", help="write the page again after each round and probe, until interrupted"
    )


def run(options: argparse.Namespace) -> int:
    _check(options)
    if len(options.folders) > 1:
        return _compare(options)
    (options.folder,) = options.folders
    if options.watch:
        return _watch(options)
    from ..reporting import save_plots
    from ..reporting.played_run import read_run

    run = read_run(options.folder)
    written: list[str] = []  # before anything is printed, whose reader may not want to see the end
    problems: list[str] = []
    if not options.no_plots:
        place = options.plots or os.path.join(options.folder, PLOTS_FOLDER)
        try:
            paths = save_plots(run.history, place, probes=run.probes)
            written.append("\n  ".join(["\nPlots", *paths]))
        except OSError as error:
            advice = "choose another --plots, or leave them out with --no-plots"
            problems.append(f"plots cannot be written to {place}: {error.strerror}; {advice}")
        except ValueError as error:  # no matplotlib
            problems.append(str(error))
    if not options.no_page:
        from ..reporting.run_page import write_report

        try:
            path = _written(lambda: write_report(run, options.output), options)
            written.append(f"\nPage: {path}  ({os.path.getsize(path) / 1e6:.1f} MB, open it in a browser)")
        except ValueError as error:
            problems.append(str(error))
    for remark in run.remarks:
        print(f"{remark}\n")
    _print_tables(run)
    for told in written:
        print(told)
    if problems:
        raise ValueError("; ".join(problems))
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.output and os.path.isdir(options.output):
        raise ValueError(f"--output {options.output} is a folder; name a file in it")
    if options.output and os.path.isfile(options.output) and not _is_page(options.output):
        raise ValueError(f"--output {options.output} holds something else than a page; name another file")
    for one, other in (("--watch", "--no-page"), ("--output", "--no-page"), ("--plots", "--no-plots")):
        if all(getattr(options, name.lstrip("-").replace("-", "_")) for name in (one, other)):
            raise ValueError(f"{one} and {other} cannot be used together")
    for option, folder in (
        ("--output", options.output and os.path.dirname(options.output)),
        ("--plots", options.plots),
    ):
        if folder:
            check_writable(folder, option=option)


def _is_page(path: str) -> bool:
    """Whether a file may be replaced by a page: it is one, or empty."""
    with open(path, "rb") as file:
        start = file.read(64).lstrip().lower()
    return not start or start.startswith((b"<!doctype html", b"<html"))


def _compare(options: argparse.Namespace) -> int:
    for name in ("watch", "plots", "no_page"):
        if getattr(options, name):
            raise ValueError(f"--{name.replace('_', '-')} is for one run; several are compared on one page")
    from ..reporting.comparison_page import comparison_page
    from ..run_files.files import write_file

    page, path = comparison_page(options.folders), options.output or COMPARISON_PAGE
    _written(lambda: write_file(path, page), options)
    print(f"Page: {path}  ({os.path.getsize(path) / 1e6:.1f} MB, open it in a browser)")
    return 0


def _watch(options: argparse.Namespace) -> int:
    from ..reporting.run_page import watch

    with steady_output():  # what it prints is only a log
        print("Writing the page after each round and probe; Ctrl-C ends it.", flush=True)
        try:
            _written(lambda: watch(options.folder, options.output, on_page=_tell_page), options)
        except KeyboardInterrupt:
            print()
    return 0


def _tell_page(path: str) -> None:
    print(f"{path}  ({os.path.getsize(path) / 1e6:.1f} MB)", flush=True)


def _written(write: Callable[[], Any], options: argparse.Namespace) -> Any:
    """What `write` returns, or a clear error where the page cannot be written."""
    try:
        return write()
    except OSError as error:
        where = options.output or (options.folders[0] if len(options.folders) == 1 else COMPARISON_PAGE)
        advice = "choose another --output" + ("" if len(options.folders) > 1 else ", or leave it out with --no-page")
        raise ValueError(f"the page cannot be written to {where}: {error.strerror}; {advice}") from None


def _print_tables(run: "PlayedRun") -> None:
    from ..reporting import family_tree
    from ..reporting.probes import probe_line
    from ..reporting.tables import compute_table, counted, event_line, print_table, round_line, round_tables

    history, last = run.history, run.last
    print(f"{run.folder}: {counted(last.round + 1, 'round')}\n")
    for number in sorted({0, len(history) // 2, len(history) - 1}):
        print(printable(round_line(history[number])))
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
            print(f"  round {number + 1}: {printable(event_line(event))}")
        print("\nFamily tree (* lives)")
        try:
            tree = family_tree(run.folder, history)
        except ValueError as error:
            tree = f"Left out: {error}"
        print("\n".join(f"  {line}" for line in printable(tree).splitlines()))
    if run.probes:
        print("\nProbes along the run")
        print("\n".join(f"  {printable(probe_line(record))}" for record in run.probes))
    for alarm in last.alarms:
        print(f"\nAlarm: {printable(alarm)}")
