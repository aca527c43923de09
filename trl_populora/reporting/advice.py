"""Advice for each alarm of a run: part of its text -> what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..diagnostics import RoundSummary
from .tables import counted


ADVICE: tuple[tuple[str, str], ...] = (
    (
        "solved every task of",
        "The tasks are too easy for the students. Read a few under Tasks. teacher_reward 'adversarial' pays "
        "for harder tasks; a higher teacher_learning_rate or an exploring operator lets the teacher move.",
    ),
    (
        "solved no task of",
        "The tasks are too hard, or cannot be solved. Read a few under Tasks. teacher_reward 'solvable' or 'frontier' "
        "pays nothing for tasks that nobody solves; pairing 'variance' chooses closer opponents.",
    ),
    (
        "no valid proposal from",
        "Read its refused proposals under Tasks: the reason says what is missing. A warm start teaches the form; a "
        "longer max_completion_length helps if the texts are cut off.",
    ),
    (
        "the executor failed on",
        "Nobody learns from such rows. `populora doctor` tests the sandbox. Often the machine is out of memory or "
        "processes: use fewer executor_kwargs.workers, or a smaller memory_mb.",
    ),
    (
        "coverage has not grown",
        "Teachers repeat what they have found. More references in the prompt (num_references), more task types, a "
        "higher temperature or more evolution bring variety. In a long run, there may be nothing new to find.",
    ),
    (
        "repeated one answer",
        "Its entropy has collapsed: sampling shows nothing new, so it learns little. What it learned may be one form "
        "of answer for all tasks: read its attempts under Tasks, and compare exams. Lower the learning rate, ask more "
        "tasks in a round (prompts_per_teacher), or start again from an earlier checkpoint.",
    ),
    (
        "ratings are not comparable",
        "Some members never met, so their ratings have no common scale. Raise pairing_floor or prompts_per_teacher, "
        "and compare them by probes until then.",
    ),
    (
        " has a reward",
        "It learns nothing in such a round. Check what the reward functions return for its rows: None and NaN mean "
        "that a row is not scored.",
    ),
    (
        "rewards within every group are equal",
        "A single such round is harmless. If it lasts, read the completions: prompts that are always or never solved "
        "teach nothing, nor does a reward that is always the same. Use other prompts, a reward with values in "
        "between, more num_generations or a higher temperature.",
    ),
    (
        "is frozen after",
        "It does not learn until evolution replaces it. Lower its learning rate, and look at its gradient norms "
        "before the first such round. With evolution_interval 0 nobody will replace it.",
    ),
    (
        "; reset to ",
        "Its numbers overflowed and it was restored. Once is harmless. If it happens again, lower the learning rate "
        "or max_grad_norm.",
    ),
    (
        "nobody recombined",
        "The mean of a role would have weights that overflowed, so its members keep their own. If it happens again, "
        "lower the learning rate.",
    ),
    (
        "is not finite at",
        "A child would have weights that overflowed, so nobody was replaced at this step. If it happens again, lower "
        "the learning rate or the strength of the operator.",
    ),
    (
        "nobody was replaced",
        "Selection needs a score for every member. Check that the reward functions return a number for every member.",
    ),
)
"""Part of an alarm's words -> advice. Thresholds of the alarms are in `diagnostics` and `training/guard.py`."""
NAMES = re.compile(r"\b(?:teacher|student|agent)_\d+\b(?:, (?:teacher|student|agent)_\d+\b)*")
"""Members in an alarm, with commas between them."""
MOST_NAMES = 8
UNKNOWN = "No advice is known for this alarm. The log of the run may say more."


def advice(alarm: str) -> str:
    """What to do about an alarm."""
    return next((words for part, words in ADVICE if part in alarm), UNKNOWN)


def alarm_spans(history: Sequence[RoundSummary]) -> list[tuple[str, int, int, int]]:
    """Every alarm of a run with its first round and its last, from 1, and how many rounds had it; newest first.

    An alarm about some members is one alarm, whoever they were, and tells how many rounds each of them had it.
    """
    spans: dict[str, dict[int, None]] = {}
    about: dict[str, dict[str, list[int]]] = {}
    for summary in history:
        number = summary.round + 1
        for alarm in summary.alarms:
            found = set(NAMES.findall(alarm))
            kind = NAMES.sub("…", alarm) if len(found) == 1 else alarm
            spans.setdefault(kind, {})[number] = None
            for name in found.pop().split(", ") if len(found) == 1 else ():
                about.setdefault(kind, {}).setdefault(name, []).append(number)
    told = [
        (_named(kind, about.get(kind, {})), min(rounds), max(rounds), len(rounds)) for kind, rounds in spans.items()
    ]
    return sorted(told, key=lambda one: (-one[2], one[1]))


def _named(kind: str, members: Mapping[str, Sequence[int]]) -> str:
    """An alarm with the members that had it in these rounds: first those of its last round."""
    if len(members) < 2:
        return kind.replace("…", next(iter(members), "…"))
    last = max(rounds[-1] for rounds in members.values())
    ordered = sorted(members.items(), key=lambda one: (-one[1][-1] if one[1][-1] == last else 0, -len(one[1])))
    told = [
        f"{name} ({counted(len(rounds), 'round')}{'' if rounds[-1] == last else f', until {rounds[-1]}'})"
        for name, rounds in ordered[:MOST_NAMES]
    ]
    more = [counted(len(members) - MOST_NAMES, "other")] if len(members) > MOST_NAMES else []
    return kind.replace("…", ", ".join([*told, *more]), 1).replace("…", "they")
