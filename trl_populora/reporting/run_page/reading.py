"""`read_run`: reads a run from its folder, except the texts of its tables (`items.py`).

The run may still be running. Every file except the history may be missing or damaged. The page says what could not be
read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...diagnostics import RoundSummary
from ...run_files.files import read_lines, unless_damaged
from ...run_files.layout import LINEAGE_FILE, POPULATION_FILE, checkpoints, round_file
from ...run_files.run import read_record, read_table
from ..evaluation_file import read_evaluation
from ..history import read_history
from ..probes import read_probes


@dataclass(frozen=True)
class RunData:
    """A run, read from its folder.

    Attributes:
        folder (`str`): Its folder.
        history (`list[RoundSummary]`): Its rounds, at least one.
        probes (`list[dict]`): Evaluations during the run.
        events (`list[dict]`): Replacements as JSON. `"round"` is the number of the round before it, from 1, or `None`
            if the history does not contain it.
        record (`Mapping`): `run.json`; empty if it is missing.
        evaluation (`Mapping`, *optional*): Results of `populora evaluate`.
        tables (`dict[int, str]`): Round -> path of its table, if it exists.
        adapters (`str`, *optional*): Folder with the newest saved adapters.
        finished (`bool`): Whether the run has saved its final population.
        remarks (`tuple[str, ...]`): Sentences on what is missing or could not be read.
    """

    folder: str
    history: list[RoundSummary]
    probes: list[dict[str, Any]]
    events: list[dict[str, Any]]
    record: Mapping[str, Any]
    evaluation: Mapping[str, Any] | None
    tables: dict[int, str]
    adapters: str | None
    finished: bool
    remarks: tuple[str, ...]

    @property
    def name(self) -> str:
        return os.path.basename(os.path.abspath(self.folder))

    @property
    def last(self) -> RoundSummary:
        """The newest round."""
        return self.history[-1]

    @property
    def self_play(self) -> bool:
        """Whether teachers propose tasks. Otherwise members learn from a dataset."""
        return any(summary.teachers for summary in self.history)

    @property
    def births(self) -> list[float]:
        """Numbers, from 1, of the rounds after which a member was replaced."""
        return [summary.round + 1 for summary in self.history if summary.events]

    @property
    def replacements(self) -> list[dict[str, Any]]:
        """Events of the lineage in which a member was replaced, without the adapters that a run started from."""
        return [event for event in self.events if event.get("kind") != "import"]

    def setting(self, name: str, default: Any = None) -> Any:
        """A setting of the run, or `default` if the folder does not contain it."""
        return self.record.get("settings", {}).get(name, default)


def read_run(folder: str) -> RunData:
    """Reads a run folder.

    Raises:
        ValueError: If it holds no history, a damaged one, or no finished round.
    """
    history = read_history(folder)
    if not history:
        raise ValueError(f"{folder} has no finished round yet")
    remarks: list[str] = []
    paths = {summary.round: round_file(folder, summary.round) for summary in history}
    tables = {number: path for number, path in paths.items() if os.path.isfile(path)}
    if missing := len(paths) - len(tables):
        remarks.append(
            f"{missing} of {len(paths)} rounds have no table in rounds/: their tasks and texts are not on this page."
        )
    if history[0].round:
        remarks.append(
            f"The history begins at round {history[0].round + 1}: the run continues another, whose rounds are not in "
            "this folder and not in its costs."
        )
    return RunData(
        folder=folder,
        history=history,
        probes=unless_damaged(lambda: read_probes(folder), [], remarks),
        events=_with_rounds(history, unless_damaged(lambda: _lineage(folder), [], remarks)),
        record=unless_damaged(lambda: read_record(folder), {}, remarks),
        evaluation=unless_damaged(lambda: read_evaluation(folder), None, remarks),
        tables=tables,
        adapters=unless_damaged(lambda: _adapters(folder), None, remarks),
        finished=os.path.isfile(os.path.join(folder, POPULATION_FILE)),
        remarks=tuple(remarks),
    )


def _lineage(folder: str) -> list[dict[str, Any]]:
    path = os.path.join(folder, LINEAGE_FILE)
    return read_lines(path, _event) if os.path.isfile(path) else []


def _event(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"parents": [(name, version) for name, version in record["parents"]]}


def _with_rounds(history: list[RoundSummary], lineage: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All replacements, each with the round before it, from the lineage or, if it is missing, the history."""
    told = [(summary.round + 1, _event(event)) for summary in history for event in summary.events]
    rounds = {(event["slot"], event["version"]): number for number, event in told}
    if not lineage:
        return [event | {"round": number} for number, event in told]
    return [event | {"round": rounds.get((event["slot"], event["version"]))} for event in lineage]


def _adapters(folder: str) -> str | None:
    for place in (folder, *reversed(checkpoints(folder))):
        if os.path.isfile(os.path.join(place, POPULATION_FILE)):
            read_table(place)
            return place
    return None
