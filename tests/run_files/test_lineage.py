import builtins
import json
import math
from dataclasses import replace

import pytest

from trl_populora.reporting.family_tree import family_tree
from trl_populora.run_files.lineage import EvolutionEvent, Lineage


def event(step: int, child: str, *parents: str, operator: str = "dare") -> EvolutionEvent:
    """`event(20, "b@1", "a@0")`: at step 20 slot b got its version 1, a child of a's founder."""
    slot, version = child.split("@")
    return EvolutionEvent(
        step=step,
        slot=slot,
        role="student",
        operator=operator,
        parameters={"p": 0.7, "seed": 2**47 + 1},
        parents=tuple((name, int(v)) for name, v in (parent.split("@") for parent in parents)),
        version=int(version),
        fitness={"a": 0.1 + 0.2, "b": -1.0},
        rating_before=(24.1, 3.0),
        rating_after=(1 / 3, 25 / 6),
    )


HISTORY = [
    event(20, "c@1", "a@0", "b@0"),
    event(40, "d@1", "c@1", operator="gaussian"),
    event(60, "c@2", "d@1", "a@0", operator="svd_subspace"),
]


def test_json_is_exact():
    for one in (HISTORY[0], replace(HISTORY[0], learning_rate=1e-3 * 0.8)):
        assert EvolutionEvent.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_diverged_member_is_null_in_the_file(tmp_path):
    """JSON has no infinity."""
    path = tmp_path / "lineage.jsonl"
    low = (-math.inf, 0.0)
    one = replace(HISTORY[0], fitness={"a": 0.5, "b": -math.inf}, rating_before=low, rating_after=low)
    Lineage(path).extend([one])
    line = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert (line["fitness"], line["rating_before"]) == ({"a": 0.5, "b": None}, [None, 0.0])
    assert list(Lineage(path)) == [one]


def test_file_holds_each_event_as_soon_as_it_is_added(tmp_path):
    path = tmp_path / "lineage.jsonl"
    lineage = Lineage(path)
    for count, one in enumerate(HISTORY, start=1):
        lineage.extend([one])
        assert list(Lineage(path)) == HISTORY[:count]
        assert path.read_text().count("\n") == count
    again = Lineage(path)
    again.extend([event(80, "a@1", "d@1")])
    assert len(Lineage(path)) == 4


def test_in_memory():
    lineage = Lineage()
    lineage.extend(HISTORY)
    assert lineage.events == HISTORY and len(lineage) == 3


def test_torn_last_line_is_dropped(tmp_path):
    path = tmp_path / "lineage.jsonl"
    Lineage(path).extend(HISTORY)
    whole = path.read_bytes()
    for cut in (2, 40):
        path.write_bytes(whole[:-cut])
        assert list(Lineage(path)) == HISTORY[:2]
    lineage = Lineage(path)
    lineage.extend([HISTORY[2]])
    assert path.read_bytes() == whole


def test_a_whole_last_line_without_its_break_is_kept(tmp_path):
    path = tmp_path / "lineage.jsonl"
    Lineage(path).extend(HISTORY)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    lineage = Lineage(path)
    assert list(lineage) == HISTORY
    lineage.extend([])
    assert path.read_bytes() == whole


def test_unreadable_line_is_named(tmp_path):
    path = tmp_path / "lineage.jsonl"
    Lineage(path).extend(HISTORY)
    lines = path.read_text().splitlines(keepends=True)
    for wrong in ("{}\n", "no json\n", "3\n"):
        path.write_text(lines[0] + wrong + lines[2])
        with pytest.raises(ValueError, match=r"lineage\.jsonl, line 2, cannot be read"):
            Lineage(path)
        assert path.read_text() == lines[0] + wrong + lines[2]


def test_reading_never_writes(tmp_path, monkeypatch):
    path = tmp_path / "lineage.jsonl"
    Lineage(path).extend(HISTORY)
    path.write_bytes(path.read_bytes()[:-3])  # as a running process is just writing its last line
    content, made = path.read_bytes(), path.stat().st_mtime_ns
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    modes = []
    plain = builtins.open

    def watched(file, mode="r", *args, **kwargs):
        modes.append(mode)
        return plain(file, mode, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", watched)  # permissions stop everybody but root
    try:
        lineage = Lineage(path)
        assert list(lineage) == HISTORY[:2]
        assert lineage.family_tree() and lineage.founders("a")
        assert family_tree(tmp_path) == lineage.family_tree()
    finally:
        monkeypatch.undo()
        tmp_path.chmod(0o755)
    assert modes and set(modes) <= {"r", "rb"}
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, made)
    assert [file.name for file in tmp_path.iterdir()] == ["lineage.jsonl"]


def test_founders():
    lineage = Lineage()
    lineage.extend(HISTORY)
    assert lineage.founders("a") == {"a"}
    assert lineage.founders("c") == lineage.founders("d") == {"a", "b"}
    assert lineage.founders("c", 0) == {"c"}
    assert lineage.founders("stranger") == {"stranger"}


def test_slot_can_be_its_own_parent():
    lineage = Lineage()
    lineage.extend([event(20, "b@1", "a@0", "b@0")])
    assert lineage.founders("b") == {"a", "b"}


def test_family_tree():
    lineage = Lineage()
    lineage.extend(HISTORY)
    assert lineage.family_tree(["a", "b", "c", "d", "e"]).splitlines() == [
        "a@0 *  founder",
        "  c@1  step 20, dare with b@0",
        "    d@1 *  step 40, gaussian",
        "      c@2 *  step 60, svd_subspace with a@0",
        "b@0 *  founder",
        "c@0  founder",
        "d@0  founder",
        "e@0 *  founder",
    ]
    assert Lineage().family_tree() == ""


def test_a_member_that_joined_has_no_founder_in_its_slot():
    lineage = Lineage()
    joined = replace(event(10, "b@1", "a@0"), operator="clone", kind="join")
    lineage.extend([joined, event(20, "a@1", "b@1")])
    assert lineage.family_tree(["a", "b"]).splitlines() == [
        "a@0  founder",
        "  b@1 *  step 10, join",
        "    a@1 *  step 20, dare",
    ]
    assert lineage.founders("b") == {"a"}


def test_the_founder_of_a_slot_stays_when_a_later_member_joins_there():
    lineage = Lineage()
    again = replace(event(30, "b@2", "a@0"), operator="clone", kind="join")
    lineage.extend([event(10, "b@1", "a@0"), again])
    assert lineage.family_tree(["a", "b"]).splitlines() == [
        "a@0 *  founder",
        "  b@1  step 10, dare",
        "  b@2 *  step 30, join",
        "b@0  founder",
    ]


def test_a_long_line_of_descent():
    lineage = Lineage()
    lineage.extend([event(n, f"a@{n}", f"a@{n - 1}") for n in range(1, 3000)])
    assert len(lineage.family_tree().splitlines()) == 3000
    assert lineage.founders("a") == {"a"}
