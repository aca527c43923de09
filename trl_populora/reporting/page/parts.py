"""What a page is made of. A part names the template that shows it; all values are plain, and text is never HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar


if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Plot:
    """A figure, drawn when it comes into view.

    Attributes:
        name (`str`): Its name, one of its kind on the page.
        figure (`plotly.graph_objects.Figure`): Colours may be the page's own, as in `"var(--c0)"` (`page.css`): they
            follow the light or dark theme. The template is the page's. Plotly reads some tags in texts: names only,
            nothing that a model wrote.
        title (`str`): What it shows.
        how (`str`): How to read it, in a sentence or two.
        height (`int`): In CSS pixels.
        wide (`bool`): Takes the whole width of the page; otherwise half of it, where there is room for two.
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
        hint (`str`): What it means, shown under the pointer.
        digits (`int`): Digits after the point, of `"number"`, `"signed"` and `"share"`.
    """

    title: str
    kind: str = "text"
    hint: str = ""
    digits: int | None = None


@dataclass(frozen=True)
class Cell:
    """A value of a table that looks otherwise than its column says.

    Attributes:
        value (`Any`): What it is sorted by.
        text (`str`, *optional*): What is written instead of it.
        hint (`str`): Shown under the pointer.
        shade (`float`, *optional*): From 0 to 1: how much of the ground is coloured.
        colour (`str`): A colour, shown as a small square before the text, as `"var(--c0)"`.
        bold (`bool`): Stands out.
    """

    value: Any
    text: str | None = None
    hint: str = ""
    shade: float | None = None
    colour: str = ""
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """A table, sorted by a click on a heading. It scrolls inside its own box.

    Attributes:
        name (`str`): Its name, one of its kind on the page.
        columns (`Sequence[Column]`): The first is a heading of its row.
        rows (`Sequence[Sequence]`): Values or [`Cell`]s, one for each column.
        title, how (`str`): What it shows, and how to read it.
        keys (`Sequence[str]`): A key for each row, which a click on it hands to the page's widgets; none if empty.
        wide (`bool`): Takes the whole width of the page.
    """

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    how: str = ""
    keys: Sequence[str] = ()
    wide: bool = True
    template: ClassVar[str] = "table.html.jinja"


@dataclass(frozen=True)
class Facts:
    """Names and values side by side. `closed` hides them behind their title until it is clicked.

    Attributes:
        values (`Mapping[str, Any]`): Name -> text or number.
        title (`str`): What they are.
        closed (`bool`): Whether they wait to be opened.
        wide (`bool`): Takes the whole width of the page.
    """

    values: Mapping[str, Any]
    title: str = ""
    closed: bool = False
    wide: bool = True
    template: ClassVar[str] = "facts.html.jinja"


@dataclass(frozen=True)
class Tile:
    """A number that counts, in large: `value` in words, under its `title`, over a `note` in small."""

    title: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Tiles:
    """Some [`Tile`]s in a row."""

    tiles: Sequence[Tile]
    wide: bool = True
    template: ClassVar[str] = "tiles.html.jinja"


@dataclass(frozen=True)
class Text:
    """Paragraphs.

    Attributes:
        paragraphs (`Sequence[str]`): Plain text.
        tone (`str`): `""`, `"note"` for a remark in a box, or `"alarm"` for what asks for action.
    """

    paragraphs: Sequence[str]
    tone: str = ""
    wide: bool = True
    template: ClassVar[str] = "text.html.jinja"


@dataclass(frozen=True)
class Widget:
    """A part with a template of its own, which a function of `page.js` brings to life.

    Attributes:
        name (`str`): `WIDGETS[name]` in `page.js`.
        template (`str`): Template, which sees `part`.
        values (`Mapping[str, Any]`): What the template shows, as `part.values`.
        title, how (`str`): What it shows, and how to read it.
    """

    name: str
    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    how: str = ""
    wide: bool = True


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading, and a link to it at the top.

    Attributes:
        id (`str`): Its anchor. title (`str`): Its heading. parts (`Sequence`): What it shows, in order.
        lead (`str`): A sentence under the heading. narrow (`bool`): Three parts side by side and not two.
    """

    id: str
    title: str
    parts: Sequence[Plot | Table | Facts | Text | Tiles | Widget]
    lead: str = ""
    narrow: bool = False
