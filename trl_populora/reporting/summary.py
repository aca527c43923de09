"""The summary at the end of a run: where the adapters are, the strongest members, and what to do next."""

import os
import shlex
from collections.abc import Mapping, Sequence

from ..command import populora
from ..diagnostics import RoundSummary
from ..diagnostics.dynamics import MemberSummary
from ..run_files.run import read_record
from .family_tree import family_tree
from .history import changes
from .probes import probes_summary
from .tables import compute_totals, counted, in_last_rounds, percent, strongest


def run_summary(folder: str, history: Sequence[RoundSummary], *, base: str, probes: Sequence[Mapping] = ()) -> str:
    """Text for the end of a run.

    Args:
        folder (`str`): The run's `output_dir`, which holds the saved population.
        history (`Sequence[RoundSummary]`): Its rounds, at least one.
        base (`str`): Base model that the adapters belong to.
        probes (`Sequence[Mapping]`, *optional*): Probes of the run.
    """
    last = history[-1]
    names = [member.name for member in last.members]
    sizes = f"{counted(last.round + 1, 'round')}, {counted(len(names), 'member')}"
    lines = [
        f"{sizes}, {changes(history)}. Adapters on {base}:",
        *(f"  {os.path.join(folder, name)}" for name in names),
    ]
    for role, title in (("teacher", "Strongest teacher"), ("student", "Strongest student")):
        if (best := strongest(last, role)) is not None:
            lines.append(f"{title}: {best.name} ({_quality(best)})")
    totals = compute_totals(history)
    width = max(map(len, totals))
    replaced = any(summary.events for summary in history)
    slots = " (each slot, with its earlier members)" if replaced else ""
    lines.append(f"Learned from{in_last_rounds(history)}{slots}:")
    for name, (rows, prompt, tokens, updates, *_) in totals.items():
        counts = f"{rows:,} rows, {prompt:,} prompt tokens, {tokens:,} completion tokens, {counted(updates, 'update')}"
        lines.append(f"  {name:<{width}}  {counts}")
    lines += probes_summary(probes)
    if replaced:
        lines += ["Family tree (* lives):", *(f"  {line}" for line in family_tree(folder, history).splitlines())]
    command, place = populora(), shlex.quote(folder)
    lines += ["Next:", f"  {command} report {place}      a page, plots and tables of this run"]
    if last.teachers:
        lines.append(f"  {command} play {place}        one task proposed, verified and solved, to read")
    exams = _exams(folder)
    if exams:
        lines.append(f"  {command} evaluate {place} {exams}")
    elif last.teachers:
        asked = "what every member and the base score on held-out tasks, or benchmarks"
        lines.append(f"  {command} evaluate {place}    {asked}")
    return "\n".join(lines)


def _exams(folder: str) -> str:
    """Options of `populora evaluate` for the exams that a run probes or reserves; empty if there are none."""
    settings = read_record(folder).get("settings", {})
    probes = settings.get("probe_kwargs") or {} if settings.get("eval_strategy", "no") != "no" else {}
    names = dict.fromkeys([*(probes.get("exams") or ()), *(settings.get("reserved_exams") or ())])
    words = ["--exams", *names, *(["--data", probes["data"]] if probes.get("data") else [])]
    return shlex.join(words) if names else ""


def _quality(member: MemberSummary) -> str:
    rating = f"rating {member.mu:.1f}, sigma {member.sigma or 0:.1f}"  # the strongest has the largest mu - 3 sigma
    if member.role == "teacher":
        if member.validity is None:
            return f"{rating}, no proposal judged in the last round"
        return f"{rating}, {percent(member.validity)} of its proposals valid in the last round"
    if member.fill_rate is not None and member.solve_rate is None:
        return f"{rating}, no task of a teacher to solve lately"
    if member.solve_rate is not None:
        solved = f"{percent(member.solve_rate)} of attempts at teachers' tasks solved lately (mean over task types)"
        return f"{rating}, {solved}"
    return f"mean reward {member.mu:+.2f} over the last rounds"
