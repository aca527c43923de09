"""Stores answers on disk during an exam, so that an interrupted evaluation can continue."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from ..run_files.files import append_lines, open_log, read_lines, write_lines
from ..run_files.layout import PARTIAL_SUFFIX
from .answering import Sample


class AnswerFile:
    """A file of JSON lines: what determines the answers, then one line for each call of the sampler.

    Its name has a hash of the first line. So an evaluation with other settings or weights uses another file, and
    neither reads nor removes this one. If a killed process left an incomplete line, its answers are sampled again.

    Only one `AnswerFile` at a time may add to a file: from its construction until [`AnswerFile.release`].

    Args:
        folder (`str`): Folder of the file.
        name (`str`): Name of the exam, usable as a file name.
        header (`Mapping`): Everything that determines the answers, as data for JSON.

    Attributes:
        answered (`list[Sample]`): Answers that it already has.
        seconds (`float`): Seconds of sampling for these answers.

    Raises:
        ValueError: If another one is adding to the file.
    """

    def __init__(self, folder: str, name: str, header: Mapping[str, Any]) -> None:
        text = json.dumps(header, sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:8]
        self.path = os.path.join(folder, f"{name}-{key}{PARTIAL_SUFFIX}")
        lock = self._locked()
        lines = read_lines(self.path, dict)
        calls = lines[1:] if lines and lines[0] == json.loads(text) else []
        write_lines(self.path, [header, *calls])  # a new file, without a torn last line
        self._lock = self._locked()
        lock.close()
        self.answered = [Sample(*fields) for call in calls for fields in call["answers"]]
        self.seconds = sum(call["seconds"] for call in calls)

    def add(self, samples: Sequence[Sample], seconds: float) -> None:
        """Writes the answers of one call of the sampler and its seconds. They are on disk when this returns."""
        answers = [[one.player, one.question, one.number, one.text, one.tokens, one.prompt_tokens] for one in samples]
        append_lines(self.path, [{"seconds": seconds, "answers": answers}])
        self.seconds += seconds

    def release(self) -> None:
        """Lets others add to the file. Nothing may be added here any more."""
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # forks may still have it open
        self._lock.close()

    def remove(self) -> None:
        """Removes the file, after its answers were saved elsewhere."""
        with suppress(FileNotFoundError):
            os.remove(self.path)

    def _locked(self) -> IO[bytes]:
        lock = open_log(self.path)
        if lock is None or os.fstat(lock.fileno()).st_ino != os.stat(self.path).st_ino:  # replaced just now
            raise ValueError(
                f"another evaluation is writing {self.path}. Wait for its end, or choose another output folder."
            )
        return lock
