"""Pages of HTML that need nothing but a browser: parts, their look, and one file with all data inside.

What is on a page is decided by its users (`reporting.run_page`). This room knows nothing of runs. Text and numbers
come in as plain values and reach the browser escaped, or as compressed JSON that the page's script shows as text.
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
