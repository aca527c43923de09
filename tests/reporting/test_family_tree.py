"""The picture of the family tree: what it draws, read back from the axes."""

from dataclasses import replace

import pytest

from tests.reporting.conftest import make_round
from trl_populora.reporting.drawing import COLOURS
from trl_populora.reporting.family_tree import MARKERS, REST, operator_markers, plot_family_tree


def birth(slot, version, *parents, operator="clone"):
    return {"slot": slot, "version": version, "operator": operator, "parents": [list(parent) for parent in parents]}


def lanes(axis):
    """(lane, from, to, colour) of every stretch of life."""
    from matplotlib.colors import to_hex

    drawn = []
    for collection in axis.collections:
        ((start, end),) = collection.get_segments()
        drawn.append((start[1], start[0], end[0], to_hex(collection.get_color()[0]).upper()))
    return sorted(drawn)


def test_lanes_have_the_colour_of_the_founder():
    events = {
        4: [birth("student_1", 1, ("student_0", 0), ("student_1", 0), operator="dare")],
        8: [birth("student_2", 1, ("student_1", 1)), birth("teacher_0", 1, ("teacher_1", 0))],
    }
    history = [make_round(k, size=3, events=tuple(events.get(k, ()))) for k in range(12)]
    teachers, students = plot_family_tree(history).axes
    first, rest = COLOURS[0].upper(), REST.upper()
    assert lanes(students) == [
        (0, 0, 12, first),
        (1, 0, 5, rest),
        (1, 5, 12, first),
        (2, 0, 9, rest),
        (2, 9, 12, first),
    ]
    assert [label.get_text() for label in students.get_yticklabels()] == ["student_0@0", "student_1@1", "student_2@1"]
    assert students.get_title() == "Replacements: 2. Founders with living descendants: 1"
    assert teachers.get_title() == "Replacements: 1. Founders with living descendants: 2"
    lines = [line.get_xydata().tolist() for line in students.lines if len(line.get_xydata()) == 2]
    assert [line[1] for line in lines] == [[5, 1], [5, 1], [9, 2]]  # three parents lead to two children
    assert [line[0][1] for line in lines] == [0, 1, 1] and all(line[0][0] < line[1][0] for line in lines)


def test_the_legend_names_the_operators_that_occurred():
    events = (birth("student_1", 1, ("student_0", 0), operator="mine"), birth("teacher_1", 1, ("teacher_0", 0)))
    figure = plot_family_tree([make_round(k, events=events if k == 1 else ()) for k in range(3)])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["clone", "mine"]
    assert len(set(MARKERS.values())) == len(MARKERS)


def test_members_that_came_or_went_with_a_resume_have_lanes():
    before = [make_round(k, size=2) for k in range(3)]
    event = birth("student_0", 1, ("student_2", 1))  # whose own birth is in no round
    after = [make_round(k, size=3, events=(event,) if k == 4 else ()) for k in range(3, 6)]
    students = plot_family_tree(before + after).axes[1]
    assert students.get_title() == "Replacements: 1. Founders with living descendants: 2"
    assert (2, 3, 6) in {lane[:3] for lane in lanes(students)}  # the newcomer
    shrunk = [make_round(k, size=1) for k in range(6, 8)]
    students = plot_family_tree(after + shrunk).axes[1]
    assert [label.get_text() for label in students.get_yticklabels()] == ["student_0@1", "student_1@0", "student_2@0"]
    assert {lane[:3] for lane in lanes(students)} == {(0, 3, 5), (0, 5, 8), (1, 3, 6), (2, 3, 6)}
    assert students.get_title() == "Replacements: 1. Founders with living descendants: 1"


def test_no_replacement_no_picture(rounds):
    assert plot_family_tree(rounds[:3]) is None


@pytest.mark.slow
@pytest.mark.parametrize(("size", "replaced"), [(8, 2), (64, 16)])
def test_labels_of_large_populations_do_not_overlap(size, replaced):
    first = make_round(0, size=size)
    version = dict.fromkeys((f"student_{i}" for i in range(size)), 0)
    history = []
    for k in range(400):
        events = []
        if k and k % 20 == 0:
            for j in range(replaced):
                slot = f"student_{(k // 20 * replaced + j) % size}"
                parent = f"student_{(k // 20 * replaced + replaced + j) % size}"
                version[slot] += 1
                events.append(birth(slot, version[slot], (parent, version[parent])))
        history.append(replace(first, round=k, step=k + 1, events=tuple(events)))
    figure = plot_family_tree(history)
    figure.draw_without_rendering()
    labels = [label.get_window_extent() for label in figure.axes[1].get_yticklabels()]
    assert all(below.y1 <= above.y0 for above, below in zip(labels, labels[1:]))
    width, height = figure.get_size_inches()
    assert width < 20 and height < 20


def test_operators_of_the_users_own_have_markers_of_their_own():
    markers = operator_markers({"dare", "mine:b", "mine:a"})
    assert list(markers) == ["dare", "mine:a", "mine:b"] and markers["dare"] == MARKERS["dare"]
    assert len({*markers.values(), *MARKERS.values()}) == len(MARKERS) + 2
