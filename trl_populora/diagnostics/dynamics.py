"""What happened in a round, as numbers: per member, per role, per pairing, and the alarms that call a collapse.

Pure functions from records to numbers. Where they are written or drawn is decided elsewhere (`training`, `reporting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from ..population.member import Member
    from ..self_play.ratings import Rating, Ratings
    from ..self_play.records import Attempt, Proposal, RoundRecord


@dataclass(frozen=True)
class MemberSummary:
    """One member's round.

    Attributes:
        name (`str`): Member.
        role (`str`): `"teacher"`, `"student"` or `"shared"` (one adapter plays both; its rating is the student's).
        version (`int`): Which occupant of the slot played.
        reward (`float` or `None`): Mean reward of its rows; `None` if it had none that count.
        validity (`float` or `None`): Share of its proposals that became tasks; `None` without proposals.
        solve_rate (`float` or `None`): Share of its attempts that solved the task; `None` without attempts.
        mu, sigma (`float`): Rating after the round.
        length (`float`): Mean completion length, in tokens.
        rows (`int`): Completions it wrote.
        tokens (`int`): Completion tokens it wrote.
        refusals (`dict[str, int]`): Reason -> number of its completions refused for it.
        grad_norm (`float` or `None`): Norm of its gradient before clipping, where known.
    """

    name: str
    role: str
    version: int
    reward: float | None
    validity: float | None
    solve_rate: float | None
    mu: float
    sigma: float
    length: float
    rows: int
    tokens: int
    refusals: dict[str, int] = field(default_factory=dict)
    grad_norm: float | None = None


@dataclass(frozen=True)
class RoundSummary:
    """One round of the whole population.

    Attributes:
        round (`int`): Number of the round, from 0.
        step (`int`): Optimizer step at which the round was played.
        members (`tuple[MemberSummary, ...]`): Every member, teachers first.
        teachers, students (`tuple[str, ...]`): Players, in the order of the matrix' rows and columns.
        games, wins (`tuple[tuple[int, ...], ...]` of shape `(T, S)`): Unit games between the present occupants of two
            slots, and those that the student won.
        matches (`int`): Pairings that played in this round.
        statuses (`dict[str, int]`): Status of the executor -> its executions in this round.
        complexity (`dict[str, float]`): Mean measures of the round's valid proposals (`diagnostics.complexity`).
        coverage (`dict[str, int]`): `"filled"` and `"new"` cells of the archive (`diagnostics.coverage`), and
            `"filled/<author>"`.
        events (`tuple[dict, ...]`): Replacements after this round, each an `EvolutionEvent` as JSON.
        seconds (`dict[str, float]`): Phase (`propose`, `verify`, `match`, `solve`, `learn`) -> seconds.
        alarms (`tuple[str, ...]`): Signs of collapse, in words.
    """

    round: int
    step: int
    members: tuple[MemberSummary, ...]
    teachers: tuple[str, ...]
    students: tuple[str, ...]
    games: tuple[tuple[int, ...], ...]
    wins: tuple[tuple[int, ...], ...]
    matches: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    complexity: dict[str, float] = field(default_factory=dict)
    coverage: dict[str, int] = field(default_factory=dict)
    events: tuple[dict, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping) -> RoundSummary:
        """Inverse of `to_json`; keys of later versions are ignored."""
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        for name in ("teachers", "students", "events", "alarms"):
            known[name] = tuple(known.get(name, ()))
        for name in ("games", "wins"):
            known[name] = tuple(tuple(row) for row in known[name])
        wanted = {f.name for f in fields(MemberSummary)}
        known["members"] = tuple(
            MemberSummary(**{key: value for key, value in row.items() if key in wanted}) for row in known["members"]
        )
        return cls(**known)


def summarize_round(
    record: RoundRecord,
    *,
    ratings: Ratings,
    members: Iterable[Member],
    adapter_of: Callable[[str], str] = str,
    statuses: Mapping[str, int] | None = None,
    complexity: Mapping[str, float] | None = None,
    coverage: Mapping[str, int] | None = None,
    coverage_history: Sequence[int] = (),
    events: Iterable[Mapping] = (),
    seconds: Mapping[str, float] | None = None,
    grad_norms: Mapping[str, float] | None = None,
) -> RoundSummary:
    """Sum up one round.

    Args:
        record ([`RoundRecord`]): What happened.
        ratings ([`Ratings`]): Ratings after the round.
        members (`Iterable[Member]`): The population's table as it played.
        adapter_of (`Callable[[str], str]`, *optional*): Player -> member that acts for it; the player itself if unset.
        statuses, complexity, coverage, events, seconds: See [`RoundSummary`].
        coverage_history (`Sequence[int]`, *optional*): Filled cells after each round so far, this one last.
        grad_norms (`Mapping[str, float]`, *optional*): Member -> gradient norm.
    """
    proposals: dict[str, list[Proposal]] = {}
    attempts: dict[str, list[Attempt]] = {}
    for proposal in record.proposals:
        proposals.setdefault(adapter_of(proposal.member), []).append(proposal)
    for attempt in record.attempts:
        attempts.setdefault(adapter_of(attempt.member), []).append(attempt)
    # The rating under which a member is listed: its own, or for a shared adapter that of the last player it acts for.
    player = {adapter_of(name): name for name in (*ratings.teachers, *ratings.students)}
    rows = tuple(
        _summarize_member(
            member,
            proposals.get(member.id, []),
            attempts.get(member.id, []),
            rating=ratings[player[member.id]],
            grad_norm=(grad_norms or {}).get(member.id),
        )
        for member in members
    )
    games = tuple(tuple(int(n) for n in row) for row in ratings.games)
    met = [[int(n) for n in row] for row in ratings.games + ratings.forfeits]
    # In the first rounds most members have yet to meet; that is no alarm.
    settled = record.round >= 2 * max(len(ratings.teachers), len(ratings.students))
    return RoundSummary(
        round=record.round,
        step=record.step,
        members=rows,
        teachers=ratings.teachers,
        students=ratings.students,
        games=games,
        wins=tuple(tuple(int(n) for n in row) for row in ratings.wins),
        matches=len(record.matches),
        statuses=dict(statuses or {}),
        complexity=dict(complexity or {}),
        coverage=dict(coverage or {}),
        events=tuple(dict(event) for event in events),
        seconds=dict(seconds or {}),
        alarms=collapse_alarms(
            rows, met if settled else (), solve_rates=_solve_rates(record), coverage=coverage_history
        ),
    )


def _summarize_member(
    member: Member,
    proposals: list[Proposal],
    attempts: list[Attempt],
    *,
    rating: Rating,
    grad_norm: float | None,
) -> MemberSummary:
    items = [*proposals, *attempts]
    refusals: dict[str, int] = {}
    for item in items:
        if item.refusal is not None:
            refusals[item.refusal.reason] = refusals.get(item.refusal.reason, 0) + 1
    tokens = sum(item.tokens for item in items)
    return MemberSummary(
        name=member.id,
        role=member.role,
        version=member.version,
        reward=mean(item.reward for item in items),
        validity=mean(float(item.valid) for item in proposals),
        solve_rate=mean(float(item.solved) for item in attempts),
        mu=rating.mu,
        sigma=rating.sigma,
        length=tokens / max(len(items), 1),
        rows=len(items),
        tokens=tokens,
        refusals=refusals,
        grad_norm=grad_norm,
    )


def _solve_rates(record: RoundRecord) -> list[float]:
    groups: dict[int, list[bool]] = {}
    for attempt in record.attempts:
        groups.setdefault(attempt.group, []).append(attempt.solved)
    return [sum(solved) / len(solved) for solved in groups.values()]


def solve_rate_matrix(summary: RoundSummary) -> list[list[float | None]]:
    """Share of games that the student won, one row per teacher; `None` where the two have not met."""
    return [[w / g if g else None for g, w in zip(*rows)] for rows in zip(summary.games, summary.wins)]


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are neither `None` nor NaN; `None` if none is left."""
    known = [value for value in values if value is not None and value == value]
    return sum(known) / len(known) if known else None


def round_metrics(summary: RoundSummary) -> dict[str, float]:
    """The summary as flat metrics for a logger: `population/<member>/...`, `teachers/...`, `matches/...`, and so on.

    Values that do not exist (a teacher's solve rate) have no key.
    """
    metrics: dict[str, float | None] = {"round": summary.round, "alarms": len(summary.alarms)}
    roles = {"teachers": ("teacher", "shared"), "students": ("student", "shared")}
    for group, own in roles.items():
        members = [member for member in summary.members if member.role in own]
        quality = "validity" if group == "teachers" else "solve_rate"
        for name in ("reward", quality, "length", "mu", "grad_norm"):
            metrics[f"{group}/{name}"] = mean(getattr(member, name) for member in members)
        for member in members:
            for reason, count in member.refusals.items():
                key = f"{group}/refused/{reason}"
                metrics[key] = (metrics.get(key) or 0) + count
    for member in summary.members:
        for name in ("reward", "validity", "solve_rate", "length", "mu", "sigma", "tokens", "grad_norm", "version"):
            metrics[f"population/{member.name}/{name}"] = getattr(member, name)
    games, wins = sum(map(sum, summary.games)), sum(map(sum, summary.wins))
    metrics |= {"matches/played": summary.matches, "matches/games": games, "matches/student_wins": wins}
    metrics["evolution/replaced"] = len(summary.events)
    for group in ("statuses", "complexity", "coverage", "seconds"):
        prefix = "executor" if group == "statuses" else group
        metrics.update({f"{prefix}/{name}": value for name, value in getattr(summary, group).items()})
    return {name: float(value) for name, value in metrics.items() if value is not None}


def collapse_alarms(
    members: Sequence[MemberSummary],
    games: Sequence[Sequence[int]],
    *,
    solve_rates: Sequence[float],
    coverage: Sequence[int] = (),
    patience: int = 20,
) -> tuple[str, ...]:
    """Signs that the game has stopped teaching anybody anything (thresholds are our choice).

    Args:
        members (`Sequence[MemberSummary]`): The round's members.
        games (`Sequence[Sequence[int]]` of shape `(T, S)`): Games between the present occupants.
        solve_rates (`Sequence[float]`): Solve rate of every task played in the round.
        coverage (`Sequence[int]`, *optional*): Filled cells after each round so far, this one last.
        patience (`int`, *optional*, defaults to 20): Rounds without a new cell before coverage counts as stalled.

    Returns:
        `tuple[str, ...]`: One sentence per alarm; empty when all is well.
    """
    alarms = []
    if solve_rates and all(rate == 1 for rate in solve_rates):
        alarms.append("every task was solved on every attempt: teachers learn nothing from it")
    if solve_rates and all(rate == 0 for rate in solve_rates):
        alarms.append("no task was solved on any attempt: students learn nothing from it")
    silent = [member.name for member in members if member.validity == 0]
    if silent:
        alarms.append(f"no valid proposal from {', '.join(silent)}")
    if len(coverage) > patience and coverage[-1] == coverage[-1 - patience]:
        alarms.append(f"coverage has not grown for {patience} rounds ({coverage[-1]} cells)")
    groups = connected_groups(games)
    if any(any(row) for row in games) and groups > 1:
        alarms.append(f"ratings are not comparable: members form {groups} groups that never met")
    return tuple(alarms)


def connected_groups(games: Sequence[Sequence[int]]) -> int:
    """Components of the graph of who has met whom. Ratings compare only within one."""
    teachers, students = len(games), len(games[0]) if games else 0
    group = list(range(teachers + students))

    def root(node: int) -> int:
        while group[node] != node:
            node = group[node]
        return node

    for row, counts in enumerate(games):
        for column, count in enumerate(counts):
            if count:
                group[root(row)] = root(teachers + column)
    return len({root(node) for node in range(teachers + students)})
