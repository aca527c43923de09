"""The page of one run: what its sections show. How parts look is decided in `reporting.page`."""

from .writing import make_page, watch, write_report


__all__ = ["make_page", "watch", "write_report"]
