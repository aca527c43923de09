"""The table of members: what a member has measured is not shown as its child's."""

import pytest


pytest.importorskip("plotly")

from tests.reporting.made_run import MadeRun
from trl_populora.reporting.played_run import read_run
from trl_populora.reporting.run_page.members import member_distances, members
from trl_populora.run_files.files import write_lines


def shown(folder, title: str) -> dict[str, object]:
    """Member -> its value in a column of the table; nothing if the column is left out."""
    table = members(read_run(str(folder)))[0].parts[0]
    titles = [column.title for column in table.columns]
    place = titles.index(title) if title in titles else None
    return {row[0].value: None if place is None else row[place] for row in table.rows}


def probe_after(folder, number: int) -> None:
    players = {name: {"accuracy": 0.5} for name in ("student_0", "student_1", "base")}
    exams = {"sums": {"questions": 4, "mean": 0.5, "players": players}}
    record = {"step": number, "round": number, "exams": exams, "founders": None, "seconds": 1.0}
    write_lines(folder / "probes.jsonl", [record])


@pytest.mark.parametrize(
    ("rounds", "number", "is_its_own"), [(4, 2, False), (4, 3, True), (3, 2, True), (3, 3, False)]
)
def test_a_probe_is_of_the_member_that_took_it(tmp_path, rounds, number, is_its_own):
    folder = MadeRun(tmp_path / "run", teachers=0).make(rounds).folder  # a replacement after the third round
    (replaced,) = [event["slot"] for summary in read_run(str(folder)).history for event in summary.events]
    probe_after(folder, number)
    found = shown(folder, "probe")
    (other,) = found.keys() - {replaced}
    assert found == {other: 0.5, replaced: 0.5 if is_its_own else None}
    distances, _ = member_distances(read_run(str(folder)))
    assert ("probes" in distances.get("students", ())) == is_its_own


def test_the_norm_of_an_update_is_of_this_version(tmp_path):
    folder = MadeRun(tmp_path / "run", teachers=0, evolution_interval=2).make(3).folder  # measured in the first round
    run = read_run(str(folder))
    (replaced,) = [event["slot"] for summary in run.history for event in summary.events]
    first = {member.name: member.delta_norm for member in run.history[0].members}
    assert shown(folder, "|ΔW|") == first | {replaced: None}


def test_the_last_ancestor_that_is_shown_is_a_founder_only_if_it_is_one(tmp_path):
    folder = MadeRun(tmp_path / "run", teachers=0, evolution_interval=1).make(70).folder
    lines = [card["tables"][0]["rows"] for card in members(read_run(str(folder)))[1].values()]
    assert max(map(len, lines)) == 41
    for line in lines:
        last = line[-1][1]
        assert last.endswith("@0, founder") if len(line) < 41 else last.endswith("; its ancestors are left out")


def test_a_member_that_began_with_an_adapter_from_elsewhere_was_never_born(tmp_path):
    folder = MadeRun(tmp_path / "run", evolution_interval=0).make(2).folder
    parents, none = [["user/repo/student_7", 3]], [0.0, 0.0]
    began = {"kind": "import", "slot": "student_1", "version": 0, "operator": "clone", "parents": parents}
    write_lines(folder / "lineage.jsonl", [began | {"rating_before": none, "rating_after": none}])
    assert set(shown(folder, "since round").values()) == {1}
    assert members(read_run(str(folder)))[1]["student_1"]["tables"][0]["rows"] == [
        ["", "student_1@0 is clone(user/repo/student_7@3)", ""],
        ["", "user/repo/student_7@3, from elsewhere", ""],
    ]
