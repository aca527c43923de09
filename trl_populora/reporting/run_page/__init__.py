"""The page of one run: the content of its sections. `reporting.page` decides how they look."""

from .writing import make_page, watch, write_report


__all__ = ["make_page", "watch", "write_report"]
