"""HTML pages in one file, which need only a browser: their parts, their style and their data.

`reporting.run_page` and others make their pages with it. It knows nothing about runs. Text and numbers are plain
values. They are escaped in the HTML, or stored as compressed JSON that the script of the page shows as text.
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
