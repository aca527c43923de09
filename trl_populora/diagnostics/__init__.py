"""Numbers about a run: complexity and coverage of tasks, dynamics of members. Nothing is drawn or printed here.

Other subpackages use the names below. Import everything else from the modules.
"""

from .coverage import CoverageArchive
from .dynamics import round_metrics, solve_rate_matrix, summarize_round
from .observer import Observer
from .summary import MemberSummary, RoundSummary
from .task_metrics import task_metrics


__all__ = [
    "CoverageArchive",
    "MemberSummary",
    "Observer",
    "RoundSummary",
    "round_metrics",
    "solve_rate_matrix",
    "summarize_round",
    "task_metrics",
]
