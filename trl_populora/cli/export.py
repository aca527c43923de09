"""`populora export`: writes one member to a folder of its own: its adapter, or the base with the adapter merged."""

import argparse
import os


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="output_dir of a run, or a checkpoint in it")
    parser.add_argument("--member", required=True, metavar="NAME", help="member to export")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder to make")
    parser.add_argument("--merge", action="store_true", help="write a complete model instead of an adapter")
    parser.add_argument("--base", help="base model; the recorded one if unset")


def run(options: argparse.Namespace) -> int:
    from ..hub.exporting import export_adapter
    from ..run_files.files import check_writable, gone_if_unused, is_free
    from ..run_files.run import open_run

    if not is_free(options.output):
        raise ValueError(f"--output {options.output} is not empty: name a new folder")
    opened = open_run(options.folder, base=options.base)
    with gone_if_unused(options.output, lambda: os.path.isdir(options.output) and bool(os.listdir(options.output))):
        check_writable(options.output, option="--output")
        if options.merge:
            from ..hub.merging import export_merged
            from ..quiet import hide_loading_bars
            from .opening import find_base

            hide_loading_bars()
            export_merged(opened, options.member, options.output, base=find_base(opened.base))
        else:
            export_adapter(opened, options.member, options.output)
    print(f"{options.output}: {options.member} of {options.folder}" + (", merged" if options.merge else ""))
    return 0
