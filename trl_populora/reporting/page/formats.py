"""How values are written on a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


NOTHING = "–"
CURVE = (88, 20)  # width and height of a small line, in CSS pixels


def is_missing(value: Any) -> bool:
    """Whether there is no such value: `None`, NaN or infinite."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def written(value: Any, kind: str = "text", digits: int | None = None) -> str:
    """A value as text, in the format of a kind of column ([`Column`])."""
    if is_missing(value):
        return NOTHING
    if kind == "share":
        return f"{100 * value:.{digits or 0}f}%"
    if kind == "signed":
        return f"{value:+.{2 if digits is None else digits}f}"
    if kind == "number":
        return f"{value:.{2 if digits is None else digits}f}"
    if kind == "count":
        return f"{value:,.0f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def sort_key(value: Any) -> str:
    """The key by which the script of the page sorts a cell; empty for a missing value."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = next((one for one in reversed(value) if not is_missing(one)), None)
    return "" if is_missing(value) else repr(float(value)) if isinstance(value, (int, float)) else str(value)


def polyline(values: Sequence[float | None]) -> str:
    """Points of an SVG polyline through the values that are not missing, in a box of size `CURVE`. Empty for fewer
    than two values."""
    points = [(k, float(value)) for k, value in enumerate(values) if value is not None and math.isfinite(value)]
    if len(points) < 2:
        return ""
    low, high = min(value for _, value in points), max(value for _, value in points)
    width, height = CURVE
    x_scale, y_scale = (width - 4) / max(len(values) - 1, 1), (height - 4) / ((high - low) or 1.0)
    flat = (height - 4) / 2 if high == low else 0
    return " ".join(f"{2 + k * x_scale:.1f},{height - 2 - flat - (value - low) * y_scale:.1f}" for k, value in points)


def plain(value: Any) -> Any:
    """A value that JSON can hold: NaN and infinities become null, tuples become lists, other objects become text."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (str, int, type(None))) else str(value)
