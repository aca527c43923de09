"""Answers on the disk while an exam is asked, so that an interrupted evaluation goes on where it was."""

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

    Its name holds a hash of the first line: an evaluation with other settings or weights has a file of its own, and
    neither reads nor removes this one. A line that a killed process left half written is asked again.

    Args:
        folder (`str`): Where to keep it.
        name (`str`): Of the exam, as a file name.
        header (`Mapping`): All that determines the answers, as JSON.

    Attributes:
        answered (`list[Sample]`): What it holds already.
        seconds (`float`): How long drawing that took.
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
        """Writes what one call of the sampler gave, in so many seconds. It has reached the disk when this returns."""
        answers = [[one.player, one.question, one.number, one.text, one.tokens, one.prompt_tokens] for one in samples]
        append_lines(self.path, [{"seconds": seconds, "answers": answers}])
        self.seconds += seconds

    def remove(self) -> None:
        """Removes the file, once its answers are elsewhere."""
        with suppress(FileNotFoundError):
            os.remove(self.path)
