"""What trackers get besides scalars: the record of the run, the matrix of solve rates, the lineage, and alarms.

transformers' callbacks open trackio, wandb and TensorBoard and send them scalars. Here is what scalars cannot show,
through the trackers' public interfaces. A tracker that fails under way costs a warning, never a run.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from transformers import TrainerCallback
from transformers.integrations import TensorBoardCallback, TrackioCallback, WandbCallback, integration_utils
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.utils import logging

from ..diagnostics import RoundSummary, solve_rate_matrix
from ..diagnostics.metrics import overlays
from ..evolution import EvolutionEvent
from ..settings import suggest
from .run_record import run_record


if TYPE_CHECKING:
    from .trainer import PopulationSelfPlayTrainer

logger = logging.get_logger(__name__)

PACKAGES = {"trackio": ("trackio",), "wandb": ("wandb",), "tensorboard": ("tensorboard", "tensorboardX")}
"""Name in `report_to` -> modules of which one must be installed."""
OTHERS = {"azure_ml": "azureml", "comet_ml": "comet", "flyte": "flytekit"}
"""Name in `report_to` -> the name in transformers' function that says whether it is installed, if it is another."""
EVENTS = ("on_log", "on_save", "on_predict", "on_push_begin", "on_train_end")
"""Methods that transformers calls on a tracker during a run, after it was opened."""
NEWEST = 200
"""Rows of the tables of alarms and of the lineage: the newest (our choice)."""
LINEAGE = ("step", "member", "kind", "operator", "parents", "rating before", "rating after", "learning rate")
ALARMS = ("round", "step", "alarm")


class Table(NamedTuple):
    """A table as trackers take it; cells are texts, numbers or `None`."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | int | None]]


def _is_installed(name: str) -> bool:
    if name in PACKAGES:
        return any(map(find_spec, PACKAGES[name]))
    available = getattr(integration_utils, f"is_{OTHERS.get(name, name)}_available", None)
    return available is None or bool(available())


def check_trackers(report_to: Sequence[str]) -> None:
    """Refuses trackers that transformers does not know, or that are not installed.

    Raises:
        ValueError: With the nearest name, or the command that installs them.
    """
    for name in report_to:
        if name not in INTEGRATION_TO_CALLBACK:
            hint = suggest(name, sorted([*INTEGRATION_TO_CALLBACK, "none"]))
            raise ValueError(f"report_to={list(report_to)}: there is no tracker {name!r}. {hint}")
    if missing := [name for name in report_to if not _is_installed(name)]:
        raise ValueError(
            f"report_to={list(report_to)}: {', '.join(missing)} is not installed. Run `pip install "
            f"{' '.join(missing)}`, or `pip install 'trl-populora[trackers]'` for trackio, wandb and tensorboard; or "
            "leave it out of report_to."
        )


class TrackerError(ValueError):
    """A tracker could not be opened."""


class Tracker(ABC):
    """A tracker that transformers has opened.

    Args:
        callback ([`~transformers.TrainerCallback`]): transformers' own.
    """

    def __init__(self, callback: TrainerCallback) -> None:
        self.callback = callback

    @abstractmethod
    def describe(self, record: dict[str, Any]) -> None:
        """Shows what the run is made of."""

    @abstractmethod
    def show(self, tables: Mapping[str, Table], *, step: int) -> None:
        """Shows tables by name."""

    @abstractmethod
    def alert(self, text: str, *, step: int) -> None:
        """Tells people at once."""


class TensorBoard(Tracker):
    """Tables become text. Its page "Custom scalars" has one chart for all members of a measure."""

    callback: TensorBoardCallback

    @property
    def writer(self) -> Any:
        return self.callback.tb_writer

    def describe(self, record: dict[str, Any]) -> None:
        text = json.dumps(record, indent=1, ensure_ascii=False)
        self.writer.add_text("population", f"```json\n{text}\n```")
        charts: dict[str, dict[str, list]] = {}
        for heading, title, pattern in overlays():
            charts.setdefault(heading, {})[title] = ["Multiline", [f"train/{pattern}$"]]
        self.writer.add_custom_scalars(charts)

    def show(self, tables: Mapping[str, Table], *, step: int) -> None:
        for name, (columns, rows) in tables.items():
            lines = [columns, ["---"] * len(columns), *rows]
            text = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
            self.writer.add_text(name, text, step)

    def alert(self, text: str, *, step: int) -> None:
        """Does nothing: TensorBoard has no alerts, but it shows the table of alarms."""


class Service(Tracker):
    """trackio or wandb, whose interfaces have the same names."""

    def __init__(self, callback: TrainerCallback) -> None:
        super().__init__(callback)
        self.library = import_module("wandb" if isinstance(callback, WandbCallback) else "trackio")

    def describe(self, record: dict[str, Any]) -> None:
        self.library.config.update({"population": record}, allow_val_change=True)

    def show(self, tables: Mapping[str, Table], *, step: int) -> None:
        made = {
            name: self.library.Table(columns=list(columns), data=[list(row) for row in rows], allow_mixed_types=True)
            for name, (columns, rows) in tables.items()
        }
        self.library.log({**made, "train/global_step": step})

    def alert(self, text: str, *, step: int) -> None:
        # wandb sends one alert a minute under one title
        self.library.alert(title=f"Alarm at step {step}", text=text, level=self.library.AlertLevel.WARN)


KINDS: dict[type[TrainerCallback], type[Tracker]] = {
    TensorBoardCallback: TensorBoard,
    WandbCallback: Service,
    TrackioCallback: Service,
}
"""transformers' callback -> the class here that extends it."""


class Trackers:
    """All trackers of a run; none on other processes than the first.

    Args:
        trainer ([`PopulationSelfPlayTrainer`]): Its rounds are shown.
    """

    def __init__(self, trainer: "PopulationSelfPlayTrainer") -> None:
        self.trainer = trainer
        self.trackers: list[Tracker] = []
        self._newest: RoundSummary | None = None
        self._alarms: list[tuple[int, int, str]] = []  # as ALARMS, each when it began
        self._events = self._told = 0  # events of the lineage, and alarms, that were shown
        self._standing: set[str] = set()
        self._failed: set[str] = set()
        self._unopened: TrackerError | None = None
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, tuple(INTEGRATION_TO_CALLBACK.values())):
                callback.on_train_begin = self._opening(callback.on_train_begin, callback)

    def check_open(self) -> None:
        """Raises `TrackerError` on every process if transformers could not open a tracker."""
        own, self._unopened = self._unopened, None
        if told := self.trainer.ranks.problems(str(own) if own else None):
            raise own or TrackerError(told[0])

    def begin(self) -> None:
        """Takes the trackers that transformers has opened, and shows what the run is made of."""
        if not self.trainer.accelerator.is_main_process:
            return
        callbacks = self.trainer.callback_handler.callbacks
        pairs = [(one, tracker) for one in callbacks for kind, tracker in KINDS.items() if isinstance(one, kind)]
        self.trackers, self._events = [tracker(callback) for callback, tracker in pairs], 0
        self._alarms, self._told, self._standing = [], 0, set()
        for callback, _ in pairs:
            for event in EVENTS:
                call = getattr(callback, event)
                if not hasattr(call, "__wrapped__"):  # the second training of a trainer
                    setattr(callback, event, self._harmless(call, callback))
        if self.trackers:
            record = run_record(self.trainer) | {"members": [vars(one) for one in self.trainer.population.values()]}
            del record["settings"]  # trackers have all settings
            self._each("describe", record)

    def _opening(self, call: Callable, callback: TrainerCallback) -> Callable:
        """`call`, whose error waits for `check_open`, where all processes meet."""

        @wraps(call)
        def opening(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            except Exception as error:
                told = str(error).strip() or repr(error)
                self._unopened = TrackerError(
                    f"report_to: {type(callback).__name__} could not open its tracker: {told.removesuffix('.')}. Mend "
                    "that, or leave the tracker out of report_to."
                )
                self._unopened.__cause__ = error

        return opening

    def note(self, summary: RoundSummary) -> None:
        """Takes a round, to be shown with the next log."""
        began = [alarm for alarm in summary.alarms if alarm not in self._standing]
        self._alarms += [(summary.round, summary.step, alarm) for alarm in began]
        self._standing, self._newest = set(summary.alarms), summary

    def log(self, *, step: int) -> None:
        """Shows the newest round's solve rates, and lineage and alarms if there is something new."""
        summary, self._newest = self._newest, None
        if summary is None or not self.trackers:
            return
        tables = {}
        if summary.teachers:
            rates = zip(summary.teachers, solve_rate_matrix(summary))
            rows = [(teacher, *row) for teacher, row in rates]
            tables["tables/solve_rates"] = Table(("teacher", *summary.students), rows)
        events = list(self.trainer.lineage)
        if len(events) > self._events:
            tables["tables/lineage"] = Table(LINEAGE, [_birth(event) for event in events[-NEWEST:]])
        if began := self._alarms[self._told :]:
            tables["tables/alarms"] = Table(ALARMS, self._alarms[-NEWEST:])
            self._each("alert", "\n".join(alarm for _, _, alarm in began), step=step)
        if tables:
            self._each("show", tables, step=step)
        self._events, self._told = len(events), len(self._alarms)

    def _each(self, method: str, *args: Any, **kwargs: Any) -> None:
        for tracker in self.trackers:
            self._harmless(getattr(tracker, method), tracker.callback)(*args, **kwargs)

    def _harmless(self, call: Callable, callback: TrainerCallback) -> Callable:
        """`call` without its errors: the first error of a tracker is logged as a warning."""
        name = type(callback).__name__

        @wraps(call)
        def harmless(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            except Exception as error:  # of another package, about numbers that are in history.jsonl as well
                if name not in self._failed:
                    logger.warning(f"{name} failed ({error!r}). Training continues; the tracker may miss data.")
                self._failed.add(name)

        return harmless


def _birth(event: EvolutionEvent) -> tuple:
    parents = ", ".join(f"{name}@{version}" for name, version in event.parents)
    ratings = (event.rating_before[0], event.rating_after[0])
    member = f"{event.slot}@{event.version}"
    return (event.step, member, event.kind, event.operator, parents, *ratings, event.learning_rate)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "" if value is None else str(value).replace("|", "\\|")
