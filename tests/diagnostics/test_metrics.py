"""The registry of metrics and its glossary. That it is complete is tests/training/test_metrics_logged.py."""

import re
from pathlib import Path

import pytest

from trl_populora.diagnostics.glossary import glossary
from trl_populora.diagnostics.metrics import COMBINE, MEMBER, METRICS, PLACEHOLDERS, combination, matching, overlays


SAMPLES = {
    "member": ("teacher_0", "student_11", "agent_0"),
    "teacher": ("teacher_3",),
    "student": ("student_3",),
    "proposer": ("teacher_3", "agent_0"),
    "solver": ("student_0", "agent_0"),
    "player": ("teacher_0", "base"),
    "role": ("teachers", "students"),
    "type": ("code_o", "math_word"),
    "exam": ("held_out_4", "mean", "gsm8k"),
    "kind": ("mean", "min", "max"),
}


def names(metric):
    """Names that the entry stands for, with every sample of one placeholder after the other."""
    found = {metric.name}
    for name in PLACEHOLDERS:
        found = {one.replace(f"{{{name}}}", value) for one in found for value in SAMPLES.get(name, ("any_thing",))}
    return found


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_name_stands_for_one_entry(metric):
    for name in names(metric):
        assert matching(name) == [metric]
        if metric.evaluated:
            assert matching(f"eval_{name}") == [metric]
    assert metric.combine in COMBINE and metric.meaning.endswith(".") and metric.unit
    assert not re.search(r"[{}]", name)


def test_what_is_not_logged_is_not_known():
    assert not matching("population/teacher_0/reward") and not matching("reward/teacher_0/code_o")
    assert not matching("teachers/cosine_mean") and not matching("eval_rating/mu/teacher_0")


def test_how_values_of_an_interval_become_one():
    assert combination("rating/mu/student_1") == combination("coverage/filled/teacher_0") == "last"
    assert combination("evolution/replaced") == "sum" and combination("reward/teacher_0") == "mean"
    assert combination("a reward function's own") == "mean"


def test_members_of_a_measure_share_a_chart():
    charts = {title: re.compile(pattern) for _, title, pattern in overlays()}
    assert charts["reward/member"].fullmatch("reward/teacher_0") and charts["reward/member"].fullmatch(
        "reward/agent_0"
    )
    assert not charts["reward/member"].fullmatch("reward/teachers")
    assert charts["pairs/solve_rate/teacher/student"].fullmatch("pairs/solve_rate/teacher_0/student_1")
    assert all(any(title.startswith(f"{name}/") for title in charts) for name in MEMBER.values())
    assert not any(title.startswith("role") for title in charts)  # roles stay apart


def test_the_glossary_is_what_the_registry_says():
    path = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert path.read_text().splitlines() == list(glossary()), (
        "Run python -m trl_populora.diagnostics.glossary > docs/metrics.md"
    )
