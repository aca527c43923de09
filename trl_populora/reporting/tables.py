"""Rounds as tables and lines for a terminal. `live` and the commands show them."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..diagnostics.dynamics import MemberSummary, RoundSummary, mean, solve_rate_matrix
from ..output import printable


NOTHING = "-"
MOST_COLUMNS = 8  # of the table of games: what a line of 119 characters holds


def round_tables(summary: RoundSummary, *, plain: bool = False) -> list[Table]:
    """The tables of a round: the members and, if teachers met students, their games."""
    tables = [members_table(summary, plain=plain)]
    return [*tables, matrix_table(summary, plain=plain)] if summary.teachers else tables


def members_table(summary: RoundSummary, *, plain: bool = False) -> Table:
    """Every member of the round: reward, validity, matched solve rate, fill-ins, rating, response length.

    For a teacher, `solved` is the share of attempts at its tasks that solved them. `fill-ins (solved)` is the share of
    a student's attempts that were at tasks from the buffer, and the share of these that it solved. On a dataset, there
    are neither tasks of teachers nor ratings, and the table has no columns for them.
    """
    games = ("valid", "solved", "fill-ins (solved)", "rating (sigma)") if summary.teachers else ()
    headings = ("version", "reward", *games, "tokens/row", "rows")
    table = new_table("member", *headings, plain=plain)
    best = [strongest(summary, role) for role in ("teacher", "student")]
    previous = None
    for member in summary.members:
        if previous not in (None, member.role):
            table.add_section()
        previous = member.role
        style = "bold" if member in best else ""
        played = (
            percent(member.validity),
            percent(member.solve_rate),
            fill_ins(member),
            Text(NOTHING if member.mu is None else f"{member.mu:.1f} ({member.sigma:.1f})", style=style),
        )
        table.add_row(
            Text(member.name, style=style),
            str(member.version),
            signed(member.reward),
            *(played if summary.teachers else ()),
            f"{member.length:.0f}",
            str(member.rows),
        )
    return table


def compute_table(history: Sequence[RoundSummary], *, plain: bool = False) -> Table:
    """What each adapter has learned from in all rounds, and the mean. Baselines are matched to these numbers.

    An adapter is a slot: the rows of all members that it has had are added up. The heading says if earlier rounds are
    not in the history.
    """
    table = new_table(f"learned per adapter{in_last_rounds(history)}", *SPENT, plain=plain)
    totals = compute_totals(history)
    for name, counts in totals.items():
        table.add_row(name, *(f"{count:,}" for count in counts))
    if len(totals) > 1:
        table.add_row("mean", *(f"{sum(column) / len(totals):,.1f}" for column in zip(*totals.values())))
    champions = champions_total(history)
    if champions.unlearned_rows:
        table.add_row("champions", *(f"{count:,}" for count in champions))
    return table


SPENT = ("rows", "prompt tokens", "completion tokens", "updates", "rows not learned from", "their completion tokens")
"""Headings of the fields of `Spent`."""


class Spent(NamedTuple):
    """What was learned from, and what was not."""

    rows: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    updates: int = 0
    unlearned_rows: int = 0
    unlearned_tokens: int = 0


def compute_totals(history: Sequence[RoundSummary]) -> dict[str, Spent]:
    """Adapter -> what it learned from in all rounds, without champions of the past ([`champions_total`])."""
    totals: dict[str, Spent] = {}
    for one in (member for summary in history for member in summary.members):
        counts = (one.rows, one.prompt_tokens, one.tokens, one.updates, one.unlearned_rows, one.unlearned_tokens)
        totals[one.name] = Spent(*map(sum, zip(totals.get(one.name, Spent()), counts)))
    return totals


def champions_total(history: Sequence[RoundSummary]) -> Spent:
    """Completions of champions of the past in all rounds. Nobody learns from them."""
    rows, tokens = (sum(getattr(summary, name) for summary in history) for name in ("guest_rows", "guest_tokens"))
    return Spent(unlearned_rows=rows, unlearned_tokens=tokens)


def matrix_table(summary: RoundSummary, *, plain: bool = False) -> Table:
    """Matched solve rate of each student (column) on each teacher's tasks (row) over their last rounds, with the
    attempts. With more than `MOST_COLUMNS` students: a list for each teacher of those who met it."""
    rows = zip(summary.teachers, solve_rate_matrix(summary), summary.window_attempts)
    if len(summary.students) > MOST_COLUMNS:
        table = new_table("teacher", plain=plain)
        table.add_column("solve rate (attempts) of its students")
        for teacher, rates, games in rows:
            met = [f"{name} {percent(rate)} ({n})" for name, rate, n in zip(summary.students, rates, games) if n]
            table.add_row(teacher, ", ".join(met) or NOTHING)
        return table
    table = new_table("solve rate (attempts)", *summary.students, plain=plain)
    for teacher, rates, games in rows:
        cells = [
            Text(NOTHING) if rate is None else Text(f"{percent(rate)} ({n})", style=shade(rate))
            for rate, n in zip(rates, games)
        ]
        table.add_row(teacher, *cells)
    return table


def strongest(summary: RoundSummary, role: str) -> MemberSummary | None:
    """Fittest member of a role, by the lower bound of its rating (by reward on a dataset); `None` if none is rated.

    In self-play, members without a matched attempt lately count only if there are no others.
    """
    doubt = 3 if summary.teachers else 0
    rated = [member for member in summary.members if member.role == role and member.mu is not None]
    rated = [member for member in rated if member.solve_rate is not None] or rated
    return max(rated, key=lambda member: (member.mu or 0.0) - doubt * (member.sigma or 0.0), default=None)


def round_line(summary: RoundSummary, rounds: int | None = None, *, phases: bool = True) -> str:
    """One line that summarizes a round, with the seconds of its phases."""
    teachers = [member for member in summary.members if member.validity is not None]
    parts = [f"round {summary.round + 1}" + (f"/{rounds}" if rounds else "")]
    if summary.teachers:
        parts.append(f"valid {percent(mean(member.validity for member in teachers))}")
        parts.append(f"solved {percent(summary.solve_rate)}")
        if summary.fill_rate:
            parts.append(f"fill-ins {percent(summary.fill_rate)} ({percent(summary.solve_rate_filled)} solved)")
        if summary.rewards:
            rewards = (signed(summary.rewards.get(f"{role}/reward")) for role in ("teachers", "students"))
            parts.append("reward T {} S {}".format(*rewards))
    else:
        parts.append(f"reward {signed(mean(member.reward for member in summary.members))}")
    if "filled" in summary.coverage:
        parts.append(f"coverage {summary.coverage['filled']} (+{summary.coverage.get('new', 0)})")
    if "ast_nodes" in summary.complexity:
        parts.append(f"AST nodes {summary.complexity['ast_nodes']:.0f}")
    if summary.seconds:
        parts.append(f"{sum(summary.seconds.values()):.1f} s" + (f" ({phases_line(summary)})" if phases else ""))
    return "  ".join(parts)


def phases_line(summary: RoundSummary) -> str:
    """Seconds of each phase of the round."""
    return ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in summary.seconds.items())


def event_line(event: dict) -> str:
    """One replacement or migration (an `EvolutionEvent` as JSON), in words."""
    parents = ", ".join(f"{name}@{version}" for name, version in event["parents"])
    moved = " by a migrant" if event.get("kind") == "migration" else ""
    return f"replaced {event['slot']}{moved}: version {event['version']} is {event['operator']}({parents})"


def fill_ins(member: MemberSummary) -> str:
    """Share of a student's attempts that were at tasks from the buffer, and how many of those it solved."""
    if not member.fill_rate:
        return percent(member.fill_rate)
    return f"{percent(member.fill_rate)} ({percent(member.solve_rate_filled)})"


def counted(count: int, noun: str) -> str:
    """A count with its noun: `"1 round"`, `"2 rounds"`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def in_last_rounds(history: Sequence[RoundSummary]) -> str:
    """The rounds that a history covers, in words, if the run began elsewhere or lines are lost; else nothing."""
    played, known = history[-1].round + 1, len(history)
    if known == played:
        return ""
    last = history[0].round + known == played
    return f" in the last {counted(known, 'round')}" if last else f" in {known:,} of {played:,} rounds"


def drawn_by(decoding: Mapping[str, Any]) -> str:
    """How the answers of an evaluation were drawn, in words."""
    if not decoding["temperature"]:
        return "greedy"
    return f"{counted(decoding['samples'], 'sample')} at temperature {decoding['temperature']}"


def signed(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+.2f}"


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.0f}%"


def shade(rate: float) -> str:
    """Emphasis: balanced games are bold, one-sided ones dim. The numbers have the same information."""
    return "bold" if 0.25 <= rate <= 0.75 else ("dim" if rate in (0.0, 1.0) else "")


def new_table(first: str, *others: str, plain: bool) -> Table:
    """An empty table with these columns, the first one left-aligned."""
    table = Table(box=None if plain else box.SIMPLE_HEAD, pad_edge=False, header_style="" if plain else "dim")
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def print_table(table: Table, width: int = 119) -> None:
    """Write a table to standard output as plain text."""
    console = Console(width=width, color_system=None, highlight=False, markup=False, emoji=False)
    with console.capture() as drawn:
        console.print(table)
    sys.stdout.write(printable(drawn.get()))  # errors are the caller's, where the console would end the process
