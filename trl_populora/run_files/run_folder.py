"""`RunFolder`: the record that a run leaves beside its checkpoints: rounds, completions, probes, the lineage."""

import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress

from .checkpoint import find_defect
from .files import alone, append_lines, read_lines, write_lines, write_table
from .layout import (
    DAMAGED_SUFFIX,
    HISTORY_FILE,
    LINEAGE_FILE,
    POPULATION_FILE,
    PROBES_FILE,
    ROUNDS_FOLDER,
    SCRATCH_SUFFIX,
    STAGING_FOLDER,
    begun_by_a_run,
    checkpoint_step,
    checkpoints,
    holds_a_run,
    left_by_a_run,
    probe_file,
    round_file,
    uploads,
)
from .round_table import COLUMNS


logger = logging.getLogger(__name__)


class RunFolder:
    """Append-only record of a run.

    If something cannot be written (full disk, missing folder), it is kept in memory and written before later data.

    Args:
        path (`str`): The run's `output_dir`.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        names = (HISTORY_FILE, LINEAGE_FILE, PROBES_FILE)
        self.history, self.lineage, self.probes = (os.path.join(path, name) for name in names)
        self.discard_unfinished = False  # a run that was stopped before its first checkpoint starts again
        self.begun = False  # whether this run has changed anything here
        self.is_anothers = False  # what is here is of another run, which a resume from elsewhere is to overwrite
        self._unwritten: list[Callable[[], None]] = []

    def start(self, *, overwrite: bool) -> None:
        """Begin a new run here, and remove what another one has left. Call it when nothing can be refused any more.

        Raises:
            ValueError: If the folder holds results of another run and `overwrite` is false. To go on with the newest
                checkpoint, without one: if the run is finished.
        """
        finished = os.path.isfile(os.path.join(self.path, POPULATION_FILE))
        used = self._used()
        if used and (finished if self.discard_unfinished else not overwrite):
            advice = "Resume it with resume_from_checkpoint, or set overwrite_output_dir=true to discard it"
            if self.discard_unfinished:
                advice = "To discard it, train without resume_from_checkpoint and with overwrite_output_dir=true"
            raise ValueError(f"{self.path} already holds a run ({used[0]}). {advice}, or choose another output_dir.")
        self.begun = True
        self._clear()
        self.rewind(0, 0, [])

    def locked(self) -> AbstractContextManager[None]:
        """Context in which no other process trains here; see [`alone`]."""
        os.makedirs(self.path, exist_ok=True)
        return alone(self.path)

    def is_elsewhere(self, checkpoint: str) -> bool:
        """Whether a checkpoint is of another folder's run."""
        return os.path.dirname(os.path.realpath(checkpoint)) != os.path.realpath(self.path)

    def check_resume(self, checkpoint: str, *, overwrite: bool) -> None:
        """Refuses to resume from a checkpoint in another folder if this folder has results of another run, and from
        one in this folder if its record is damaged: [`rewind`] could not cut it back.

        Raises:
            ValueError: If there is another run, and `overwrite` is false. If a line of the record cannot be read.
        """
        if not self.is_elsewhere(checkpoint):
            for path, key in ((self.history, "round"), (self.probes, "step")):
                _numbered(path, key)
        elif not overwrite and (used := self._used()):
            raise ValueError(
                f"{self.path} holds another run ({used[0]}) than {checkpoint}. Choose another output_dir, or set "
                "overwrite_output_dir=true to discard what is there."
            )

    def reopen(self) -> None:
        """Marks the run as not finished, by removing the table of its members. The end of the run writes it again."""
        with suppress(FileNotFoundError):
            os.remove(os.path.join(self.path, POPULATION_FILE))

    def append_round(self, round: int, summary: Mapping, rows: Sequence[Mapping]) -> None:
        """Add a round: its summary as JSON, and its completions as rows of `COLUMNS`."""
        if rows:
            self._unwritten.append(lambda: write_table(round_file(self.path, round), rows, COLUMNS))
        self._unwritten.append(lambda: append_lines(self.history, [summary]))
        self._try_to_flush()

    def append_events(self, events: Sequence[Mapping]) -> None:
        """Add events to the lineage, as JSON."""
        if events:
            self._unwritten.append(lambda: append_lines(self.lineage, events))
            self._try_to_flush()

    def append_probe(self, record: Mapping, rows: Sequence[Mapping], columns: Mapping[str, type]) -> None:
        """Add an evaluation along the run: its record as JSON, and the answers as rows of `columns`."""
        self._unwritten.append(lambda: write_table(probe_file(self.path, record["step"]), rows, columns))
        self._unwritten.append(lambda: append_lines(self.probes, [record]))
        self._try_to_flush()

    def flush(self) -> None:
        """Write what could not be written before.

        Raises:
            OSError: If it still cannot be.
        """
        while self._unwritten:
            self._unwritten[0]()
            self._unwritten.pop(0)

    def rewind(self, step: int, round: int, events: Sequence[Mapping]) -> None:
        """Removes everything after `step`, so that a resumed run leaves the same files as an uninterrupted one.

        This includes later checkpoints, because `resume_from_checkpoint=auto` would use them. Damaged ones, which it
        passes over, are put aside.
        """
        self._unwritten, self.begun = [], True
        elsewhere, self.is_anothers = self.is_anothers, False
        if elsewhere:
            self._clear()
        staging = os.path.join(self.path, STAGING_FOLDER)
        for folder in (staging, *uploads(self.path)):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in checkpoints(self.path):
            if checkpoint_step(folder) > step:
                self._remove_checkpoint(folder, staging, f"the run continues from step {step}")
        shutil.rmtree(staging, ignore_errors=True)
        lines = []
        if os.path.isfile(self.history):
            lines = _numbered(self.history, "round")
            write_lines(self.history, [summary for number, summary in lines if number < round])
        there = {number for number, _ in lines if number < round}
        if not elsewhere and (there or not lines):  # else the run began in another folder
            lost = [number for number in range(min(there, default=0), round) if number not in there]
            if lost:
                logger.warning(
                    f"{self.history} lacks {len(lost)} of the rounds before round {round + 1}, where the run goes on. "
                    f"The first is round {lost[0] + 1}. Their numbers are lost; the members are not affected."
                )
            if bare := sorted(number for number in there if not os.path.isfile(round_file(self.path, number))):
                logger.warning(
                    f"{os.path.join(self.path, ROUNDS_FOLDER)} lacks the tables of {len(bare)} rounds, the first of "
                    f"round {bare[0] + 1}. Their completions are lost; the members are not affected."
                )
        if os.path.isfile(self.lineage) or events:
            write_lines(self.lineage, events)
        later = []
        if os.path.isfile(self.probes):  # the first evaluation is at step 0, before there is anything to resume from
            lines = _numbered(self.probes, "step")
            write_lines(self.probes, [record for number, record in lines if number <= step and step])
        for first in (round_file(self.path, round), probe_file(self.path, step + 1 if step else 0)):
            later += [path for path in _paths(os.path.dirname(first)) if path >= first]
        for path in (*later, *(path for path in _paths(self.path) if path.endswith(SCRATCH_SUFFIX))):
            os.remove(path)

    def _remove_checkpoint(self, folder: str, staging: str, why: str) -> None:
        """Moves a checkpoint into the staging folder, or puts it aside if it is damaged: it may still hold members."""
        if (defect := find_defect(folder, content=True)) is None:
            logger.warning(f"{folder} is removed, because {why}.")
            os.makedirs(staging, exist_ok=True)
            os.replace(folder, os.path.join(staging, os.path.basename(folder)))
            return
        aside = f"{folder}{DAMAGED_SUFFIX}"
        logger.warning(f"{folder} is put aside as {aside}, because {why}, and it is not complete: {defect}.")
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(folder, aside)

    def _clear(self) -> None:
        """Removes what another run has left."""
        if begun_by_a_run(self.path):
            for path in left_by_a_run(self.path):
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)

    def _used(self) -> list[str]:
        """What another run has left here, if it has results, such as saved members."""
        return left_by_a_run(self.path) if holds_a_run(self.path) else []

    def _try_to_flush(self) -> None:
        try:
            self.flush()
        except OSError as error:
            logger.warning(
                f"The record of the run in {self.path} cannot be written: {error}. It stays in memory, and the next "
                f"round tries again. Free some space or repair the folder."
            )


def _numbered(path: str, key: str) -> list[tuple[int, dict]]:
    """The records of a file, if there is one, each with its number under `key`."""
    return read_lines(path, lambda record: (record[key], record)) if os.path.isfile(path) else []


def _paths(folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []
