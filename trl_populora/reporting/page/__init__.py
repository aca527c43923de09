"""HTML pages that need only a browser: parts, their style, and one file with all data.

`reporting.run_page` and others use it for their pages. It does not depend on runs. Text and numbers are plain values.
They reach the browser escaped, or as compressed JSON that the page's script shows as text.
"""

from .parts import Cell, Column, Facts, Plot, Section, Table, Text, Tile, Tiles, Widget
from .rendering import need_plotly, render_page


__all__ = [
    "Cell",
    "Column",
    "Facts",
    "Plot",
    "Section",
    "Table",
    "Text",
    "Tile",
    "Tiles",
    "Widget",
    "need_plotly",
    "render_page",
]
