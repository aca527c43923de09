"""`write_report` writes the page of a run as one file. `watch` writes it again after every change of the run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ...run_files.files import write_file
from ...run_files.layout import (
    EVALUATION_FILE,
    EVALUATION_FOLDER,
    HISTORY_FILE,
    POPULATION_FILE,
    PROBES_FILE,
    REPORT_FILE,
    RUN_FILE,
)
from ..page import Section, Widget, need_plotly, render_page
from ..page.rendering import pack
from ..played_run import PlayedRun, read_run
from .games import games
from .items import Items, collect_items
from .learning import learning, probes, settings
from .lineage import lineage
from .members import card_figures, members
from .overview import headline, overview


PAGE_BYTES = 4_900_000
"""Size of a page, which tasks fill up; longer curves and more members leave less for them."""
LEAST_BYTES = 300_000
"""For tasks in any case."""
PAUSE = 2.0
"""Seconds between two looks at the files of a run that is watched."""
WATCHED = (HISTORY_FILE, PROBES_FILE, POPULATION_FILE, os.path.join(EVALUATION_FOLDER, EVALUATION_FILE))
"""Files that change after a round, after a probe, at the end of a run and after its final exams."""
RELOAD = 10
"""Seconds after which the browser loads a watched page again."""
KINDS = {"task": "tasks", "prompt": "prompts", "refused": "refused proposals"}


def write_report(run: PlayedRun, path: str | None = None, *, reload_seconds: float | None = None) -> str:
    """Writes the page of a run.

    Args:
        run ([`PlayedRun`]): The run.
        path (`str`, *optional*): The file; `report.html` in the folder if unset.
        reload_seconds (`float`, *optional*): Seconds after which the browser loads the page again; never if unset.

    Returns:
        `str`: Path of the file.

    Raises:
        ValueError: If plotly is not installed.
        OSError: If the file cannot be written.
    """
    page = make_page(run, reload_seconds=reload_seconds)
    path = path or os.path.join(run.folder, REPORT_FILE)
    write_file(path, page)
    return path


def make_page(run: PlayedRun, *, reload_seconds: float | None = None, size: int = PAGE_BYTES) -> str:
    """The page of a run as HTML, with the arguments of [`write_report`]."""
    need_plotly()
    own, cards = members(run)
    tree, births = lineage(run)
    data: dict[str, Any] = {"members": pack(cards), "lineage": pack(births)}
    middle = [own, games(run), tree, probes(run), learning(run)]
    page = partial(
        render_page, run.name, subtitle=headline(run), figures=card_figures(run), reload_seconds=reload_seconds
    )
    room = size - len(page(sections=[overview(run, []), *middle], data=data))
    items = collect_items(run.tables, budget=max(room, LEAST_BYTES))
    if items.packed is not None:
        data["items"] = items.packed
    return page(sections=[overview(run, items.remarks), *middle, _items(run, items), settings(run)], data=data)


def watch(
    folder: str,
    path: str | None = None,
    *,
    on_page: Callable[[str], None] = lambda path: None,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Writes the page now and after every new round, probe and evaluation, until it is interrupted.

    Args:
        folder (`str`): The run's `output_dir`.
        path (`str`, *optional*): As for [`write_report`].
        on_page (`Callable`, *optional*): Called with the path each time the page is written.
        wait (`Callable`, *optional*): Called with the seconds to wait. An exception that it raises ends the watch.
    """
    seen = None
    while True:
        stamps = [_stamp(os.path.join(folder, name)) for name in WATCHED]
        # a run before its first round, or in the middle of writing it, is waited for
        begun = _has_line(os.path.join(folder, HISTORY_FILE)) or not os.path.isfile(os.path.join(folder, RUN_FILE))
        if stamps != seen and begun:
            seen = stamps
            on_page(write_report(read_run(folder), path, reload_seconds=RELOAD))
        wait(PAUSE)


def _stamp(path: str) -> tuple[int, int]:
    """Size of a file and time of its last change; zeros if there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _has_line(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.readline().endswith(b"\n")
    except FileNotFoundError:
        return False


def _items(run: PlayedRun, items: Items) -> Section:
    """The section with the tasks of a run, or the prompts of a dataset, and a search."""
    title = "Tasks" if run.self_play or "task" in items.found else "Prompts"
    if items.packed is None:
        return Section("tasks", title, [])
    parts = [
        Widget(
            "items",
            "items.html.jinja",
            {
                "source": "items",
                "kinds": {kind: words for kind, words in KINDS.items() if kind in items.shown},
                "judged": items.judged,
                "author": items.authors,
                "type": items.types,
            },
        )
    ]
    counts = [
        f"{_of(items.shown.get(kind, 0), count)} {KINDS[kind].removesuffix('s' * (count == 1))}"
        for kind, count in items.found.items()
    ]
    lead = f"{' and '.join(counts)}. Click one to see its question and every attempt at it."
    return Section("tasks", title, parts, lead=lead)


def _of(shown: int, found: int) -> str:
    return f"{found:,}" if shown == found else f"{shown:,} of {found:,}"
