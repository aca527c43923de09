"""`populora pull`: downloads a population or an adapter from the Hugging Face Hub into a folder.

What it brings can be opened by `play`, `evaluate`, `report` and `export`, and a recipe can start from it.
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="USER/REPO[@REVISION][/FOLDER]", help="repository, or a member's folder in it"
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="folder to make")
    parser.add_argument(
        "--checkpoint", action="store_true", help="also download checkpoints, which contain pickle files"
    )


def run(options: argparse.Namespace) -> int:
    from ..hub import pull

    source = pull(options.source, options.output, checkpoint=options.checkpoint)
    print(f"{options.output}: {source}")
    return 0
