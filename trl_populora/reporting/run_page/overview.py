"""The overview of a run: what ran, how it went, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...diagnostics.dynamics import mean
from ..advice import advice, alarm_spans
from ..comparison import run_cost
from ..page import Column, Facts, Plot, Section, Table, Text, Tile, Tiles
from ..page.figures import look
from ..page.formats import NOTHING, is_missing, written
from ..plots import ROLES
from ..probes import first_with
from ..tables import counted, strongest
from .series import MARKED, MAX_LINES, SMOOTHED, colours, curves, is_long, of_members, of_rounds, with_points


if TYPE_CHECKING:
    from ..played_run import PlayedRun

SMALL = 196
BASE_LINE = ", base"
TELLING = ("ast_nodes", "ast_depth", "cyclomatic", "halstead_volume")
"""Maximum number of complexity measures in the first figure; the others are under Learning."""


def overview(run: PlayedRun, remarks: Sequence[str]) -> Section:
    """The first section of a run's page. `remarks` are sentences on what else was left out."""
    remarks = [*run.remarks, *_gaps(run), *remarks]
    for role, names in ROLES.items():
        if (count := sum(member.role in names for member in run.last.members)) > MAX_LINES:
            remarks.append(f"Curves of the {role} show {MAX_LINES} of {count}; the table of members has all.")
    parts: list[Any] = [Tiles(list(_tiles(run)))]
    if remarks:
        parts.append(Text(remarks, "note"))
    parts += [*_alarms(run), *_plots(run), Facts(what_ran(run), title="What ran")]
    return Section("overview", "Overview", parts, narrow=True)


def _gaps(run: PlayedRun) -> Iterator[str]:
    """Sentences on rounds and tables that the folder does not have."""
    if missing := len(run.history) - len(run.tables):
        yield (
            f"{missing} of {counted(len(run.history), 'round')} {'has' if missing == 1 else 'have'} no table in "
            "rounds/: the tasks and texts are not on this page."
        )
    if lost := run.rounds - run.first + 1 - len(run.history):
        yield (
            f"{counted(lost, 'round')} between the first and the last {'is' if lost == 1 else 'are'} not in the "
            "history: no curve, cost or number of replacements has them."
        )
    if run.history[0].round:
        yield (
            f"The history begins at round {run.history[0].round + 1}: the run continues another, whose rounds are not "
            "in this folder and not in its costs."
        )


def headline(run: PlayedRun) -> str:
    """One line that describes the run."""
    counts = Counter(member.role for member in run.last.members)
    named = {"shared": "shared member"}
    who = " and ".join(f"{count} {named.get(role, role)}{'s' * (count != 1)}" for role, count in counts.items())
    on = f", on {run.record['dataset']}" if run.record.get("dataset") else ""
    return f"{who} of {run.record.get('model') or 'an unrecorded base'}{on}. {state(run)}"


def state(run: PlayedRun) -> str:
    """Progress of the run."""
    done = run.last.round + 1
    if run.finished:
        return f"{counted(done, 'round')}, ended."
    return f"Round {done}{f' of {planned(run)}' if planned(run) else ''}; it is still running, or was stopped."


def planned(run: PlayedRun) -> int | None:
    """Planned rounds of the run, if its settings contain them."""
    total = run.setting("max_steps")
    return total // (run.setting("num_iterations") or 1) if isinstance(total, int) and total > 0 else None


def _tiles(run: PlayedRun) -> Iterator[Tile]:
    first, last = run.history[0], run.last
    start = "at the start" if run.first == 1 else f"in round {run.first}"
    note = "ended" if run.finished else f"of {planned(run)}" if planned(run) else "so far"
    yield Tile("Rounds", f"{last.round + 1}", note)
    if run.self_play:
        yield Tile(
            "Students solve", written(last.solve_rate, "share"), _since(first.solve_rate, last.solve_rate, when=start)
        )
        validity = [mean(one.validity for one in summary.members) for summary in (first, last)]
        yield Tile("Valid proposals", written(validity[1], "share"), _since(*validity, when=start))
    else:
        rewards = [mean(one.reward for one in summary.members) for summary in (first, last)]
        yield Tile("Mean reward", written(rewards[1], "signed"), f"{written(rewards[0], 'signed')} {start}")
    if run.probes:
        name, exam = next(iter(run.probes[-1].get("exams", {}).items()), ("", None))
        if exam is not None:
            began = first_with(run.probes, name)
            when = f"after round {began['round']}" if began["round"] else "at the start"
            since = _since(began["exams"][name]["mean"], exam["mean"], when=when)
            yield Tile("Probe", written(exam["mean"], "share"), f"{since}, {name}".lstrip(", "))
    if "filled" in last.coverage:
        yield Tile("Coverage", f"{last.coverage['filled']}", f"cells, {first.coverage.get('filled', 0)} {start}")
    born = [event for event in run.replacements if event["round"] is not None]
    yield Tile(
        "Replacements", str(len(born)), f"in {counted(len(set(run.births)), 'round')}" if born else "nobody yet"
    )
    mixed = [summary.round + 1 for summary in run.history if summary.recombined]
    if mixed:
        yield Tile("Recombinations", str(len(mixed)), f"members moved to their mean, last after round {mixed[-1]}")
    for role, title in (("teacher", "Best teacher"), ("student", "Best student"), ("shared", "Best member")):
        best = strongest(last, role)
        if best is not None and run.self_play:
            yield Tile(
                title, best.name, f"rating {written(best.mu, 'number', 1)} ± {written(best.sigma, 'number', 1)}"
            )
        elif best is not None:
            yield Tile(title, best.name, f"mean reward {written(best.mu, 'signed')}")


def _since(first: float | None, last: float | None, *, when: str) -> str:
    if is_missing(first) or is_missing(last):
        return ""
    return f"{written(first, 'share')} {when}"


def _alarms(run: PlayedRun) -> Iterator[Any]:
    spans = alarm_spans(run.history)
    if not spans:
        yield Text(["No alarm in any round."], "note")
        return
    now = run.last.round + 1
    rows = [
        [alarm, "now" if last == now else f"until round {last}", first, count, advice(alarm)]
        for alarm, first, last, count in spans[:20]
    ]
    columns = [
        Column("alarm", "wrapped"),
        Column("state"),
        Column("first round", "count"),
        Column("rounds", "count", "How many rounds had it"),
        Column("what to do", "wrapped"),
    ]
    held = sum(last == now for _, _, last, _ in spans)
    more = f" The newest 20 of {len(spans)} are shown." if len(spans) > 20 else ""
    yield Table(
        "alarms",
        columns,
        rows,
        title=f"Alarms: {held} now, {len(spans) - held} earlier",
        how=f"Signs that some member no longer learns anything. Act on those that are active now.{more}",
    )


def _plots(run: PlayedRun) -> Iterator[Plot]:
    history, last = run.history, run.last
    how = SMOOTHED if is_long(history) else ""
    probes = probe_means(run)
    if probes:
        exams = [name for name in probes if not name.endswith(BASE_LINE)]
        looks = {name: look(k) for k, name in enumerate(exams)}
        looks |= {name + BASE_LINE: line | {"dash": "dot"} for name, line in looks.items()}
        yield Plot(
            "overview-probes",
            curves(run, probes, smoothed=False, x="", share=True, looks=looks),
            "Probes: mean over students",
            "Fixed questions from which nobody learns. They measure progress. The dotted line is the base model.",
            height=SMALL,
        )
    if run.self_play:
        rates = {
            "tasks solved": of_rounds(history, lambda s: s.solve_rate),
            "proposals valid": of_rounds(history, lambda s: mean(one.validity for one in s.members)),
        }
        yield Plot(
            "overview-rates",
            curves(run, rates, x="", share=True),
            "Solve rate and validity",
            f"Both sides learn most if about half of the attempts solve their task.{how}",
            height=SMALL,
        )
        for role in ("students", "teachers"):
            ratings = of_members(history, role, lambda one: one.mu)
            yield Plot(
                f"overview-ratings-{role}",
                curves(run, ratings, x="", smoothed=False, looks=colours(run)),
                f"Ratings of the {role}",
                "Only the order and the gaps have a meaning. Ratings show which member is ahead. They do not show "
                "whether members improve.",
                height=SMALL,
            )
            if last.members[0].role == "shared":
                break
    else:
        rewards = of_members(history, "students", lambda one: one.reward)
        yield Plot(
            "overview-rewards",
            curves(run, rewards, x="", looks=colours(run)),
            "Mean reward",
            f"A line a member.{how}",
            height=SMALL,
        )
    measures = relative_complexity(run)
    if measures:
        yield Plot(
            "overview-complexity",
            curves(run, measures, x=""),
            "Complexity of the proposed tasks",
            f"Each measure, divided by its mean in the first five rounds: 2 means twice as complex.{how}",
            height=SMALL,
        )
    filled = with_points({"all": of_rounds(history, lambda s: s.coverage.get("filled"))})
    if filled:
        yield Plot(
            "overview-coverage",
            curves(run, filled, x="", smoothed=False),
            "Coverage of the task space",
            "Cells of the task space visited so far. A flat end means that teachers repeat themselves."
            + (MARKED if run.births else ""),
            height=SMALL,
        )


def probe_means(run: PlayedRun) -> dict[str, list]:
    """Exam -> points (rounds played, mean of the members that solve), and of the base."""
    lines: dict[str, list] = {}
    for record in run.probes:
        for name, exam in record.get("exams", {}).items():
            lines.setdefault(name, []).append((record["round"], exam["mean"]))
            base = exam.get("players", {}).get("base", {}).get("accuracy")
            if not is_missing(base):
                lines.setdefault(name + BASE_LINE, []).append((record["round"], base))
    return lines


def relative_complexity(run: PlayedRun) -> dict[str, list]:
    """Measure -> points (round, value divided by its mean in the first five rounds that have it)."""
    there = list(dict.fromkeys(name for summary in run.history for name in summary.complexity))
    names = [name for name in TELLING if name in there] or there[:4]
    lines = {}
    for name in names:
        points = of_rounds(run.history, lambda summary, name=name: summary.complexity.get(name))
        start = mean([value for _, value in points if not is_missing(value)][:5])
        if start:
            told = name.replace("_", " ").replace("ast", "AST")
            lines[told] = [(number, None if value is None else value / start) for number, value in points]
    return lines


def what_ran(run: PlayedRun) -> dict[str, Any]:
    """Name -> facts of the run: base, settings, hardware and cost."""
    record, history = run.record, run.history
    _, rows, prompts, tokens, updates, unlearned, spare, seconds = run_cost(history)
    git, machine = record.get("git") or {}, record.get("hardware") or {}
    cards = [f"{card['name']}, {card['memory_gib']:g} GiB" for card in machine.get("gpus", ())]
    versions = record.get("versions") or {}
    facts = {
        "base": record.get("model"),
        "revision": record.get("revision"),
        "dataset": record.get("dataset"),
        "rewards": ", ".join(record.get("reward_funcs") or ()),
        "task types": ", ".join(run.setting("task_types") or ()) if run.self_play else None,
        "commit": git.get("commit", "")[:12] + (", with changes" if git.get("changed") else ""),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "processor": machine.get("processor"),
        "cores, memory": f"{machine['cores']}, {machine['memory_gib']:g} GiB" if "cores" in machine else None,
        "GPUs": "; ".join(cards) or ("none" if machine else None),
        "processes": record.get("processes"),
        "sandbox": record.get("isolation"),
        "learned from": f"{rows:,} rows, {prompts:,} prompt and {tokens:,} completion tokens, {updates:,} updates",
        "not learned from": f"{unlearned:,} rows, {spare:,} completion tokens" if unlearned else None,
        "time in rounds": duration(seconds) if seconds else None,
        "per round": f"{seconds / len(history):.1f} s" if seconds else None,
        "probes": f"{duration(run.probes[-1].get('probing') or 0)} in {len(run.probes)}" if run.probes else None,
        "folder": run.folder,
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def duration(seconds: float) -> str:
    if is_missing(seconds):
        return NOTHING
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
