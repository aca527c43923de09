import pytest

from tests.reporting.test_page_rendering import HOSTILE, some_page


pytestmark = pytest.mark.browser


def test_figures_are_drawn_when_seen_and_nothing_complains(open_page):
    page = open_page(some_page())
    page.locator("[data-figure=lines]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-figure=lines][data-drawn=light] .scatterlayer .trace")
    assert page.title() == HOSTILE[0] and page.locator("#trouble").is_hidden()
    assert page.locator("tbody th").first.inner_text() == HOSTILE[0]


def test_tables_sort(open_page):
    page = open_page(some_page())
    scores = page.locator("tbody tr td:nth-child(2)")
    head = page.get_by_role("button", name="score")
    assert scores.all_inner_texts() == ["0%", "100%", "200%", "300%"]
    head.click()  # numbers: the largest first
    assert scores.all_inner_texts() == ["300%", "200%", "100%", "0%"]
    head.click()
    assert scores.all_inner_texts() == ["0%", "100%", "200%", "300%"]


def test_a_slider_moves(open_page):
    page = open_page(some_page())
    place = page.locator("[data-figure=matrix]")
    place.scroll_into_view_if_needed()
    page.wait_for_selector("[data-figure=matrix][data-drawn] .slider-grip-rect")
    shown = page.locator("[data-figure=matrix] .slider-label")
    assert shown.first.text_content() == "round 99"
    rail = page.locator("[data-figure=matrix] .slider-rail-touch-rect").bounding_box()
    page.mouse.click(rail["x"] + 2, rail["y"] + rail["height"] / 2)
    page.wait_for_selector("[data-figure=matrix] .slider-label:text('round 0')")
    assert page.evaluate("document.querySelector('[data-figure=matrix]').data[0].z[0][0]") == 0.0


@pytest.mark.parametrize("dark", [False, True])
def test_the_theme_follows_the_reader(open_page, dark):
    page = open_page(some_page(), dark=dark)
    page.locator("[data-figure=lines]").scroll_into_view_if_needed()

    def colours(name):
        page.wait_for_selector(f"[data-figure=lines][data-drawn={name}]")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        line = page.evaluate("document.querySelector('[data-figure=lines]')._fullData[0].line.color")
        return ground, line

    before = colours("dark" if dark else "light")
    page.emulate_media(color_scheme="light" if dark else "dark")
    after = colours("light" if dark else "dark")
    assert before[0] != after[0] and before[1] != after[1]


def test_a_phone_scrolls_down_only(open_page):
    page = open_page(some_page(), width=390, height=844)
    page.locator("[data-figure=matrix]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-figure=matrix][data-drawn]")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_watched_page_loads_itself_again_at_the_same_place(open_page):
    page = open_page(some_page(reload_seconds=1.5), height=300)
    address, loads = page.url, []
    page.on("load", lambda loaded: loads.append(loaded.url))
    with page.expect_event("load"):
        page.evaluate("scrollTo(0, 150)")
    page.wait_for_function("scrollY === 150")  # an evaluation would fail if the next reload came in between
    assert loads and set(loads) == {address}
