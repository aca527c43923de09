"""Stores answers on disk during an exam, so that an interrupted evaluation can continue."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..run_files.files import append_lines, read_lines, write_lines
from ..run_files.layout import PARTIAL_SUFFIX
from .answering import Sample


class AnswerFile:
    """A file of JSON lines: what determines the answers, then one line for each call of the sampler.

    Its name has a hash of the first line. So an evaluation with other settings or weights uses another file, and
    neither reads nor removes this one. If a killed process left an incomplete line, its answers are sampled again.

    Args:
        folder (`str`): Folder of the file.
        name (`str`): Name of the exam, usable as a file name.
        header (`Mapping`): Everything that determines the answers, as data for JSON.

    Attributes:
        answered (`list[Sample]`): Answers that it already has.
        seconds (`float`): Seconds of sampling for these answers.
    """

    def __init__(self, folder: str, name: str, header: Mapping[str, Any]) -> None:
        text = json.dumps(header, sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:8]
        self.path = os.path.join(folder, f"{name}-{key}{PARTIAL_SUFFIX}")
        lines = read_lines(self.path, dict) if os.path.isfile(self.path) else []
        calls = lines[1:] if lines and lines[0] == json.loads(text) else []
        write_lines(self.path, [header, *calls])  # without a torn last line
        self.answered = [Sample(*fields) for call in calls for fields in call["answers"]]
        self.seconds = sum(call["seconds"] for call in calls)

    def add(self, samples: Sequence[Sample], seconds: float) -> None:
        """Writes the answers of one call of the sampler and its seconds. They are on disk when this returns."""
        answers = [[one.player, one.question, one.number, one.text, one.tokens, one.prompt_tokens] for one in samples]
        append_lines(self.path, [{"seconds": seconds, "answers": answers}])
        self.seconds += seconds

    def remove(self) -> None:
        """Removes the file, after its answers were saved elsewhere."""
        with suppress(FileNotFoundError):
            os.remove(self.path)
