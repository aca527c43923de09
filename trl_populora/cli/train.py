"""`populora train`: trains a population from a recipe, in one process.

The same as `python -m trl_populora.train`; for several processes use `accelerate launch -m trl_populora.train`.
An error of the call, recipe or folder is one line. An exception during training, such as one of your reward function,
has its traceback.
"""

import argparse
from collections.abc import Sequence


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options are those of the recipe; the trainer's own parser reads them."""


def run(arguments: Sequence[str]) -> int:
    from ..train import main

    return main(arguments)
