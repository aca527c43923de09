"""Numbers about a run: complexity and coverage of tasks, dynamics of members. Nothing is drawn or printed here.

Import what you need from its modules; the names below are those that other rooms use.
"""

from .complexity import Complexity, mean_complexity, program_complexity
from .coverage import CoverageArchive
from .dynamics import MemberSummary, RoundSummary, round_metrics, solve_rate_matrix, summarize_round
from .observer import Observer
from .task_metrics import task_metrics


__all__ = [
    "Complexity",
    "CoverageArchive",
    "MemberSummary",
    "Observer",
    "RoundSummary",
    "mean_complexity",
    "program_complexity",
    "round_metrics",
    "solve_rate_matrix",
    "summarize_round",
    "task_metrics",
]
