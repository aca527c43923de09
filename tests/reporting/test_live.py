import io
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.live import Live

from tests.terminal import Terminal
from trl_populora.progress import Progress
from trl_populora.reporting import LiveView
from trl_populora.reporting.tables import round_line


def test_a_file_gets_plain_lines(rounds):
    out = io.StringIO()
    with LiveView(rounds=6, file=out) as view:
        view.warm_start(1, 2, {"teacher_0": 3.25, "student_0": 4.0})
        view.warm_start(2, 2, {"teacher_0": 1.0, "student_0": 0.5})
        for summary in rounds:
            view.on_round(summary)
    text = out.getvalue()
    assert "\x1b" not in text and "\r" not in text
    assert text.isascii()
    assert "warm start 2/2  loss teacher_0 1.000, student_0 0.500" in text
    assert "round 4  replaced student_1: version 1 is svd_subspace(student_0@0, student_1@0)" in text
    lines = [line for line in text.splitlines() if line.startswith("round 6/6")]
    assert len(lines) == 1 and "learn 3.0)" in lines[0]  # one line, however long
    assert text.count("teacher_1") >= 2 * len(rounds)  # members and matrix, every round


def test_tables_can_be_rarer_but_the_last_round_has_them(rounds):
    out = io.StringIO()
    view = LiveView(rounds=6, file=out, table_every=4)
    for summary in rounds:
        view.on_round(summary)
    assert out.getvalue().count("rating (sigma)") == 3  # rounds 1, 5 and 6
    with pytest.raises(ValueError, match="table_every=0"):
        LiveView(table_every=0)


def test_on_a_dataset_the_table_has_no_columns_of_games(rounds):
    students = tuple(member for member in rounds[-1].members if member.role == "student")
    last = replace(rounds[-1], teachers=(), members=students, window_attempts=(), window_solved=())
    out = io.StringIO()
    LiveView(rounds=6, file=out).on_round(last)
    table = out.getvalue().partition("\n")[2]
    heading, row = table.splitlines()[:2]
    assert heading.split() == ["member", "version", "reward", "tokens/row", "rows"]
    assert row.split()[0] == "student_0" and len(row.split()) == 5


def test_a_terminal_gets_the_last_round_in_place(rounds, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with LiveView(rounds=6, file=out) as view:
        view.warm_start(1, 2)
        for summary in rounds:
            view.on_round(summary)
    text = out.getvalue()
    assert "\x1b" in text
    assert "round 6/6" in text and "svd_subspace" in text


class Seconds:
    """A clock that a test sets."""

    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """The clock of views, which redraw their screens at once."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "119")
    monkeypatch.setattr(
        "trl_populora.reporting.live.Live", lambda **options: Live(**options | {"refresh_per_second": 100})
    )
    clock = Seconds()
    monkeypatch.setattr("trl_populora.reporting.live.time", clock)
    return clock


def probed(step, seconds):
    return {"step": step, "exams": {}, "founders": None, "seconds": seconds, "probing": seconds, "elapsed": 9000.0}


def test_the_time_left_counts_rounds_without_the_start_and_probes(rounds, clock):
    out, progress = Terminal(), Progress()
    with LiveView(rounds=6, file=out) as view:
        view.watch(progress)
        clock.now += 900 + 1800  # the base is loaded, the first probe taken
        view.on_probe(probed(0, 1800.0))
        clock.now += 60
        view.on_round(rounds[0])
        assert out.shows("run 46:00, 5:00 left")
        clock.now += 60
        view.on_round(rounds[1])
        progress.begin("probe held_out")
        clock.now += 1000
        assert out.shows("probe held_out .*run 1:03:40, 4:00 left")  # as before it
        progress.end()
        view.on_probe(probed(2, 1000.0))
        clock.now += 20
        assert out.shows("run 1:04:00, 3:40 left")
        clock.now += 40
        view.on_round(rounds[2])
        assert out.shows("run 1:04:40, 3:00 left")
        clock.now += 30
        view.on_probe(probed(3, 10.0))  # within a round, which has several steps
        clock.now += 40
        view.on_round(rounds[3])
        assert out.shows("run 1:05:50, 2:00 left")


def test_no_time_is_left_after_the_last_round(rounds, clock):
    out, progress = Terminal(), Progress()
    with LiveView(rounds=6, file=out) as view:
        view.watch(progress)
        for summary in rounds:
            clock.now += 60
            view.on_round(summary)
        progress.begin("probe held_out")
        clock.now += 300
        assert out.shows("probe held_out .*run 11:00")
    assert not re.search("probe held_out[^\n]* left", out.getvalue())


def test_the_first_round_begins_with_training(rounds, clock):
    out, calls = Terminal(), []
    parts = {"on_round": None, "on_probe": None, "progress": Progress(), "remove_callback": lambda kind: None}
    with LiveView(rounds=6, file=out) as view:
        view.attach(SimpleNamespace(**parts, add_callback=calls.append))
        clock.now += 900
        (begin,) = calls
        begin.on_train_begin(None, None, None)
        clock.now += 60
        view.on_round(rounds[0])
        assert out.shows("run 16:00, 5:00 left")


def test_the_view_is_closed_when_training_fails(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with pytest.raises(RuntimeError), LiveView(file=out):
        raise RuntimeError
    text, hidden, shown = out.getvalue(), "\x1b[?25l", "\x1b[?25h"
    assert hidden in text and text.rindex(shown) > text.rindex(hidden), "the terminal has its cursor again"


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_run_goes_on_without_its_output(rounds, caplog, monkeypatch, kind):
    monkeypatch.setenv("TERM", "xterm")

    class Gone(kind):
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

    with LiveView(file=Gone()) as view:
        view.note("text")
        view.warm_start(1, 1)
        for summary in rounds:
            view.on_round(summary)
    assert len(caplog.records) == 1 and "Broken pipe" in caplog.text


def test_only_rank_zero_speaks(rounds, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    out = io.StringIO()
    with LiveView(file=out) as view:
        view.note("text")
        view.warm_start(1, 1)
        view.on_round(rounds[3])
    assert out.getvalue() == ""


def test_matched_games_fill_ins_and_roles_are_told_apart(rounds):
    from dataclasses import replace

    (line,) = [round_line(rounds[0])]
    assert "solved 50%" in line and "fill-ins 25% (75% solved)" in line and "reward T +0.50 S -0.25" in line
    none = replace(rounds[0], fill_rate=0.0, solve_rate=None)
    assert "fill-ins" not in round_line(none) and "solved -" in round_line(none)
    out = io.StringIO()
    LiveView(file=out).on_round(rounds[0])
    text = out.getvalue()
    assert "fill-ins (solved)" in text and "25% (75%)" in text
    assert "solve rate (attempts)" in text and "25% (8)" in text  # of the window, not of the ratings' games


def test_games_of_many_students_are_lists_that_can_be_read(rounds):
    from dataclasses import replace

    students = tuple(f"student_{i}" for i in range(30))
    attempts = ((8, *[0] * 28, 8), (0,) * 30)
    solved = ((2, *[0] * 28, 4), (0,) * 30)
    wide = replace(
        rounds[0],
        teachers=("teacher_0", "teacher_1"),
        students=students,
        window_attempts=attempts,
        window_solved=solved,
    )
    out = io.StringIO()
    LiveView(file=out).on_round(wide)
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert ["teacher_0", *"student_0 25% (8), student_29 50% (8)".split()] in lines and ["teacher_1", "-"] in lines


def test_in_a_notebook_a_file_gets_what_it_was_named_for(monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    out = io.StringIO()
    with LiveView(file=out) as view:
        view.note("hello")
    assert out.getvalue() == "hello\n"
