"""The command `populora`: one small module per subcommand, each with `add_arguments(parser)` and `run(options)`.

Commands read options, call the other rooms and print. Heavy imports happen inside `run`, so that `--help` is quick.
"""

import argparse
import sys
from collections.abc import Sequence

from ..train import wait_politely
from . import doctor, evaluate, evolve, experiment, export, play, pull, push, report, retention, train, warmup


MODULES = (train, experiment, warmup, evaluate, report, evolve, retention, play, push, pull, export, doctor)
COMMANDS = {module.__name__.rpartition(".")[2]: module for module in MODULES}


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="populora", description="Co-evolving populations of LoRA adapters for reasoning self-play."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        summary = module.__doc__.splitlines()[0].split(": ", 1)[1]
        # What `train` takes is known to the trainer's own parser; even --help is passed on.
        own = commands.add_parser(name, help=summary, description=summary, add_help=name != "train")
        module.add_arguments(own)
        own.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 2 for a mistake the user can mend, told in one sentence."""
    wait_politely()
    options, rest = build_parser().parse_known_args(sys.argv[1:] if argv is None else argv)
    if options.command == "train":
        return train.run(rest)
    if rest:
        build_parser().error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return options.run(options) or 0
    except ValueError as error:
        print(f"populora {options.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return 0
