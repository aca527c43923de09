import base64
import gzip
import json
import math
import re

import pytest


pytest.importorskip("plotly")

from trl_populora.reporting.page import Cell, Column, Facts, Plot, Section, Table, Text, render_page
from trl_populora.reporting.page.figures import MAX_FRAMES, line_figure, matrix_figure, thinned
from trl_populora.reporting.page.formats import plain, polyline, sort_key, written


HOSTILE = (
    "</script><script>document.title='broken'</script>",
    "<img src=x onerror=\"document.title='broken'\">",
    "]]><!--<script>",
    "\u2028 \ud800 {{ 7 * 7 }} ${7 * 7} & \" ' `",
)


def embedded(html: str, name: str):
    """What the page's script would read of this name."""
    (content,) = re.findall(rf'<script type="text/plain" id="data-{name}">([^<]*)</script>', html)
    return json.loads(gzip.decompress(base64.b64decode(content)))


def some_page(**changes) -> str:
    lines = line_figure({"student_0": [(1, 0.5), (2, math.nan), (3, 0.7)]}, share=True)
    frames = {str(number): [[number / 100, None]] for number in range(100)}
    matrix = matrix_figure(frames, rows=["teacher_0"], columns=["student_0", "student_1"])
    rows = [[Cell(text, colour="var(--c0)"), number, [1.0, None, 2.0]] for number, text in enumerate(HOSTILE)]
    table = Table("people", [Column("name"), Column("score", "share"), Column("curve", "curve")], rows, title="People")
    sections = [
        Section("first", "First", [Text(HOSTILE, "alarm"), Facts(dict(zip(HOSTILE, HOSTILE))), table]),
        Section("second", "Second", [Plot("lines", lines, HOSTILE[0], "How."), Plot("matrix", matrix, "M", "How.")]),
        Section("third", "Nothing in it", []),
    ]
    return render_page(HOSTILE[0], sections, data={"texts": HOSTILE, "nan": [math.nan, math.inf, 1.5]}, **changes)


def test_text_is_never_markup():
    html = some_page(subtitle=HOSTILE[1])
    assert html.count("<script") == html.count("</script>") == 5  # the page's own, plotly, figures and two data
    assert "<img" not in html and "document.title=&#39;broken&#39;" in html
    assert "{{ 7 * 7 }}" in html and "49" not in re.sub(r">[A-Za-z0-9+/=]{99,}<", "", html).split("<body")[1][:3000]
    assert embedded(html, "texts")[:3] == list(HOSTILE[:3])


def test_what_json_does_not_know_is_null():
    html = some_page()
    assert embedded(html, "nan") == [None, None, 1.5]
    figures = embedded(html, "figures")
    assert figures["lines"]["data"][0]["y"] == [0.5, None, 0.7]
    assert plain({"a": (1, {2}), 3: True}) == {"a": [1, "{2}"], "3": True}


@pytest.mark.slow
def test_sections_without_parts_are_left_out():
    html = some_page()
    assert 'href="#second"' in html and "Nothing in it" not in html
    assert "data-reload" not in html and 'data-reload="5"' in some_page(reload_seconds=5)


def test_figures_bring_no_template_and_their_names_differ():
    figures = embedded(some_page(), "figures")
    assert "template" not in figures["lines"]["layout"]
    assert figures["lines"]["data"][0]["line"]["color"] == "var(--c0)"
    plot = Plot("one", line_figure({}), "One", "How.")
    with pytest.raises(ValueError, match="two figures of a page have the name 'one'"):
        render_page("Page", [Section("a", "A", [plot, plot])])


def test_a_slider_has_few_frames_and_starts_at_the_last():
    figure = embedded(some_page(), "figures")["matrix"]
    assert len(figure["frames"]) == MAX_FRAMES == len(figure["layout"]["sliders"][0]["steps"])
    assert figure["layout"]["sliders"][0]["active"] == MAX_FRAMES - 1
    assert figure["data"][0]["z"] == [[0.99, None]] == figure["frames"][-1]["data"][0]["z"]
    single = matrix_figure({"1": [[0.5]]}, rows=["a"], columns=["b"])
    assert not single.frames and not single.layout.sliders


def test_values_in_words():
    assert [written(value, "share") for value in (0.256, None, math.nan)] == ["26%", "–", "–"]
    assert written(-0.5, "signed") == "-0.50" and written(1234567, "count") == "1,234,567"
    assert written(True) == "yes" and written(0.123456) == "0.1235" and written("a") == "a"
    assert sort_key(None) == sort_key(math.nan) == "" and sort_key(0.5) == "0.5" and sort_key([1.0, None]) == "1.0"
    assert polyline([None, 1.0]) == "" and len(polyline([1.0, None, 1.0, 2.0]).split()) == 3
    assert thinned(range(10), 4) == [0, 3, 6, 9]
