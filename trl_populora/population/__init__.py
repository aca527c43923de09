"""Members and their LoRA adapters on one frozen base: creation, routing, replacement, saving and loading.

What members play, how they are trained and how children are made is in other subpackages.
"""

from .factors import Factor, Factors
from .member import Member, member_names
from .population import Population
from .routing import Routing


__all__ = ["Factor", "Factors", "Member", "Population", "Routing", "member_names"]
