"""`RunFolder`: the files a run leaves beside its checkpoints.

`history.jsonl`: one summary a round. `rounds/*.parquet`: one row a completion. `lineage.jsonl`: one event a line.
"""

import json
import os
from collections.abc import Sequence

from datasets import Dataset, Features, Value

from ..diagnostics.dynamics import RoundSummary
from ..evolution import EvolutionEvent
from ..reporting.history import read_history
from ..reporting.model_card import model_card, versions
from ..self_play import RoundRecord
from ..self_play.records import COLUMNS


KINDS = {str: "string", int: "int64", float: "float64", bool: "bool"}
FEATURES = Features({name: Value(KINDS[kind]) for name, kind in COLUMNS.items()})  # the same in every round


class RunFolder:
    """Append-only record of a run.

    Args:
        path (`str`): The run's `output_dir`.
    """

    def __init__(self, path: str):
        self.path = path
        self.history = os.path.join(path, "history.jsonl")
        self.lineage = os.path.join(path, "lineage.jsonl")
        self.rounds = os.path.join(path, "rounds")

    def start(self, *, overwrite: bool) -> None:
        """Begin a new run here.

        Raises:
            ValueError: If the folder holds the record of another run and `overwrite` is false.
        """
        if os.path.isfile(self.history) and not overwrite:
            raise ValueError(
                f"{self.path} already holds the record of a run ({self.history}). Resume it with "
                "resume_from_checkpoint, choose another output_dir, or set overwrite_output_dir=true to discard it."
            )
        self.rewind(0, [])

    def append_round(self, record: RoundRecord, summary: RoundSummary) -> None:
        os.makedirs(self.rounds, exist_ok=True)
        Dataset.from_list(list(record.rows()), features=FEATURES).to_parquet(self._round_file(record.round))
        _append(self.history, summary.to_json())

    def append_events(self, events: Sequence[EvolutionEvent]) -> None:
        os.makedirs(self.path, exist_ok=True)
        for event in events:
            _append(self.lineage, event.to_json())

    def write_card(self, table: dict, **about) -> None:
        """Write the model card, with the results so far; `about` as in [`model_card`]."""
        os.makedirs(self.path, exist_ok=True)
        history = read_history(self.path) if os.path.isfile(self.history) else []
        with open(os.path.join(self.path, "README.md"), "w", encoding="utf-8") as file:
            file.write(model_card(table, history=history, versions=versions(), **about))

    def rewind(self, round: int, events: Sequence[EvolutionEvent]) -> None:
        """Drop what lies at or after `round`, so that a resumed run leaves the same files as one never stopped."""
        if os.path.isfile(self.history):
            with open(self.history, encoding="utf-8") as file:
                kept = [line for line in file if line.endswith("\n") and json.loads(line)["round"] < round]
            _rewrite(self.history, kept)
        if os.path.isfile(self.lineage) or events:
            os.makedirs(self.path, exist_ok=True)
            _rewrite(self.lineage, [json.dumps(event.to_json()) + "\n" for event in events])
        if os.path.isdir(self.rounds):
            for name in os.listdir(self.rounds):
                if name >= os.path.basename(self._round_file(round)):
                    os.remove(os.path.join(self.rounds, name))

    def _round_file(self, round: int) -> str:
        return os.path.join(self.rounds, f"round_{round:06d}.parquet")


def _append(path: str, data: dict) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(data) + "\n")


def _rewrite(path: str, lines: list[str]) -> None:
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.writelines(lines)
    os.replace(path + ".tmp", path)
