"""`RunFolder`: the files a run leaves beside its checkpoints.

`history.jsonl`: one summary a round. `rounds/*.parquet`: one row a completion. `lineage.jsonl`: one event a line.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence

import pyarrow.parquet
from datasets import Dataset, Features, Value
from transformers.utils import logging

from ..diagnostics.dynamics import RoundSummary
from ..evolution import EvolutionEvent
from ..reporting.history import read_history
from ..reporting.model_card import model_card, versions
from .checkpoint import checkpoint_step, checkpoints, staging_folder


logger = logging.get_logger(__name__)

KINDS = {str: "string", int: "int64", float: "float64", bool: "bool"}


class RunFolder:
    """Append-only record of a run.

    What cannot be written (the disk is full, the folder has gone) is kept, and written before what comes after it.

    Args:
        path (`str`): The run's `output_dir`.
        columns (`Mapping[str, type]`): Columns of the table of completions; none writes no tables.
    """

    def __init__(self, path: str, columns: Mapping[str, type]):
        self.path = path
        self.history = os.path.join(path, "history.jsonl")
        self.lineage = os.path.join(path, "lineage.jsonl")
        self.rounds = os.path.join(path, "rounds")
        self.features = Features({name: Value(KINDS[kind]) for name, kind in columns.items()})
        self.discard_unfinished = False  # a run that was stopped before its first checkpoint starts again
        self._unwritten: list[Callable[[], None]] = []

    def start(self, *, overwrite: bool) -> None:
        """Begin a new run here.

        Raises:
            ValueError: If the folder holds the record of another run and `overwrite` is false.
        """
        finished = os.path.isfile(os.path.join(self.path, "population.json"))
        used = [path for path in (self.history, *checkpoints(self.path)) if os.path.exists(path)]
        if used and not overwrite and (finished or not self.discard_unfinished):
            raise ValueError(
                f"{self.path} already holds the record of a run ({used[0]}). Resume it with "
                "resume_from_checkpoint, choose another output_dir, or set overwrite_output_dir=true to discard it."
            )
        self.rewind(0, 0, [])

    def check_resume(self, checkpoint: str, *, overwrite: bool) -> None:
        """Refuse to go on from elsewhere where another run has left its record, which would be cut off and mixed.

        Raises:
            ValueError: If there is one, and `overwrite` is false.
        """
        if os.path.realpath(os.path.dirname(os.path.abspath(checkpoint))) == os.path.realpath(self.path) or overwrite:
            return
        used = [path for path in (self.history, *checkpoints(self.path)) if os.path.exists(path)]
        if used:
            raise ValueError(
                f"{self.path} holds another run ({used[0]}) than {checkpoint}. Choose another output_dir, or set "
                "overwrite_output_dir=true to discard what is there."
            )

    def append_round(self, summary: RoundSummary, rows: Sequence[Mapping]) -> None:
        """Add a round: its summary, and its completions as rows of `columns`."""
        if rows:
            self._unwritten.append(lambda: self._write_table(summary.round, rows))
        self._unwritten.append(lambda: _append(self.history, [summary.to_json()]))
        self._try_to_flush()

    def append_events(self, events: Sequence[EvolutionEvent]) -> None:
        if events:
            self._unwritten.append(lambda: _append(self.lineage, [event.to_json() for event in events]))
            self._try_to_flush()

    def flush(self) -> None:
        """Write what could not be written before.

        Raises:
            OSError: If it still cannot be.
        """
        while self._unwritten:
            self._unwritten[0]()
            self._unwritten.pop(0)

    def write_card(self, table: dict, **about) -> None:
        """Write the model card, with the results so far; `about` as in [`model_card`]. Warns if it cannot."""
        history = read_history(self.path) if os.path.isfile(self.history) else []
        text = model_card(table, history=history, versions=versions(), **about)
        try:
            os.makedirs(self.path, exist_ok=True)
            _replace_file(os.path.join(self.path, "README.md"), text)
        except OSError as error:
            logger.warning(f"The model card in {self.path} was not written: {error}.")

    def rewind(self, step: int, round: int, events: Sequence[EvolutionEvent]) -> None:
        """Drop what lies after `step`, so that a resumed run leaves the same files as one never stopped.

        That includes later checkpoints: they belong to a past that did not happen, and `auto` would take them.
        """
        self._unwritten = []
        for folder in checkpoints(self.path):
            if checkpoint_step(folder) > step:
                logger.warning(f"{folder} is removed: the run goes on from step {step}.")
                shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(staging_folder(self.path), ignore_errors=True)
        if os.path.isfile(self.history):
            with open(self.history, encoding="utf-8") as file:
                kept = [line for line in file if line.endswith("\n") and json.loads(line)["round"] < round]
            _replace_file(self.history, "".join(kept))
        if os.path.isfile(self.lineage) or events:
            os.makedirs(self.path, exist_ok=True)
            _replace_file(self.lineage, "".join(json.dumps(event.to_json()) + "\n" for event in events))
        if os.path.isdir(self.rounds):
            for name in os.listdir(self.rounds):
                if name >= os.path.basename(self._round_file(round)) or name.endswith(".tmp"):
                    os.remove(os.path.join(self.rounds, name))

    def _try_to_flush(self) -> None:
        try:
            self.flush()
        except OSError as error:
            logger.warning(
                f"The record of the run in {self.path} cannot be written: {error}. It is kept in memory and tried "
                "again after the next round. Free some space or mend the folder."
            )

    def _write_table(self, round: int, rows: Sequence[Mapping]) -> None:
        os.makedirs(self.rounds, exist_ok=True)
        path = self._round_file(round)
        table = Dataset.from_list(list(rows), features=self.features).data.table
        pyarrow.parquet.write_table(table, path + ".tmp")  # `to_parquet` would draw a progress bar every round
        os.replace(path + ".tmp", path)

    def _round_file(self, round: int) -> str:
        return os.path.join(self.rounds, f"round_{round:06d}.parquet")


def _append(path: str, records: Sequence[dict]) -> None:
    """Add lines, all of them or none."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    with open(path, "ab", buffering=0) as file:
        end = file.tell()
        try:
            while lines:
                lines = lines[file.write(lines) :]
        except OSError:
            file.truncate(end)
            raise


def _replace_file(path: str, text: str) -> None:
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".tmp", path)
