"""The parts of a page. Each part names its template. All values are plain, and text is never HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar


if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Plot:
    """A figure. The browser draws it when it is scrolled into view.

    Attributes:
        name (`str`): Its name, one of its kind on the page.
        figure (`plotly.graph_objects.Figure`): Colours may be names of the page such as `"var(--c0)"` (`page.css`),
            which follow the light or dark theme. The plotly template is set by the page. Plotly interprets some tags
            in texts. So texts must be names, and never the output of a model.
        title (`str`): What it shows.
        how (`str`): How to read it, in a sentence or two.
        height (`int`): In CSS pixels.
        wide (`bool`): Whether it takes the whole width of the page. Otherwise it takes half, if there is room for two.
    """

    name: str
    figure: go.Figure
    title: str
    how: str
    height: int = 300
    wide: bool = False
    template: ClassVar[str] = "plot.html.jinja"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title (`str`): Its heading.
        kind (`str`): How values are written: `"text"`, `"number"`, `"signed"`, `"count"`, `"share"` (in percent),
            `"curve"` (a sequence of numbers, as a small line) or `"code"`. `None` and NaN are a dash, and sort last.
        hint (`str`): Its meaning, shown under the pointer.
        digits (`int`): Digits after the point, of `"number"`, `"signed"` and `"share"`.
    """

    title: str
    kind: str = "text"
    hint: str = ""
    digits: int | None = None


@dataclass(frozen=True)
class Cell:
    """A value in a table with a format of its own.

    Attributes:
        value (`Any`): The value by which it is sorted.
        text (`str`, *optional*): The text that is shown instead of the value.
        hint (`str`): Shown under the pointer.
        colour (`str`): A colour, shown as a small square before the text, as `"var(--c0)"`.
        bold (`bool`): Whether it is in bold type.
    """

    value: Any
    text: str | None = None
    hint: str = ""
    colour: str = ""
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """A table. A click on a heading sorts it. It scrolls inside its own box.

    Attributes:
        name (`str`): Its name, one of its kind on the page.
        columns (`Sequence[Column]`): Columns. Cells of the first are headings of their rows.
        rows (`Sequence[Sequence]`): Values or [`Cell`]s, one for each column.
        title, how (`str`): What it shows, and how to read it.
        keys (`Sequence[str]`): A key for each row. A click on the row sends its key to the widgets of the page. No
            keys if empty.
    """

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    how: str = ""
    keys: Sequence[str] = ()
    template: ClassVar[str] = "table.html.jinja"


@dataclass(frozen=True)
class Facts:
    """Names and values side by side.

    Attributes:
        values (`Mapping[str, Any]`): Name -> text or number.
        title (`str`): What they are.
        closed (`bool`): Whether only the title is visible until it is clicked.
    """

    values: Mapping[str, Any]
    title: str = ""
    closed: bool = False
    template: ClassVar[str] = "facts.html.jinja"


@dataclass(frozen=True)
class Tile:
    """An important number in large type: `title` above it, `value` as text, a small `note` below it."""

    title: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Tiles:
    """Some [`Tile`]s in a row."""

    tiles: Sequence[Tile]
    template: ClassVar[str] = "tiles.html.jinja"


@dataclass(frozen=True)
class Text:
    """Paragraphs.

    Attributes:
        paragraphs (`Sequence[str]`): Plain text.
        tone (`str`): `""`, `"note"` for a remark in a box, or `"alarm"` for a problem that needs action.
    """

    paragraphs: Sequence[str]
    tone: str = ""
    template: ClassVar[str] = "text.html.jinja"


@dataclass(frozen=True)
class Widget:
    """A part with its own template. A function in `page.js` makes it interactive.

    Attributes:
        name (`str`): `WIDGETS[name]` in `page.js`.
        template (`str`): Template. It gets the variable `part`.
        values (`Mapping[str, Any]`): Values for the template, as `part.values`.
        title, how (`str`): What it shows, and how to read it.
    """

    name: str
    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    how: str = ""


@dataclass(frozen=True)
class Section:
    """A section of the page, with a heading, and a link to it at the top.

    Attributes:
        id (`str`): Its anchor. title (`str`): Its heading. parts (`Sequence`): What it shows, in order.
        lead (`str`): A sentence under the heading. narrow (`bool`): Whether three parts, and not two, are side by
            side.
    """

    id: str
    title: str
    parts: Sequence[Plot | Table | Facts | Text | Tiles | Widget]
    lead: str = ""
    narrow: bool = False
