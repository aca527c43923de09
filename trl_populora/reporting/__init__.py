"""Pictures and words about a run: terminal view, plots, family tree, summary and model card.

Every number comes from `diagnostics` and `evaluation`. Only this subpackage imports matplotlib and rich.
"""

from .family_tree import family_tree
from .history import read_history
from .live import LiveView
from .model_card import model_card
from .plots import save_plots
from .probes import read_probes
from .summary import run_summary


__all__ = ["LiveView", "family_tree", "model_card", "read_history", "read_probes", "run_summary", "save_plots"]
