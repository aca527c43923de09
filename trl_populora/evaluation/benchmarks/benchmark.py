"""`Benchmark`: makes an exam from a public data set. A new benchmark is one such record, in one file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...run_files.files import parse_objects
from ...tasks import Run
from ..exam import Exam, Question


if TYPE_CHECKING:
    from ..grading import Grader

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Window:
    """Dates from `start` to `end`, both included; `None` is open. As text: `"[2024-08-01:2025-02-01]"`."""

    start: date | None
    end: date | None

    def __contains__(self, day: object) -> bool:
        return isinstance(day, date) and (self.start or date.min) <= day <= (self.end or date.max)

    def __str__(self) -> str:
        return f"[{self.start or ''}:{self.end or ''}]"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: the location of its records, how they become questions, and the grader.

    Args:
        id (`str`): Name in recipes, on the command line and in results, such as `"gsm8k"`.
        title (`str`): Name in the literature, such as `"GSM8K"`.
        file (`str`): Name of its file (JSON lines) in the folder of `--data`.
        hub (`str`): Data set on the Hub. config, split, revision (`str`, *optional*): Configuration, split and
            revision of the data set on the Hub.
        columns (`tuple[str, ...]`): Columns that every record must have.
        question (`Callable[[Record, int], Question]`): Makes a question from a record and its index.
        grader (`Callable[[Run | None], Grader]`): Makes its grader.
        gold (`Callable[[Record], str]`, *optional*): Makes a completion from the record's own right answer. The grader
            must accept it (`benchmarks/gold.py` checks that). Unset if records have no answer.
        date_column (`str`, *optional*): Column with the date of a record (ISO 8601). Then exams may have a window of
            dates.
        dirty (`Mapping[str, str]`, *optional*): Id of a question whose own right answer is not accepted -> the reason.
        max_completion_length (`int`, *optional*, defaults to `512`): Maximum tokens of an answer.
        samples (`int`, *optional*, defaults to `1`), temperature (`float`, *optional*, defaults to `0.0`):
            Values that are usually reported besides greedy pass@1. They are used only on request.
    """

    id: str
    title: str
    file: str
    hub: str
    columns: tuple[str, ...]
    question: Callable[[Record, int], Question]
    grader: Callable[[Run | None], Grader]
    gold: Callable[[Record], str] | None = None
    date_column: str | None = None
    config: str | None = None
    split: str = "test"
    revision: str = "main"
    dirty: Mapping[str, str] = field(default_factory=dict)
    max_completion_length: int = 512
    samples: int = 1
    temperature: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise ValueError(f"id={self.id!r} must be text, the name of the benchmark.")
        if self.max_completion_length is not None and self.max_completion_length < 1:
            raise ValueError(f"{self.id}: max_completion_length={self.max_completion_length} must be at least 1.")

    def records(self, data: str | None = None) -> tuple[list[Record], dict[str, str]]:
        """The records and their origin.

        Args:
            data (`str`, *optional*): Folder with `file`. If unset, the Hub or its local cache.

        Raises:
            ValueError: If they cannot be found or read, or lack a column.
        """
        rows, source = self._rows(data)
        return [*rows], source

    def exam(self, data: str | None = None, *, limit: int | None = None, window: Window | None = None) -> Exam:
        """All questions, or the first `limit` as of [`Exam.first`]; `data` as in [`Benchmark.records`]. A record is
        kept in memory only until its question is made, and those after a limit are not read.

        Args:
            data (`str`, *optional*): As in [`Benchmark.records`].
            limit (`int`, *optional*): Number of first questions.
            window ([`Window`], *optional*): Only records of these dates. It is a part of the exam's name.

        Raises:
            ValueError: As there, or if a record cannot be made into a question or has no date; the message names the
                record. If no record is of these dates, or this benchmark has none.
        """
        if window and not self.date_column:
            raise ValueError(f"{self.id}{window}: the records of {self.id} have no dates. Leave the dates out.")
        rows, source = self._rows(data)
        places = ((place, row) for place, row in enumerate(rows) if not window or self._date(row, place) in window)
        places = islice(places, None if limit is None else max(limit, 0) + 1)  # one more: whether that is all
        questions = tuple(self._question(row, place, source) for place, row in places)
        if window and not questions:
            raise ValueError(f"{self.id}{window}: {_place(source)} has no record of these dates.")
        exam = self._exam(questions, source, window)
        return exam if limit is None else exam.first(limit)

    def check_grader(self) -> None:
        """Raises `ValueError` if its grader cannot be made here, as without a package; no data are read."""
        self._exam((Question("", chat(""), ""),), {}).make_grader(None)

    def _exam(self, questions: tuple[Question, ...], source: Mapping[str, str], window: Window | None = None) -> Exam:
        name = f"{self.id}{window or ''}"
        return Exam(name, questions, self.grader, self.max_completion_length, self.samples, self.temperature, source)

    def _date(self, row: Record, place: int) -> date:
        try:
            return date.fromisoformat(str(row.get(self.date_column or ""))[:10])  # a time of day may follow
        except ValueError:
            raise ValueError(
                f"{self.id}: record {place + 1} has no date, and the exam has a window of dates "
                f"({self.date_column}={row.get(self.date_column or '')!r})."
            ) from None

    def _question(self, row: Record, place: int, source: Mapping[str, str]) -> Question:
        try:
            question = self.question(row, place)
            if not isinstance(question, Question):
                raise TypeError(f"`question` gave {question!r:.100}, which is no Question")
            return question
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ValueError(
                f"{self.id}: record {place + 1} of {_place(source)} is no question ({type(error).__name__}: "
                f"{error}); is it the right file, and is it complete?"
            ) from error

    def _rows(self, data: str | None) -> tuple[Iterator[Record], dict[str, str]]:
        rows, source = self._from_folder(data) if data is not None else self._from_hub()
        return self._checked(rows, source), source

    def _checked(self, rows: Iterable[Record], source: Mapping[str, str]) -> Iterator[Record]:
        number = 0
        for number, row in enumerate(rows, 1):
            missing = [name for name in self.columns if name not in row]
            if missing:
                raise ValueError(
                    f"{self.id}: record {number} of {_place(source)} has no column "
                    f"{', '.join(map(repr, missing))}; it needs {list(self.columns)} and has {sorted(row)}."
                )
            yield row
        if not number:
            raise ValueError(f"{self.id}: {_place(source)} holds no records.")

    def _from_folder(self, data: str) -> tuple[Iterator[Record], dict[str, str]]:
        path = os.path.join(data, self.file)
        try:
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256")
        except OSError as error:
            raise ValueError(
                f"{self.id}: {path} cannot be read: {error.strerror}. Put {self.file} (JSON lines) there, or "
                f"leave the folder out, to load {self.hub} from the Hub."
            ) from None
        return self._lines(path), {"file": path, "sha256": digest.hexdigest()}

    def _lines(self, path: str) -> Iterator[Record]:
        try:
            with open(path, "rb") as file:
                yield from parse_objects(file, path)
        except ValueError as error:
            raise ValueError(f"{self.id}: {error}") from None

    def _from_hub(self) -> tuple[Iterable[Record], dict[str, str]]:
        import datasets

        source = {"hub": self.hub, "revision": self.revision} | ({"config": self.config} if self.config else {})
        try:
            rows: Any = datasets.load_dataset(self.hub, self.config, split=self.split, revision=self.revision)
        except Exception as error:  # what it raises is not documented: connection, missing, gated, scripts
            raise ValueError(
                f"{self.id}: {self.hub} cannot be loaded from the Hub ({type(error).__name__}: "
                f"{' '.join(str(error).split())[:200]}). Name a folder with {self.file} by --data, "
                "or in a recipe by `probe_kwargs: {data: FOLDER}`."
            ) from None
        return rows, source


def _place(source: Mapping[str, str]) -> str:
    return source.get("file") or source["hub"]


def chat(text: str) -> list[dict[str, str]]:
    """A prompt of one message."""
    return [{"role": "user", "content": text}]
