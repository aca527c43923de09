import re

import pytest

from tests.reporting.made_run import MadeRun
from tests.reporting.pages import opener
from tests.reporting.test_page_rendering import HOSTILE


pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def path(tmp_path_factory, browser):
    from trl_populora.reporting.played_run import read_run
    from trl_populora.reporting.run_page import write_report

    made = MadeRun(tmp_path_factory.mktemp("made") / "run", prompts=2, words=HOSTILE[:2]).make(9)
    return made.folder.parent / write_report(read_run(str(made.folder)))


@pytest.fixture(scope="module")
def page(browser, path):
    """The page in one window for all tests that do not care about its size or colours; loading it takes longest."""
    with opener(browser, path.parent) as open_it:
        opened = open_it(path)
        opened.wait_for_selector(".items[data-ready]")
        yield opened


def see(page, name: str):
    """Scrolls to a figure and waits until it is drawn."""
    place = page.locator(f"[data-figure='{name}']").first
    place.scroll_into_view_if_needed()
    page.wait_for_selector(f"[data-figure='{name}'][data-drawn]")
    return place


def found(page) -> int:
    return int(page.locator(".items .quick .count").inner_text().split()[0].replace(",", ""))


def test_every_figure_is_drawn(page):
    names = page.evaluate("[...document.querySelectorAll('[data-figure]')].map(place => place.dataset.figure)")
    assert len(names) > 25
    for name in names:
        see(page, name)
    assert page.locator("#trouble").is_hidden() and page.title() == "run"


def test_members_sort_and_show_their_cards(page):
    rows = page.locator("[data-table=members] tbody tr")
    page.locator("[data-table=members] thead button:text-is('rating')").click()
    ratings = [float(text) for text in page.locator("[data-table=members] td:nth-child(4)").all_inner_texts()]
    assert ratings == sorted(ratings, reverse=True) and len(ratings) == 4
    rows.filter(has_text="teacher_1").click()
    card = page.locator("[data-source=members]")
    assert card.locator("h3").inner_text().startswith("teacher_1, version")
    assert "founder" in card.inner_text() and "Distance to the others" in card.inner_text()
    see(page, "member-teacher_1")


def test_the_matrix_goes_back_in_time(page):
    see(page, "matrix")
    labels = page.locator("[data-figure=matrix] .slider-label")
    assert labels.first.text_content() == "round 9"
    rail = page.locator("[data-figure=matrix] .slider-rail-touch-rect").bounding_box()
    page.mouse.click(rail["x"] + 2, rail["y"] + rail["height"] / 2)
    page.wait_for_selector("[data-figure=matrix] .slider-label:text-is('round 1')")


def test_a_task_opens_with_all_its_attempts(page):
    row = page.locator("tr.head").first
    attempts = int(row.locator("td").nth(3).inner_text())
    row.click()
    item = page.locator(".item")
    assert item.locator(".attempt").count() == attempts > 0
    assert item.locator(".fields h4").first.inner_text() == "program"
    assert "def f(xs):" in item.locator(".fields pre").first.inner_text()
    assert {one.get_attribute("data-verdict") for one in item.locator(".attempt").all()} <= {
        *("solved", "wrong", "refused", "spared")
    }
    row.click()
    assert item.count() == 0


@pytest.mark.parametrize(
    "text, shown",
    [
        ("[user]\nHow many?", "How many?"),
        ("[INST] How many? [/INST]", "[INST] How many? [/INST]"),
        ("[\n 3,\n 10\n]", "3,  10"),
    ],
)
def test_the_line_of_an_item_has_all_but_the_roles_of_a_chat(page, text, shown):
    assert page.evaluate("text => preview({fields: {prompt: text}})", text) == shown


def test_hostile_text_is_shown_as_text(page):
    page.locator("tr.head").first.click()
    assert any(words in page.locator(".item").inner_text() for words in HOSTILE[:2])
    assert page.locator(".item img").count() == 0 and page.title() == "run"
    page.locator("tr.head").first.click()


def test_search_and_filters(page):
    everything = found(page)
    page.locator("[name=author]").select_option("teacher_0")
    by_author = found(page)
    assert 0 < by_author < everything
    assert set(page.locator("tr.head td:nth-child(2)").all_inner_texts()) == {"teacher_0"}
    page.locator("[name=type]").select_option("code_o")
    page.locator("[name=from]").fill("3")
    page.locator("[name=from]").dispatch_event("change")
    assert found(page) < by_author
    page.locator("[name=words]").fill("no such words anywhere")
    page.wait_for_selector(".items .quick .count:text('0 found')")
    assert page.locator("tr.head").count() == 0
    page.locator(".filters").evaluate("form => form.reset()")
    page.locator("[data-view=newest]").click()
    assert found(page) == everything


@pytest.mark.parametrize("view", ["newest", "hardest", "unsolved", "refused"])
def test_quick_views(page, view):
    page.locator(f"[data-view={view}]").click()
    solved = page.locator("tr.head td:nth-child(5)").all_inner_texts()
    assert solved
    if view == "unsolved":
        assert set(solved) == {"0%"}
    if view == "refused":
        assert set(solved) == {"refused"}
        page.locator("tr.head").first.click()
        assert re.search(
            "refused: (syntax_error|not_literal|duplicate)|not judged: the executor failed",
            page.locator(".item").inner_text(),
        )
    if view == "hardest":
        rates = [int(text.rstrip("%")) for text in solved]
        assert rates == sorted(rates) and rates[0] > 0


def test_a_click_in_the_lineage_shows_the_replacement(page):
    see(page, "lineage-student")
    card = page.locator("[data-source=lineage]")
    mark = page.locator("[data-figure=lineage-student] .scatterlayer .point").first
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("[data-figure=lineage-student] .hoverlayer .hovertext")
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("[data-source=lineage][data-shown^=student]")
    facts = card.inner_text()
    for words in ("operator", "parents", "rating before", "rating at birth", "21.5 ± 1.1", "Fitness of the role"):
        assert words in facts
    page.locator("[data-table=replacements] tbody tr").first.click()
    assert card.get_attribute("data-shown") == page.locator("[data-table=replacements] tbody th").first.inner_text()


def test_a_phone_scrolls_down_only(open_page, path):
    page = open_page(path, width=390, height=844)
    for name in ("overview-probes", "matrix", "distance-students", "lineage-student"):
        see(page, name)
    page.locator("tr.head").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_the_dark_page_has_dark_figures(open_page, path):
    shades = []
    for dark in (False, True):
        page = open_page(path, dark=dark)
        see(page, "matrix")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        scale = page.evaluate("document.querySelector('[data-figure=matrix]')._fullData[0].colorscale[0][1]")
        shades.append((ground, scale))
    assert shades[0][0] != shades[1][0] and shades[0][1] != shades[1][1]
