"""`populora recipes`: lists the recipes that come with the package; `copy NAME` copies some here.

Without more words it lists them. A copy has the paths of a clone: run it from the folder that holds `recipes/`.
"""

import argparse
import os


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("copy",),
        help="copy recipes, with what they name, to FOLDER/recipes",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a folder of recipes, or a file, as in the list")
    parser.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="where recipes/ goes (default: here)")


def run(options: argparse.Namespace) -> int:
    from ..command import populora
    from ..shipped import RECIPES, copy_recipes, list_recipes

    if options.action is None:
        found = list_recipes()
        for name, summary in found.items():
            print(f"{name:<{max(map(len, found))}}  {summary}")
        print(f"\nThey are in {RECIPES}. `{populora()} recipes copy NAME` copies a folder or a file of them here.")
        return 0
    if options.name is None:
        raise ValueError("name what to copy, as in `populora recipes copy tiny`; `populora recipes` lists all")
    written, kept = copy_recipes(options.name, options.folder)
    place = os.path.join(options.folder, "recipes")
    folders = sorted({os.path.relpath(file, place).split(os.sep)[0] for file in written})
    print(f"Copied {len(written)} files to {place}: {', '.join(folders)}.")
    if kept:
        print(f"Left as they are: {len(kept)} files that were there.")
    if os.path.realpath(options.folder) != os.getcwd():
        print(f"Their paths start at {options.folder}: `cd {options.folder}` before you run one.")
    return 0
