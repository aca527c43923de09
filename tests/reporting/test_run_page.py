import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest


pytest.importorskip("plotly")

from tests.code_tasks import code_task
from tests.reporting.conftest import make_round
from tests.reporting.made_run import MadeRun
from tests.reporting.test_page_rendering import HOSTILE, embedded
from tests.tiny import lora, tiny_population
from trl_populora import cli
from trl_populora.diagnostics import RoundSummary
from trl_populora.diagnostics.dynamics import (
    collapse_alarms,
    equality_alarms,
    repetition_alarms,
    reward_alarms,
    sandbox_alarms,
)
from trl_populora.diagnostics.matched import alarm_text
from trl_populora.diagnostics.weights import measure_weights
from trl_populora.reporting.advice import UNKNOWN, advice, alarm_spans
from trl_populora.reporting.family_tree import plot_family_tree
from trl_populora.reporting.history import read_history
from trl_populora.reporting.page import render_page
from trl_populora.reporting.played_run import read_run
from trl_populora.reporting.run_page import make_page, watch, write_report, writing
from trl_populora.reporting.run_page.items import collect_items
from trl_populora.reporting.run_page.learning import probes
from trl_populora.reporting.run_page.lineage import lineage
from trl_populora.reporting.run_page.members import member_distances, members
from trl_populora.reporting.run_page.overview import headline, overview
from trl_populora.reporting.run_page.weights import adapter_cosines
from trl_populora.run_files.files import write_json, write_table
from trl_populora.run_files.listing import find_runs
from trl_populora.run_files.round_table import COLUMNS
from trl_populora.self_play.records import Attempt
from trl_populora.tasks import INFRASTRUCTURE
from trl_populora.training.guard import Guard


SECTIONS = ("overview", "members", "games", "lineage", "probes", "learning", "tasks", "settings")


def sections(html: str) -> list[str]:
    return re.findall(r'<section id="(\w+)">', html)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return MadeRun(tmp_path_factory.mktemp("made") / "run", words=HOSTILE[:3]).make(8)


@pytest.fixture(scope="module")
def page(made):
    return make_page(read_run(str(made.folder)))


def test_a_page_of_self_play(made, page):
    assert sections(page) == list(SECTIONS)
    assert "2 teachers and 2 students of made-up/base-1B. 8 rounds, ended." in page
    assert "12bbe26c0ffe" in page and "Made-up CPU" in page  # commit and machine
    items = embedded(page, "items")
    last = read_history(made.folder)[-1]
    for name in made.members:
        assert f'data-key="{name}"' in page and name in embedded(page, "members")
    assert any(item["kind"] == "refused" and item["proposal"]["x"] for item in items)
    assert len(page) < 5e6 and last.round == 7


def test_answers_of_current_students_are_no_games_against_founders(made):
    run = read_run(str(made.folder))
    for one in run.probes[-1]["founders"]["teachers"].values():
        one["unsolved_now"] = 0.25
    told = {part.title: part.how for part in probes(run).parts if "founders-" in part.name}
    assert [title for title, how in told.items() if "first members" not in how] == [
        "Teachers' tasks that current students do not solve"
    ]


def test_how_far_other_questions_may_move_an_accuracy(made):
    (plot,) = [part for part in probes(read_run(str(made.folder))).parts if part.name == "exam-0"]
    assert (
        "with other questions, an accuracy of 50% could be up to 20 points higher or lower (95% interval)" in plot.how
    )


def test_a_tile_says_in_how_many_rounds_somebody_was_replaced(made):
    run = read_run(str(made.folder))
    tiles = {tile.title: tile for tile in overview(run, []).parts[0].tiles}
    assert (len(run.replacements), len(run.births)) == (4, 2)
    assert (tiles["Replacements"].value, tiles["Replacements"].note) == ("4", "in 2 rounds")


def test_the_tile_of_a_probe_does_not_call_an_exam_old_that_a_resume_has_added(made):
    run = read_run(str(made.folder))
    first, *rest = [{**one, "exams": {"gsm8k": one["exams"]["held_out"]}} for one in run.probes]
    begun = {**first, "round": 0}
    for records, when in (
        ([begun, *rest], "at the start"), ([first, *rest], "after round 1"), ([run.probes[0], *rest], "after round 6")
    ):  # fmt: skip
        tiles = {tile.title: tile for tile in overview(replace(run, probes=records), []).parts[0].tiles}
        assert tiles["Probe"].note.endswith(f"% {when}, gsm8k")


def test_final_exams_have_the_rows_of_the_terminal_and_differences_in_points(made):
    share = {"accuracy": 0.5, "low": 0.4, "high": 0.6}
    wide = {"of": "mean", "to": "base", "difference": 0.071, "low": -0.02, "high": 0.16, "significant": False}
    exam = {
        "exam": "gsm8k",
        "questions": 50,
        "scores": {"base": share | {"tokens": 9.0}, "student_0": share, "student_1": share},
        "summaries": {"mean": share, "best": share, "weakest": {"accuracy": None, "low": None, "high": None}},
        "differences": [
            wide,
            {"of": "student_0", "to": "base", "difference": 0.07, "significant": True},
            {"of": "best", "to": "base", "difference": None, "low": None, "high": None, "significant": False},
        ],
    }
    run = replace(read_run(str(made.folder)), evaluation={"exams": [exam]})
    (table,) = [part for part in probes(run).parts if part.name == "evaluation-0"]
    names = ["student_0", "student_1", "mean", "best elsewhere", "weakest elsewhere", "base"]
    assert [row[0].value for row in table.rows] == names and table.rows[-1][0].bold
    gaps = {row[0].value: row[4] for row in table.rows}
    assert gaps["mean"].text == "+7.1 (-2.0, +16.0)" and gaps["student_0"].text == "+7.0"
    assert [gaps[name].text for name in ("student_1", "best elsewhere", "base")] == [None] * 3
    assert "+7.1 (-2.0, +16.0)" in render_page("exams", [probes(run)])


def test_items_have_every_attempt_and_right_rates(made, page):
    import pyarrow.parquet

    rows = [
        row
        for path in sorted((made.folder / "rounds").glob("*.parquet"))
        for row in pyarrow.parquet.read_table(path).to_pylist()
    ]
    items = {item["id"]: item for item in embedded(page, "items") if item["kind"] == "task"}
    assert items.keys() == {row["task"] for row in rows if row["task"]}
    for key, item in items.items():
        attempts = [row for row in rows if row["task"] == key and row["role"] == "student"]
        judged = [row for row in attempts if row["reason"] != "infra_error"]
        assert item["n"] == len(attempts) == len(item["attempts"])
        assert [one["c"] for one in item["attempts"]] == [row["completion"] for row in attempts]
        rate = sum(row["solved"] for row in judged) / len(judged) if judged else None
        assert item["rate"] == (None if rate is None else round(rate, 4))
        payload = json.loads(next(row["payload"] for row in rows if row["task"] == key))
        assert item["fields"]["program"] == payload["program"]


def test_what_models_wrote_is_never_markup(page):
    outside = re.sub(r'<script type="text/plain"[^>]*>[^<]*</script>', "", page)
    assert "broken" not in outside  # it is in the packed data only
    assert any("broken" in attempt["c"] for item in embedded(page, "items") for attempt in item["attempts"])


@pytest.mark.slow
def test_a_run_on_a_dataset(tmp_path):
    made = MadeRun(tmp_path / "run", teachers=0, students=3).make(6)
    html = make_page(read_run(str(made.folder)))
    assert "games" not in sections(html) and "tasks" in sections(html) and "<h2>Prompts</h2>" in html
    items = embedded(html, "items")
    assert all(item["kind"] == "prompt" and item["rate"] is None for item in items)
    assert items[0]["fields"]["prompt"].startswith("[user]\nQuestion") and items[0]["attempts"]
    births, cards = embedded(html, "lineage").values(), embedded(html, "members")  # a reward needs two digits
    assert {dict(one["facts"])["rating before"] for one in births} == {"21.50 ± 1.10"}
    assert all("." in dict(card["facts"])["running reward"][-3] for card in cards.values())


@pytest.mark.slow
def test_one_round_that_still_goes_on(tmp_path):
    made = MadeRun(tmp_path / "run")
    made.begin(5)
    made.play()
    html = make_page(read_run(str(made.folder)))
    assert "Round 1 of 5; it is still running, or was stopped." in html
    assert "lineage" not in sections(html) and "frames" not in embedded(html, "figures")["matrix"]
    (made.folder / "population.json").write_text("{}")
    assert headline(read_run(str(made.folder))).endswith(" 1 round, ended.")


@pytest.mark.slow
def test_missing_and_damaged_files_are_told(tmp_path):
    made = MadeRun(tmp_path / "run").make(5)
    (made.folder / "rounds" / "round_000001.parquet").unlink()
    (made.folder / "rounds" / "round_000002.parquet").write_bytes(b"PAR1 no more")
    (made.folder / "lineage.jsonl").write_text("{}\n")
    (made.folder / "run.json").write_text("{")
    html = make_page(read_run(str(made.folder)))
    assert "1 of 5 rounds has no table" in html and "1 table cannot be read" in html
    assert "lineage.jsonl, line 1" in html and "run.json is damaged" in html
    assert "lineage" in sections(html)  # from the history
    for path in (made.folder / "rounds").iterdir():
        path.unlink()
    assert "tasks" not in sections(make_page(read_run(str(made.folder))))


def test_a_run_that_continues_another_says_so(tmp_path):
    made = MadeRun(tmp_path / "run").make(3)
    assert "The history begins" not in make_page(read_run(str(made.folder)))
    path = made.folder / "history.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[2:]))
    html = make_page(read_run(str(made.folder)))
    assert "The history begins at round 3: the run continues another" in html
    assert "% in round 3" in html and "at the start" not in html
    (state,) = find_runs(str(tmp_path))
    assert state.rounds == 3


def test_a_line_that_the_history_has_lost_is_told(tmp_path):
    path = MadeRun(tmp_path / "run").make(4).folder / "history.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:1], *lines[2:]]))
    html = make_page(read_run(str(path.parent)))
    assert "1 round between the first and the last is not in the history" in html and "begins at" not in html


def test_a_record_full_of_gaps(tmp_path):
    made = MadeRun(tmp_path / "run").make(4)
    path = made.folder / "history.jsonl"
    kept = ("name", "role", "version", "mu", "sigma", "length", "rows", "tokens", "reward", "validity", "solve_rate")
    lines = []
    for line in path.read_text().splitlines():
        summary = json.loads(line)
        for member in summary["members"]:
            for name in [name for name in member if name not in kept]:
                del member[name]
            member |= dict(reward=None, validity=None, solve_rate=None, mu=math.nan, sigma=math.inf)
        bare = ("round", "step", "members", "teachers", "students", "games", "wins")
        lines.append(json.dumps({name: summary[name] for name in bare}))
    path.write_text("\n".join(lines) + "\n")
    (made.folder / "probes.jsonl").write_text(json.dumps({"step": 0, "exams": {}, "founders": None}) + "\n")
    html = make_page(read_run(str(made.folder)))
    shown = html.split("<main>")[1].split("</main>")[0]
    assert "nan" not in shown.lower() and "None" not in shown and ">inf" not in shown
    assert "matrix" in embedded(html, "figures")


@pytest.mark.slow
def test_tables_of_an_old_record_have_fewer_columns(tmp_path):
    import pyarrow.parquet

    made = MadeRun(tmp_path / "run").make(2)
    for path in (made.folder / "rounds").iterdir():
        table = pyarrow.parquet.read_table(path)
        pyarrow.parquet.write_table(table.drop_columns(["prompt", "payload", "detail", "version", "fill_in"]), path)
    items = embedded(make_page(read_run(str(made.folder))), "items")
    assert items and all("fields" not in item for item in items) and any(item["attempts"] for item in items)


@pytest.mark.slow
def test_more_than_fits_is_sampled_and_the_page_says_so(tmp_path):
    made = MadeRun(tmp_path / "run", prompts=4, length=400).make(10)
    tables = read_run(str(made.folder)).tables
    everything = collect_items(tables, budget=10**8)
    assert everything.shown == everything.found and not everything.remarks
    part = collect_items(tables, budget=20_000)
    assert 10_000 < len(part.packed) <= 20_000
    assert 0 < sum(part.shown.values()) < sum(part.found.values()) == sum(everything.found.values())
    assert "tasks and proposals are on this page" in part.remarks[0]
    items = json.loads(json.dumps(embedded(f'<script type="text/plain" id="data-x">{part.packed}</script>', "x")))
    newest = max(
        item["round"] for item in embedded(f'<script type="text/plain" id="data-x">{everything.packed}</script>', "x")
    )
    assert any(item["round"] == newest for item in items) and any(item["rate"] == 0 for item in items)
    html = make_page(read_run(str(made.folder)), size=0)  # even then there is room for some
    assert embedded(html, "items")


def test_replacements_tell_parents_operator_round_and_ratings(made, page):
    cards = embedded(page, "lineage")
    events = [(s.round + 1, event) for s in read_history(made.folder) for event in s.events]
    assert len(cards) == len(events) > 2
    for number, event in events:
        facts = dict(cards[f"{event['slot']}@{event['version']}"]["facts"])
        assert facts["round"] == str(number) and facts["operator"] == event["operator"]
        assert facts["parents"] == ", ".join(f"{name}@{version}" for name, version in event["parents"])
        assert facts["rating before"] == "21.5 ± 1.1" and facts["rating at birth"] == "24.0 ± 4.2"
    marks = [
        key for trace in embedded(page, "figures")["lineage-student"]["data"] for key in trace.get("customdata", ())
    ]
    assert sorted(marks) == sorted(key for key in cards if key.startswith("student"))


def lane_ends(tree) -> list[float]:
    """Last round of every slot."""
    ends = {}
    for line in (trace for trace in tree.figure.data if trace.line.width == 4):
        for x, y in zip(line.x, line.y):
            if x is not None:
                ends[y] = max(x, ends.get(y, 0))
    return [ends[lane] for lane in sorted(ends)]


def test_members_that_a_resume_left_behind_do_not_live(tmp_path):
    folder = MadeRun(tmp_path / "run", teachers=0, students=3).make(5).folder
    run = read_run(str(folder))
    (event,) = run.events
    (third,) = {0, 1, 2} - {int(name[-1]) for name in (event["slot"], event["parents"][0][0])}
    kept = tuple(one for one in run.last.members if one.name != f"student_{third}")
    shrunk = replace(run, history=[*run.history[:-1], replace(run.last, members=kept)])
    whole, fewer = (lineage(one)[0].parts[0] for one in (run, shrunk))
    assert lane_ends(whole) == [5, 5, 5] and lane_ends(fewer) == [4 if lane == third else 5 for lane in range(3)]
    assert whole.how.endswith(": 2 of 3.") and fewer.how.endswith(": 1 of 3.")


def test_members_of_a_run_that_continues_another_keep_their_versions_and_founders(tmp_path):
    folder = MadeRun(tmp_path / "run", teachers=0, students=3).make(11).folder
    whole, history = read_run(str(folder)), folder / "history.jsonl"
    history.write_text("".join(history.read_text().splitlines(keepends=True)[8:]))
    part = read_run(str(folder))
    assert [event["round"] for event in part.events] == [None, None, 9]
    trees = [lineage(run)[0].parts[0] for run in (whole, part)]
    assert trees[0].how == trees[1].how and sum(event["version"] for event in part.events) > 3
    assert trees[0].figure.layout.yaxis.ticktext == trees[1].figure.layout.yaxis.ticktext
    labels = [
        [one.get_text() for one in plot_family_tree(run.history).axes[0].get_yticklabels()] for run in (whole, part)
    ]
    assert labels[0] == labels[1]


def test_a_member_that_joined_at_a_resume_replaced_nobody(tmp_path):
    folder = MadeRun(tmp_path / "run", teachers=0, students=3).make(5).folder
    run = read_run(str(folder))
    (event,) = run.events
    late = [replace(one, name="student_3", version=1) for one in run.last.members[:1]]
    rows = [replace(s, members=(*s.members, *late)) if s.round >= 2 else s for s in run.history]
    (folder / "history.jsonl").write_text("".join(json.dumps(one.to_json()) + "\n" for one in rows))
    joined = event | {"slot": "student_3", "version": 1, "parents": [("student_0", 0)], "fitness": {}, "kind": "join"}
    told = "".join(json.dumps({**one, "round": None}) + "\n" for one in (joined, event))
    (folder / "lineage.jsonl").write_text(told)
    run = read_run(str(folder))
    assert len(run.events) == 2 and len(run.replacements) == 1 and run.events[0]["round"] == 2
    section, cards = lineage(run)
    assert list(cards) == [f"{event['slot']}@{event['version']}"] and section.parts[0].how.endswith(" of 3.")
    table = members(run)[0].parts[0]
    since = [column.title for column in table.columns].index("since round")
    assert table.rows[-1][since] == 3


def test_distances_of_what_the_record_has(made):
    run = read_run(str(made.folder))
    found, notes = member_distances(run)
    students = [member for member in run.last.members if member.role == "student"]
    assert found["students"].names == ["student_0", "student_1"]
    gap = abs(students[0].mu - students[1].mu)
    assert found["students"]["rating"][0][1] == pytest.approx(gap) and found["students"]["rating"][0][0] == 0
    assert found["students"]["probes"][0][1] == pytest.approx(0.05) and "probes" not in found["teachers"]
    assert "weights" not in found["students"] and "is missing" in notes[0]


def test_cosines_are_those_of_the_log(tmp_path):
    population = tiny_population(teachers=1, students=3, lora_config=lora(r=2))
    population.save(str(tmp_path))
    names = ["student_0", "student_1", "student_2"]
    cosines = adapter_cosines({name: str(tmp_path / name) for name in names})
    factors = {"students": {name: population.factors(name) for name in names}}
    logged = measure_weights(RoundSummary(0, 0, (), (), (), (), ()), factors).cosines["students"]
    pairs = [cosines[one, other] for one in names for other in names if one < other]
    assert min(pairs) == pytest.approx(logged["min"], abs=1e-6) and max(pairs) == pytest.approx(
        logged["max"], abs=1e-6
    )
    assert cosines["student_1", "student_1"] == pytest.approx(1)
    with pytest.raises(ValueError, match="is missing"):
        adapter_cosines({name: str(tmp_path / name) for name in ("student_0", "nobody")})


def test_an_alarm_about_other_members_is_the_same_alarm():
    said = ["no valid proposal from teacher_0, teacher_2", "no valid proposal from teacher_2", "student_0: a", "b"]
    rounds = [make_round(n, alarms=alarms) for n, alarms in enumerate((said[:1], said[1:3], [], said[1:2] + said[3:]))]
    assert alarm_spans(rounds) == [
        ("no valid proposal from teacher_2 (3 rounds), teacher_0 (1 round, until 1)", 1, 4, 3),
        ("b", 4, 4, 1),
        ("student_0: a", 2, 2, 1),
    ]
    many = ["no valid proposal from " + ", ".join(f"teacher_{k}" for k in range(10))]
    ((alarm, *_),) = alarm_spans(
        [make_round(0, alarms=many), make_round(1, alarms=["no valid proposal from teacher_40"])]
    )
    assert alarm.startswith("no valid proposal from teacher_40 (1 round), teacher_0 (1 round, until 1), teacher_1")
    assert alarm.endswith("teacher_6 (1 round, until 1), 3 others")


def test_an_alarm_that_names_its_member_twice_is_merged():
    rounds = [make_round(n, alarms=[alarm_text(1, f"teacher_{n}", None)]) for n in range(2)]
    ((alarm, *_),) = alarm_spans(rounds)
    told = "teacher_1 (1 round), teacher_0 (1 round, until 1)"
    assert alarm == (
        f"disengaged: the students solved every task of {told} on every attempt; they cannot learn from the students"
    )
    both = [make_round(0, alarms=[alarm_text(0, "teacher_0", "student_1")])]
    assert alarm_spans(both)[0][0] == both[0].alarms[0]


def test_every_alarm_has_advice(made):
    last = read_history(made.folder)[-1]
    silent = replace(last.members[0], validity=0.0)
    alarms = [alarm_text(extreme, *who) for extreme in (0, 1) for who in ((None, None), ("teacher_0", "student_1"))]
    alarms += collapse_alarms([silent], [[1, 0], [0, 1]], coverage=[5] * 40)
    guard = Guard(tiny_population(teachers=1, students=1))
    guard.remember()
    for _ in range(3):
        guard.hold_back({"student_0": math.nan})
        alarms += guard.end_round()
    alarms.append("student_0: gradient norm nan; reset to the weights of its birth")  # of records before 2026-11-23
    alarms.append("nobody was replaced: no reward function has scored student_0 yet")
    own = [Attempt("student_0", code_task("code_o", "x", inputs=("1",), outputs=("2",)), "3", group=0)] * 32
    alarms += repetition_alarms({"student_0": own})
    alarms += reward_alarms([replace(silent, reward=None)])
    alarms += equality_alarms([[1.0, 1.0]])
    alarms += sandbox_alarms([SimpleNamespace(refusal=INFRASTRUCTURE)])
    assert len(alarms) >= 15
    assert not [alarm for alarm in alarms if advice(alarm) == UNKNOWN]
    assert "replaced" not in advice("nobody recombined: the mean of student_0, student_1 is not finite at q_proj.")
    assert advice("something else") == UNKNOWN


@pytest.mark.slow
def test_alarms_are_told_with_their_rounds(tmp_path):
    made = MadeRun(tmp_path / "run", evolution_interval=0).make(21)
    spans = alarm_spans(read_history(made.folder))
    assert spans == [("no valid proposal from teacher_0", 20, 20, 1)]
    html = make_page(read_run(str(made.folder)))
    assert "Alarms: 0 now, 1 earlier" in html and "until round 20" in html and "Read its refused proposals" in html


@pytest.mark.slow
def test_a_watched_run_is_written_after_each_round(tmp_path):
    made = MadeRun(tmp_path / "run")
    made.begin(3)
    made.play()
    written, waits = [], []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            made.play()
        if len(waits) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(str(made.folder), on_page=lambda path: written.append(Path(path).read_text()), wait=wait)
    assert [re.search(r"Round (\d) of 3", html)[1] for html in written] == ["1", "2"]
    assert all('data-reload="10"' in html for html in written)
    assert 'data-reload="' not in Path(write_report(read_run(str(made.folder)))).read_text()


@pytest.mark.slow
def test_a_first_round_that_is_being_written_is_waited_for(tmp_path):
    made = MadeRun(tmp_path / "run")
    made.begin(3)
    made.play()
    history = made.folder / "history.jsonl"
    whole, written = history.read_bytes(), []
    parts = iter([whole[:40], whole[:-1], whole])

    def wait(seconds):
        assert not written
        history.write_bytes(next(parts))

    history.unlink()
    with pytest.raises(AssertionError):
        watch(str(made.folder), on_page=written.append, wait=wait)
    assert history.read_bytes() == whole and len(written) == 1


def test_a_watched_run_is_written_at_its_end_and_after_its_exams(tmp_path, monkeypatch):
    made = MadeRun(tmp_path / "run")
    made.begin(3)
    made.play()
    exam = made.folder / "evaluation" / "evaluation.json"
    changes = [lambda: None, lambda: probe_again(made.folder), made.finish, lambda: write_json(exam, {"exams": []})]
    pages, written = [], []
    monkeypatch.setattr(writing, "write_report", lambda run, path, **_: pages.append(run.folder) or str(len(pages)))

    def wait(seconds):
        if len(written) == len(changes):
            raise KeyboardInterrupt
        written.append(len(pages))
        changes[len(written) - 1]()

    with pytest.raises(KeyboardInterrupt):
        watch(str(made.folder), wait=wait)
    assert [*written, len(pages)] == [1, 1, 2, 3, 4]


def probe_again(folder) -> None:
    probes = folder / "probes.jsonl"
    probes.write_text(probes.read_text() * 2)


@pytest.mark.slow
def test_the_command_prints_tables_and_leaves_a_page(made, tmp_path, capsys):
    assert cli.main(["report", str(made.folder), "--no-plots", "--output", str(tmp_path / "page.html")]) == 0
    text = capsys.readouterr().out
    assert "learned per adapter" in text and f"Page: {tmp_path}/page.html" in text
    assert (tmp_path / "page.html").stat().st_size > 1e6 and not (made.folder / "plots").exists()
    assert cli.main(["report", str(made.folder), "--no-plots"]) == 0
    assert (made.folder / "report.html").is_file()


@pytest.mark.slow
def test_the_command_leaves_out_damaged_files_and_says_so(tmp_path, capsys):
    folder = MadeRun(tmp_path / "run").make(4).folder
    for name in ("probes.jsonl", "lineage.jsonl"):
        (folder / name).write_text("{\n{}\n")
    for name in ("run.json", "population.json"):
        (folder / name).write_text("[]")
    assert cli.main(["report", str(folder), "--no-plots"]) == 0
    text = capsys.readouterr().out
    assert f"Left out: {folder}/probes.jsonl, line 1" in text and f"Left out: {folder}/lineage.jsonl, line 1" in text
    assert "round 3: replaced" in text
    html = (folder / "report.html").read_text()
    assert all(f"{name} is damaged (it holds a list" in html for name in ("run.json", "population.json"))
    (folder / "probes.jsonl").write_text("{}\n")
    assert cli.main(["report", str(folder), "--no-plots"]) == 0
    assert "probes.jsonl, line 1, cannot be read (KeyError('step'))" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, words",
    [
        (["{empty}"], "has no history.jsonl"),
        (["{empty}", "--watch"], "has no history.jsonl"),
        (["{run}", "--output", "{empty}"], "is a folder; name a file in it"),
        (
            ["{run}", "--no-plots", "--output", "/proc/nowhere/report.html"],
            "--output='/proc/nowhere' cannot be written",
        ),
        (["{run}", "--watch", "--no-page"], "--watch and --no-page cannot be used together"),
        (["{run}", "--plots", "x", "--no-plots"], "--plots and --no-plots cannot be used together"),
    ],
)
def test_wrong_calls_are_told_in_one_line(made, tmp_path, capsys, options, words):
    places = {"run": str(made.folder), "empty": str(tmp_path)}
    assert cli.main(["report", *(option.format(**places) for option in options)]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


@pytest.mark.slow
def test_adapters_that_a_run_began_with_are_no_replacements(tmp_path):
    folder = MadeRun(tmp_path / "run").make(4).folder
    before = read_run(str(folder))
    began = before.events[0] | {"kind": "import", "slot": "student_1", "version": 0, "parents": [["student_7", 3]]}
    lines = [json.dumps(one) for one in ({**began, "round": None}, *before.events)]
    (folder / "lineage.jsonl").write_text("\n".join(lines) + "\n")
    after = read_run(str(folder))
    assert len(after.events) == len(before.events) + 1 and len(after.replacements) == len(before.replacements) > 0
    assert "student_1@0" not in embedded(make_page(read_run(str(folder))), "lineage")


@pytest.mark.slow
def test_ratings_of_a_member_that_has_diverged_are_gaps(tmp_path):
    folder = MadeRun(tmp_path / "run").make(4).folder
    low = {"rating_before": [None, 0.0], "rating_after": [None, 0.0]}
    events = [{**event, **low, "fitness": dict.fromkeys(event["fitness"])} for event in read_run(str(folder)).events]
    (folder / "lineage.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    for card in embedded(make_page(read_run(str(folder))), "lineage").values():
        assert "rating before" not in dict(card["facts"])
        assert {fitness for _, fitness, _ in card["tables"][0]["rows"]} == {"–"}


def test_a_task_that_is_proposed_again_is_that_of_its_first_proposal(tmp_path):
    row = dict.fromkeys(COLUMNS) | {
        "step": 0, "role": "teacher", "valid": True, "task": "abc", "author": "teacher_0@1", "completion": "text",
        "type": "code_o",
    }  # fmt: skip
    rows = [
        row | {"round": 0, "kind": "guest", "member": "teacher_0@1"},
        row | {"round": 3, "kind": "learned", "member": "teacher_1", "author": "teacher_1", "version": 5},
    ]
    tables = {one["round"]: str(tmp_path / f"round_{one['round']}.parquet") for one in rows}
    for one in rows:
        write_table(tables[one["round"]], [one], COLUMNS)
    packed = collect_items(tables, budget=100_000).packed
    (item,) = embedded(f'<script type="text/plain" id="data-items">{packed}</script>', "items")
    assert (item["author"], item["version"], item["round"]) == ("teacher_0@1", None, 1)


def test_a_proposal_that_waited_for_its_reward_is_no_attempt(tmp_path):
    proposal = dict.fromkeys(COLUMNS) | {
        "step": 0, "member": "teacher_0", "role": "teacher", "valid": True, "task": "abc", "author": "teacher_0",
        "completion": "text", "type": "code_o",
    }  # fmt: skip
    attempt = proposal | {"round": 1, "kind": "extra", "member": "student_0", "role": "student", "solved": False}
    rows = [proposal | {"round": 0, "kind": "learned"}, attempt, proposal | {"round": 4, "kind": "late"}]
    tables = {row["round"]: str(tmp_path / f"round_{row['round']}.parquet") for row in rows}
    for row in rows:
        write_table(tables[row["round"]], [row], COLUMNS)
    packed = collect_items(tables, budget=100_000).packed
    (item,) = embedded(f'<script type="text/plain" id="data-items">{packed}</script>', "items")
    assert (item["round"], item["last"], item["n"]) == (1, 2, 1)


def test_a_refused_proposal_that_waited_is_one(tmp_path):
    refused = dict.fromkeys(COLUMNS) | {
        "round": 0, "step": 0, "kind": "learned", "member": "teacher_0", "role": "teacher", "valid": False,
        "reason": "syntax_error", "reward": -1.0, "completion": "text", "type": "code_o",
    }  # fmt: skip
    for number, kind in enumerate(("learned", "late")):
        path = tmp_path / f"round_{number}.parquet"
        write_table(path, [refused | {"round": number, "kind": kind}], COLUMNS)
    tables = {number: str(tmp_path / f"round_{number}.parquet") for number in range(2)}
    assert collect_items(tables, budget=100_000).found == {"refused": 1}
