"""`render_page` writes sections and data into one HTML file that needs no network.

Figures and data are compressed JSON in base64, so no text in them can end or start a script. A content security policy
in the head of the page allows two scripts, identified by their hashes, and no connections.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ... import __version__
from ...extras import require
from .formats import CURVE, NOTHING, plain, polyline, sort_key, written
from .parts import Cell, Plot, Section


HERE = Path(__file__).parent


def need_plotly() -> None:
    """Raises a `ValueError` that says what to do if plotly or Jinja2 is not installed."""
    for module in ("plotly", "jinja2"):
        require(module, user="the page")


def render_page(
    title: str,
    sections: Sequence[Section],
    *,
    subtitle: str = "",
    figures: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    reload_seconds: float | None = None,
) -> str:
    """A whole page.

    Args:
        title (`str`): Heading of the page.
        sections (`Sequence[Section]`): Its sections, in order. Sections without parts are left out.
        subtitle (`str`, *optional*): A line under the heading.
        figures (`Mapping[str, Figure]`, *optional*): More figures by name, for the widgets.
        data (`Mapping[str, Any]`, *optional*): Name -> data that JSON can hold, for the widgets, which read it by
            `load(name)`. The name `"figures"` is reserved. Values may be packed already ([`pack`]).
        reload_seconds (`float`, *optional*): If set, the browser reloads the page after this number of seconds.

    Raises:
        ValueError: If two figures share a name, or plotly or Jinja2 is not installed.
    """
    need_plotly()
    sections = [section for section in sections if section.parts]
    plots = _figures(part for section in sections for part in section.parts)
    plots |= {name: _bare(figure) for name, figure in (figures or {}).items()}
    packed = {"figures": pack(plots)}
    packed |= {name: one if isinstance(one, Packed) else pack(one) for name, one in (data or {}).items()}
    script, drawing = (HERE / "page.js").read_text(encoding="utf-8"), _plotly()
    template = _environment().get_template("page.html.jinja")
    page = template.render(
        title=title,
        subtitle=subtitle,
        sections=sections,
        packed=packed | {"plotly": drawing},
        reload_seconds=reload_seconds,
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        script=script,
        scripts=" ".join(f"'sha256-{digest}'" for digest in (_digest(script), drawing.digest)),
        version=__version__,
    )
    return page.encode("utf-8", errors="replace").decode()  # half a surrogate pair, as a model may write it


class Packed(str):
    """Text, compressed and in base64. `digest` is the SHA-256 of the text in base64."""

    digest: str = ""


def pack(data: Any) -> Packed:
    """Data as compressed JSON. Values that JSON does not have, such as NaN, become null."""
    return pack_text(json.dumps(plain(data), allow_nan=False, separators=(",", ":"), ensure_ascii=False))


def pack_text(text: str, *, level: int = 6) -> Packed:
    """Text, compressed and in base64, such as finished JSON or a script."""
    content = text.encode("utf-8", errors="replace")
    packed = Packed(base64.b64encode(gzip.compress(content, level, mtime=0)).decode())
    packed.digest = _digest(text)
    return packed


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8", errors="replace")).digest()).decode()


@cache
def _plotly() -> Packed:
    import plotly

    source = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return pack_text(source.read_text(encoding="utf-8"), level=9)


def _figures(parts: Iterable[Any]) -> dict[str, Any]:
    """Name -> figure as JSON, without a template, because the page sets the style."""
    figures: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, Plot):
            if part.name in figures:
                raise ValueError(f"two figures of a page have the name {part.name!r}")
            figures[part.name] = _bare(part.figure)
    return figures


def _bare(figure: Any) -> dict[str, Any]:
    spec = figure.to_plotly_json()
    spec["layout"].pop("template", None)
    return spec


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"written": written, "sort_key": sort_key, "polyline": polyline, "cell": _cell}
    environment.globals |= {"NOTHING": NOTHING, "CURVE": CURVE}
    return environment


def _cell(value: Any) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)
