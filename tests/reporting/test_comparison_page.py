"""The page of several runs says what the numbers are worth, and what cannot be said."""

from dataclasses import replace

import pytest

from tests.reporting.test_comparison import made
from trl_populora.cli import main
from trl_populora.reporting.comparison import Comparison, group_arms
from trl_populora.reporting.comparison_page import comparison_page, comparison_sections, remarks, shown_measures
from trl_populora.reporting.page import render_page
from trl_populora.run_files.files import write_json, write_lines


def compared(*runs) -> Comparison:
    return Comparison(group_arms(runs))


def parts(comparison: Comparison) -> dict:
    return {section.id: section for section in comparison_sections(comparison)}


def text(part) -> list[str]:
    """The texts of a table, row by row."""
    return [[str(getattr(cell, "text", None) or getattr(cell, "value", cell)) for cell in row] for row in part.rows]


def arms(seeds: int) -> list:
    bare = [made(s, rate=lambda n, s=s: 0.5 + 0.01 * s) for s in range(seeds)]
    paid = [made(s, rate=lambda n, s=s: 0.6 + 0.03 * s, teacher_reward="frontier") for s in range(seeds)]
    return [*bare, *paid]


@pytest.mark.slow
def test_differences_are_shown_with_intervals_and_pairs():
    sections = parts(compared(*arms(3)))
    row = text(sections["differences"].parts[0])[0]
    assert row[0] == "Matched solve rate" and row[1] == "teacher_reward=frontier"
    assert row[2] == "51.0% [48.5%, 53.5%]" and row[3] == "63.0% [55.5%, 70.5%]"
    assert row[4] == "+12.0 points [+7.0, +17.0]" and row[6] == "3 pairs"
    assert "Each arm minus teacher_reward=adversarial" in sections["differences"].lead


def test_one_seed_has_no_band_and_says_why():
    found = compared(*arms(1))
    told = " ".join(remarks(found))
    assert "One seed only: teacher_reward=adversarial, teacher_reward=frontier." in told
    sections = parts(found)
    plot = sections["curves-self-play"].parts[0]
    assert [trace.name for trace in plot.figure.data] == ["teacher_reward=adversarial", "teacher_reward=frontier"]
    assert text(sections["differences"].parts[0])[0][4] == "+10.0 points"


@pytest.mark.slow
def test_several_seeds_have_a_band_and_thin_lines():
    plot = parts(compared(*arms(3)))["curves-self-play"].parts[0]
    thin = [trace for trace in plot.figure.data if trace.line.width == 0.8]
    filled = [trace for trace in plot.figure.data if trace.fill == "toself"]
    assert len(thin) == 6 and len(filled) == 2 and max(filled[0].y) == pytest.approx(0.51 + 4.3027 * 0.01 / 3**0.5)


def test_runs_of_other_length_are_said():
    told = " ".join(remarks(compared(made(0, rounds=3), made(0, rounds=9, teacher_reward="frontier"))))
    assert "Runs have 3 to 9 rounds. They are compared over the 3 rounds that all runs have" in told
    assert "Later rounds are not on this page." in told
    scores = {f"student_{i}": {"accuracy": 0.5} for i in range(2)}
    examined = replace(made(0, rounds=9), evaluation={"exams": [{"exam": "e", "scores": scores, "summaries": {}}]})
    told = " ".join(remarks(compared(made(0, rounds=3), examined)))
    assert "Later rounds are not on this page, but final exams come after them." in told


def test_a_history_that_begins_later_is_said():
    whole, part = made(0), made(0, folder="runs/more", teacher_reward="frontier")
    told = " ".join(remarks(compared(whole, replace(part, history=part.history[2:]))))
    assert "The history of runs/more begins at round 3: the run continues another" in told
    assert "last 2 of rounds 3 to 6" in told and "continues" not in " ".join(remarks(compared(whole, part)))


def test_settings_that_differ_come_first_and_are_marked():
    table, same = parts(compared(*arms(2)))["settings"].parts
    assert text(table) == [["settings.teacher_reward", "adversarial", "frontier"]]
    assert [getattr(cell, "bold", None) for cell in table.rows[0]] == [None, False, True]
    assert same.closed and same.values == {"model": "tiny"}


@pytest.mark.slow
def test_one_arm_is_shown_without_differences():
    found = compared(*arms(3)[:3])
    assert not parts(found)["differences"].parts
    assert render_page("one", comparison_sections(found))


def test_measures_are_those_that_the_runs_have():
    names = shown_measures(compared(*arms(1)))
    assert names[0] == "solve_rate" and {"complexity/ast_nodes", "teachers/validity", "tokens/learned"} <= set(names)
    assert {"types/solve_rate/code_i", "types/solve_rate/code_o"} <= set(names)
    assert not [
        name
        for name in names
        if name.startswith(("exam/", "solve_rate/", "reward/", "seconds/")) or name.count("/") > 2
    ]


@pytest.fixture
def folders(tmp_path) -> list[str]:
    """Two runs on the disk."""
    for run, folder in zip(arms(1), ("a", "b"), strict=True):
        write_lines(tmp_path / folder / "history.jsonl", [one.to_json() for one in run.history])
        write_json(tmp_path / folder / "run.json", run.record)
    return [str(tmp_path / "a"), str(tmp_path / "b")]


def test_a_page_from_folders(folders):
    html = comparison_page(folders)
    assert "2 runs in 2 arms, compared over 6 rounds" in html and "teacher_reward=frontier" in html
    with pytest.raises(ValueError, match="named twice"):
        comparison_page([folders[0], f"{folders[0]}/../a"])


@pytest.mark.slow
def test_the_command_compares_several_runs(folders, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *folders]) == 0
    assert "2 runs in 2 arms" in (tmp_path / "comparison.html").read_text()
    assert main(["report", *folders, "--output", "other.html"]) == 0 and (tmp_path / "other.html").exists()
    assert main(["report", *folders, "--watch"]) == 2
    assert "--watch is for one run" in capsys.readouterr().err
    assert main(["report", folders[0], str(tmp_path / "nowhere")]) == 2


@pytest.mark.browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_it_is_drawn_in_a_browser(open_page, width, dark):
    page = open_page(render_page("two arms", comparison_sections(compared(*arms(3)))), width=width, dark=dark)
    place = page.locator("[data-figure=solve_rate]")
    place.scroll_into_view_if_needed()
    page.wait_for_selector("[data-figure=solve_rate][data-drawn] .scatterlayer .trace", state="attached")
    assert place.locator(".legendtext").all_text_contents() == [
        "teacher_reward=adversarial",
        "teacher_reward=frontier",
    ]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not page.get_by_text("executor_kwargs").is_visible()
