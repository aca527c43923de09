"""The page of all commands, written from their argument parsers."""

import argparse
from collections.abc import Iterator

from trl_populora.cli import build_parser


PREFACE = """\
# Every command

Written from the argument parsers while the site was built. [The terminal](../terminal.md) explains progress, exit
codes and errors. `populora COMMAND --help` prints the same options.
"""
TRAIN = """\
Its options are the settings of a run, by name: `--config RECIPE` reads a recipe, `--num_students 8` sets one value.
[Every setting](settings.md) lists them. Mappings are JSON: `--executor_kwargs '{"workers": 4}'`.
"""


def commands_page() -> str:
    """Markdown of the page."""
    return "\n".join(_lines()) + "\n"


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    """Name of a command -> its parser."""
    parser = build_parser()
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices)


def _lines() -> Iterator[str]:
    yield PREFACE
    for name, parser in command_parsers().items():
        yield f"## `populora {name}`\n"
        description = (parser.description or "").rstrip(".")
        yield f"{description[:1].upper()}{description[1:]}.\n"
        if name == "train":
            yield TRAIN
            continue
        yield f"```text\n{' '.join(parser.format_usage().removeprefix('usage: ').split())}\n```\n"
        yield "| option | meaning | default |"
        yield "|---|---|---|"
        for action in parser._actions:
            if not isinstance(action, argparse._HelpAction):
                yield _row(action)
        yield ""


def _row(action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar or action.dest}`"
    if action.option_strings and action.nargs != 0:
        names += f" `{action.metavar or action.dest.upper()}`" if not action.choices else ""
    if action.choices:
        names += " one of " + ", ".join(f"`{choice}`" for choice in action.choices)
    meaning = (action.help or "").replace("%%", "%").replace("|", "\\|") or "–"
    default = "required" if action.required else _default(action.default)
    return f"| {names} | {meaning} | {default} |"


def _default(value: object) -> str:
    if value is None or value is argparse.SUPPRESS or value == []:
        return "unset"
    return "off" if value is False else f"`{value}`"
