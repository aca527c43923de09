"""`read_run`: reads a run from its folder, except the texts of its tables (`run_page/items.py`).

The run may still be running. Every file except the history may be missing or damaged; what could not be read is told.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..diagnostics import RoundSummary, round_metrics
from ..diagnostics.metrics import is_zero_without
from ..run_files.files import read_lines, unless_damaged
from ..run_files.layout import LINEAGE_FILE, POPULATION_FILE, checkpoints, round_file
from ..run_files.run import AVERAGE, BASE, read_record, read_table
from .evaluation_file import read_evaluation
from .history import first_versions, lives, read_history
from .probes import read_probes


SETTINGS = ("model", "revision", "quantization", "lora", "dataset", "dataset_part", "dataset_hash")
SETTINGS += ("settings", "other_settings", "sampler", "reward_funcs", "warm_start", "row_source", "processes")
"""Keys of `run.json` that say what a run does. The others say where and by what it was done."""
PLACES = {
    *("settings.seed", "settings.overwrite_output_dir", "settings.resize_on_resume", "settings.vllm_adapter_dir"),
    *("settings.probe_kwargs.data", "settings.executor_kwargs.workers", "sampler.kwargs.base_url"),
    *("sampler.kwargs.adapter_dir", "other_settings.vllm_server_base_url", "other_settings.vllm_server_host"),
    "settings.vllm_server_base_urls",
    *("other_settings.vllm_server_port", "other_settings.data_seed"),
}
"""Settings in which seeds of one arm may differ, by dotted name."""
EXAMS, FINAL = "exam/", "final/"
"""What the names of exams along a run and of those at its end begin with."""
ENDS = ("mean", "weakest", "best")
"""What is said of the solvers of a run together in an exam at its end."""
Curve = dict[int, float]
"""Rounds played -> value."""


@dataclass(frozen=True)
class PlayedRun:
    """A run, read from its folder.

    Args:
        folder (`str`): Where it is.
        record (`Mapping`): `run.json`; empty if it is missing.
        history (`Sequence[RoundSummary]`): Its rounds, in order, at least one.
        probes (`Sequence[Mapping]`, *optional*): Evaluations during the run.
        evaluation (`Mapping`, *optional*): Results of `populora evaluate`; empty if it was not evaluated.
        events (`Sequence[Mapping]`, *optional*): Births as JSON. `"round"` is the number of the round before it, from
            1, or `None` if the history does not contain it. `"kind"` is `"join"` if the member joined at a resume.
        adapters (`str`, *optional*): Folder with the newest saved adapters.
        remarks (`tuple[str, ...]`, *optional*): Sentences on what could not be read.
        planned_seed (`int`, *optional*): Seed of a run of an experiment, whose record may be lost.
    """

    folder: str
    record: Mapping[str, Any]
    history: Sequence[RoundSummary]
    probes: Sequence[Mapping[str, Any]] = ()
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()
    adapters: str | None = None
    remarks: tuple[str, ...] = ()
    planned_seed: int | None = None

    @property
    def name(self) -> str:
        return os.path.basename(os.path.abspath(self.folder))

    @property
    def finished(self) -> bool:
        """Whether the run has saved its final population."""
        return os.path.isfile(os.path.join(self.folder, POPULATION_FILE))

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
    def replacements(self) -> list[Mapping[str, Any]]:
        """Events of the lineage in which a member was replaced, without the adapters that a run started from and
        members that joined at a resume."""
        return [event for event in self.events if event.get("kind") not in ("import", "join")]

    @property
    def tables(self) -> dict[int, str]:
        """Round -> path of its table, if it exists."""
        paths = {summary.round: round_file(self.folder, summary.round) for summary in self.history}
        return {number: path for number, path in paths.items() if os.path.isfile(path)}

    def setting(self, name: str, default: Any = None) -> Any:
        """A setting of the run, or `default` if the folder does not contain it."""
        return self.record.get("settings", {}).get(name, default)

    @property
    def seed(self) -> int:
        return self.setting("seed", 0) if self.planned_seed is None else self.planned_seed

    @property
    def first(self) -> int:
        """Number of the first round in its history. It is 1, unless the run continues another in its own folder."""
        return self.history[0].round + 1

    @property
    def rounds(self) -> int:
        """Rounds played, also where it continues another run. The last round has this number."""
        return self.history[-1].round + 1

    @cached_property
    def settings(self) -> dict[str, str]:
        """Settings by dotted name, as JSON, without the seed and paths. A run without a record is never equal to
        another.
        """
        if not self.record:
            return {"folder": json.dumps(self.folder)}
        own = flat({key: self.record[key] for key in SETTINGS if self.record.get(key) not in (None, [])})
        constant = own.get("settings.lr_scheduler_type", '"constant"') == '"constant"'
        # Rates of a schedule depend on earlier values of max_steps. Otherwise only its last value counts.
        free = {name.partition(".")[2] for name in PLACES} | ({"max_steps"} if constant else set())
        resumed = [one["changed"] for one in self.record.get("resumed", ())]  # at whatever step, without a section
        changed = [{k: v for k, v in one.items() if k not in free} for one in resumed]
        if any(changed):
            own["resumed"] = json.dumps([one for one in changed if one])
        return {name: value for name, value in own.items() if name not in PLACES}

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """Every curve of the run by name: those of [`round_metrics`], tokens, and exams, `"exam/<name>/mean"`."""
        curves: dict[str, Curve] = {}
        for summary in self.history:
            tokens = {
                "tokens/learned": sum(one.tokens for one in summary.members),
                "tokens/all": summary.guest_tokens + sum(one.tokens + one.unlearned_tokens for one in summary.members),
            }
            for name, value in (round_metrics(summary) | tokens).items():
                curves.setdefault(name, {})[summary.round + 1] = value
        for record in self.probes:
            for exam, scores in record["exams"].items():
                shares = {"mean": scores["mean"], BASE: scores["players"].get(BASE, {}).get("accuracy")}
                for kind, share in shares.items():
                    if share is not None:
                        curves.setdefault(f"{EXAMS}{exam}/{kind}", {})[record["round"]] = share
        return curves

    def curve(self, name: str) -> Curve:
        """A curve by name; empty if the run has none. Rounds without a number are 0 where that is what it means."""
        own = self.curves.get(name, {})
        zeros = {one.round + 1: 0.0 for one in self.history if is_zero_without(name, self_play=bool(one.teachers))}
        return zeros | own

    @cached_property
    def exams(self) -> dict[str, dict[str, float]]:
        """Exam at the end -> accuracy of `"mean"`, `"weakest"` and `"best"` of those who solve, and of `"base"`.

        The best and the weakest are chosen on questions other than those on which they are scored
        ([`chosen_elsewhere`]). `"average"` is the adapter whose update is the mean of theirs, if it was evaluated. A
        single student is all four. Exams that not all of them took are left out.
        """
        solvers = {member.name for member in self.history[-1].members if member.role != "teacher"}
        exams = self.evaluation.get("exams", ())
        return {exam["exam"]: _accuracies(exam) for exam in exams if solvers <= exam["scores"].keys()}


def read_run(folder: str) -> PlayedRun:
    """A run from its folder.

    Raises:
        ValueError: If it holds no history, a damaged one, or no finished round.
    """
    history = read_history(folder)
    if not history:
        raise ValueError(f"{folder} has no finished round yet")
    remarks: list[str] = []
    return PlayedRun(
        folder=folder,
        record=unless_damaged(lambda: read_record(folder), {}, remarks),
        history=history,
        probes=unless_damaged(lambda: read_probes(folder), [], remarks),
        evaluation=unless_damaged(lambda: read_evaluation(folder), None, remarks) or {},
        events=_with_rounds(history, unless_damaged(lambda: _lineage(folder), [], remarks)),
        adapters=unless_damaged(lambda: _adapters(folder), None, remarks),
        remarks=tuple(remarks),
    )


def flat(record: Any, prefix: str = "") -> dict[str, str]:
    """Nested mappings as one mapping: names are joined by dots, values are JSON."""
    if not isinstance(record, Mapping) or (not record and prefix):
        return {prefix: json.dumps(record)}
    names = ((f"{prefix}.{key}" if prefix else str(key), value) for key, value in record.items())
    return {name: text for key, value in names for name, text in flat(value, key).items()}


def _lineage(folder: str) -> list[dict[str, Any]]:
    path = os.path.join(folder, LINEAGE_FILE)
    return read_lines(path, _event) if os.path.isfile(path) else []


def _event(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"parents": [(name, version) for name, version in record["parents"]]}


def _with_rounds(history: list[RoundSummary], lineage: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All births, each with the round before it, from the lineage or, if it is missing, the history."""
    told = [(summary.round + 1, _event(event)) for summary in history for event in summary.events]
    rounds = {(event["slot"], event["version"]): number for number, event in told}
    if not lineage:
        return [event | {"round": number} for number, event in told]
    first, seen = first_versions(history), lives(history)
    for event in lineage:
        if event.get("kind") == "join" and first.get(event["slot"]) == event["version"]:
            rounds[event["slot"], event["version"]] = seen[event["slot"]][0]
    return [event | {"round": rounds.get((event["slot"], event["version"]))} for event in lineage]


def _adapters(folder: str) -> str | None:
    for place in (folder, *reversed(checkpoints(folder))):
        if os.path.isfile(os.path.join(place, POPULATION_FILE)):
            read_table(place)
            return place
    return None


def _accuracies(exam: Mapping[str, Any]) -> dict[str, float]:
    scores = {player: one["accuracy"] for player, one in exam["scores"].items()}
    told = {kind: one["accuracy"] for kind, one in exam["summaries"].items()}
    others = {kind: scores.pop(kind, None) for kind in (AVERAGE, BASE)}
    solvers = [share for player, share in scores.items() if not player.startswith("teacher")]
    if not told and len(solvers) == 1:
        told = dict.fromkeys(ENDS, solvers[0])
        others[AVERAGE] = solvers[0] if others[AVERAGE] is None else others[AVERAGE]
    return {kind: share for kind, share in (told | others).items() if share is not None}
