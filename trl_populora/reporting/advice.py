"""Advice for each alarm of a run: part of its text -> what to do."""

from __future__ import annotations

from collections.abc import Sequence

from ..diagnostics import RoundSummary


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
UNKNOWN = "No advice is known for this alarm. The log of the run may say more."


def advice(alarm: str) -> str:
    """What to do about an alarm."""
    return next((words for part, words in ADVICE if part in alarm), UNKNOWN)


def alarm_spans(history: Sequence[RoundSummary]) -> list[tuple[str, int, int, int]]:
    """Every alarm of a run with its first round and its last, from 1, and how many rounds had it; newest first."""
    spans: dict[str, list[int]] = {}
    for summary in history:
        for alarm in summary.alarms:
            spans.setdefault(alarm, []).append(summary.round + 1)
    told = [(alarm, rounds[0], rounds[-1], len(rounds)) for alarm, rounds in spans.items()]
    return sorted(told, key=lambda one: (-one[2], one[1]))
