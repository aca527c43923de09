"""Exports one member of a run as a separate PEFT folder with card and tokenizer."""

import os
import shutil
from functools import partial

from ..reporting.model_card import model_card
from ..run_files.files import write_file, write_files
from ..run_files.layout import CARD_FILE
from ..run_files.run import TINY, Run, read_table
from .contents import member_contents
from .pushing import check_member, recorded, results


def export_adapter(run: Run, member: str, output: str) -> None:
    """Writes a member's adapter, the tokenizer and a card into a folder.

    Raises:
        ValueError: If there is no such member, or its adapter is incomplete.
    """
    check_member(run, member)
    about = {**results(run), **recorded(run)}
    text = model_card(read_table(run.folder), base_model=run.base, hub_base=run.hub_base, member=member, **about)
    base = None if run.base == TINY else run.base  # a name that only recipes know
    contents = {**member_contents(run, member, base=base), CARD_FILE: text.encode()}

    def write(aside: str) -> None:
        for name, content in contents.items():
            copied = partial(shutil.copyfile, content) if isinstance(content, str) else content
            write_file(os.path.join(aside, name), copied)

    write_files(output, write)
