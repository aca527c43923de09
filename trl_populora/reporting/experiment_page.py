"""The page of an experiment: question, hypotheses, answers, runs that are missing, and the comparison of its arms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..diagnostics.metrics import matching
from .comparison import Comparison
from .comparison_page import comparison_sections
from .experiment_view import ends, judged, results_remarks, with_interval
from .page import Cell, Column, Facts, Section, Table, Text, render_page
from .page.figures import look
from .page.formats import NOTHING
from .played_run import EXAMS


def experiment_page(record: Mapping[str, Any], comparison: Comparison | None) -> str:
    """
    The page, as one file of HTML.

    Args:
        record (`Mapping`): Contents of `results.json`.
        comparison ([`Comparison`], *optional*): The runs that are done, the control first; none if the control has no
            run yet.
    """
    done = sum(job["state"] == "done" for job in record["jobs"])
    subtitle = f"{done} of {len(record['jobs'])} runs done; written {record['written']}"
    sections = [
        Section("question", "Question", _question(record)),
        Section("answers", "Answers", [*_missing(record), answers_table(record), *_remarks(record)]),
        Section("runs", "Runs", [values_table(record), jobs_table(record)]),
        Section("plan", "Plan", [_plan(record)], lead="Registered before the runs; changes are listed."),
    ]
    if comparison is not None:
        sections += comparison_sections(comparison)
    return render_page(record["name"], sections, subtitle=subtitle)


def answers_table(record: Mapping[str, Any]) -> Table:
    """Every registered measure: mean of each arm, difference to the control, effect size."""
    columns = [
        Column("measure"), Column("arm"), Column("seeds", hint="with a value, of all"),
        Column("mean", "number", hint="over seeds, and its interval"),
        Column("minus control", "signed", hint="difference of means, and its 95% interval over seeds"),
        Column("other questions", hint="of an exam: its 95% interval for other seeds and other questions"),
        Column("effect (g)", "signed", hint="Hedges' g: the difference in standard deviations"),
        Column("clear", hint=f"whether the interval excludes 0 for all {record['comparisons']} comparisons together"),
        Column("remark"),
    ]  # fmt: skip
    found = {(one["measure"], one["arm"]): one for one in record["differences"]}
    drawn = [arm for arm in record["arms"] if arm in record["compute"]]  # those with a run have a colour
    rows = []
    for measure, arms in record["values"].items():
        for arm, own in arms.items():
            one, mean = found.get((measure, arm)), record["means"][measure].get(arm)
            known = sum(value is not None for value in own.values())
            control = arm == record["control"]
            rows.append(
                [
                    Cell(measure, hint=_told(record["measures"][measure])),
                    Cell(arm, colour=look(drawn.index(arm))["color"] if arm in drawn else ""),
                    f"{known} of {len(record['seeds'])}",
                    Cell(mean["mean"], _mean(mean, share=_is_share(record["measures"][measure]))) if mean else None,
                    Cell(0.0, "control") if control else Cell(one["difference"], with_interval(one)) if one else None,
                    NOTHING if one is None else ends(one["with_questions"]),
                    one and one["effect"],
                    NOTHING if judged(one) is None else Cell("yes", bold=True) if one and one["clear"] else "no",
                    one["why"] if one else "" if control or mean else "no value",
                ]
            )
    return Table("answers", columns, rows)


def values_table(record: Mapping[str, Any]) -> Table:
    """Every measure of every run."""
    measures = list(record["values"])
    columns = [Column("run"), *(Column(measure, "number", digits=4) for measure in measures)]
    rows = [
        [job["job"], *(record["values"][measure][job["arm"]].get(str(job["seed"])) for measure in measures)]
        for job in record["jobs"]
    ]
    return Table("values", columns, rows, title="Values of every run")


def jobs_table(record: Mapping[str, Any]) -> Table:
    """Every run, done or not."""
    columns = [Column("run"), Column("state"), Column("rounds", "count"), Column("remark"), Column("folder", "code")]
    rows = [
        [job["job"], Cell(job["state"], bold=job["state"] != "done"), job["rounds"], job["why"], job["folder"]]
        for job in record["jobs"]
    ]
    return Table("jobs", columns, rows, title="State and place")


def _question(record: Mapping[str, Any]) -> list[Text]:
    expected = [f"Hypothesis {i}: {text}" for i, text in enumerate(record["hypotheses"], start=1)]
    return [Text([record["question"], *expected])]


def _missing(record: Mapping[str, Any]) -> list[Text]:
    absent = [f"{job['job']} is {job['state']}: {job['why']}" for job in record["jobs"] if job["state"] != "done"]
    return [Text(["Not all runs are done. The results below cover the finished runs.", *absent], tone="alarm")] * bool(
        absent
    )


def _remarks(record: Mapping[str, Any]) -> list[Text]:
    told = results_remarks(record)
    return [Text(told, tone="note")] if told else []


def _plan(record: Mapping[str, Any]) -> Facts:
    registered = record["registered"]
    commit = registered["git"] or {}
    facts = {
        "registered": registered["registered"],
        "file": f"{registered['file']}, SHA-256 {registered['sha256']}",
        "recipe's SHA-256": registered["recipe_sha256"],
        "commit": f"{commit.get('commit', 'no checkout')}{' with changes' if commit.get('changed') else ''}",
        "control": record["control"],
        "seeds": ", ".join(map(str, record["seeds"])),
        "exams": ", ".join(record["exams"]) or "none",
    }
    facts |= {f"measure {name}": _told(measure) for name, measure in record["measures"].items()}
    facts |= {f"arm {name}": ", ".join(f"{k}: {v}" for k, v in own.items()) or "as the recipe" for name, own in
              record["arms"].items()}  # fmt: skip
    for change in registered["changes"]:
        added = [f"{kind} {', '.join(map(str, new))}" for kind, new in change["added"].items() if new]
        facts[f"changed {change['time']}"] = f"{'; '.join(added) or 'nothing of the plan'}, SHA-256 {change['sha256']}"
    return Facts(facts)


def _told(measure: Mapping[str, Any]) -> str:
    if measure.get("exam") is not None:
        return f"{measure.get('of', 'mean')} of the students in the exam {measure['exam']}"
    return f"{measure['metric']}, mean over the last {measure.get('last', 10)} rounds"


def _is_share(measure: Mapping[str, Any]) -> bool:
    if measure.get("exam") is not None or measure["metric"].startswith(EXAMS):
        return True
    return any(metric.unit == "0 to 1" for metric in matching(measure["metric"]))


def _mean(mean: Mapping[str, Any], *, share: bool) -> str:
    """A mean over seeds with its interval, which is cut where it is of shares."""
    if mean["low"] is None:
        return f"{mean['mean']:.4g}"
    low, high = (max(mean["low"], 0.0), min(mean["high"], 1.0)) if share else (mean["low"], mean["high"])
    return f"{mean['mean']:.4g} [{low:.3g}, {high:.3g}]"
