"""What happened in a round, as numbers: per member, per role, per pairing, and the alarms that call a collapse.

Pure functions from records to numbers. Where they are written or drawn is decided elsewhere (`training`, `reporting`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING

from ..tasks import is_spared
from .matched import MatchedGames


if TYPE_CHECKING:
    from ..population.member import Member
    from ..self_play.ratings import Rating, Ratings
    from ..self_play.records import Attempt, Proposal, RoundRecord
    from .matched import Tally


RESIDUAL_GAMES = 32
"""Games that a pair must have played for its part in the residual of the rating model. Our choice."""
MEMBER_METRICS = (
    *("reward", "validity", "solve_rate", "fill_rate", "solve_rate_filled", "length", "mu", "sigma", "tokens"),
    *("grad_norm", "version", "delta_norm", "effective_rank"),
)
COMPUTE = ("rows", "prompt_tokens", "unlearned_rows", "updates")
"""What a member's learning cost in a round, beside `tokens`."""


@dataclass(frozen=True)
class MemberSummary:
    """One member's round.

    Attributes:
        name (`str`): Member.
        role (`str`): `"teacher"`, `"student"` or `"shared"` (one adapter plays both; its rating is the student's).
        version (`int`): Which occupant of the slot played.
        reward (`float` or `None`): Mean reward of its rows, in both roles if it is shared; `None` if none counts. With
            `solvable_rounds` a teacher's rows are the late ones, which are paid for good.
        validity (`float` or `None`): Share of its proposals that became tasks; `None` without proposals. Those on
            which the executor failed are left out.
        solve_rate (`float` or `None`): Matched solve rate ([`MatchedGames.solve_rate`]): of its attempts, or for a
            teacher of the attempts at its tasks. `None` without matched games in the last rotation of the types.
        mu, sigma (`float`): Rating after the round.
        length (`float`): Mean length of the completions it wrote, in tokens.
        rows (`int`): Rows it learned from: completions it wrote, each with its prompt, that have a reward. With
            `solvable_rounds` a teacher's are of an earlier round.
        tokens (`int`): Completion tokens of those rows.
        refusals (`dict[str, int]`): Reason -> number of its completions refused for it.
        grad_norm (`float` or `None`): Norm of its gradient before clipping, where known.
        solve_rates (`dict[str, float]`): Task type -> matched solve rate of this round alone.
        fill_rate (`float` or `None`): Share of its attempts that were at tasks filled in from the buffer.
        solve_rate_filled (`float` or `None`): Share of the filled-in tasks' attempts that solved them.
        delta_norm (`float` or `None`): Frobenius norm of its update `dW` over all matrices, in rounds that measure it.
        effective_rank (`float` or `None`): Of `dW`, mean over its matrices ([`evolution.factors.effective_rank`]).
        prompt_tokens (`int`): Prompt tokens of the rows it learned from.
        unlearned_rows, unlearned_tokens (`int`): Completions that it does not learn from, ever, and their tokens:
            left out by `balance_rows`, extra attempts, without a reward, or a predecessor's. Rows that wait
            (`solvable_rounds`) count when their time has come.
        updates (`int`): Optimizer steps it took in this round; 0 without rows to learn from, and when the guard held
            it back or set it back.
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
    solve_rates: dict[str, float] = field(default_factory=dict)
    fill_rate: float | None = None
    solve_rate_filled: float | None = None
    delta_norm: float | None = None
    effective_rank: float | None = None
    prompt_tokens: int = 0
    unlearned_rows: int = 0
    unlearned_tokens: int = 0
    updates: int = 0


@dataclass(frozen=True)
class RoundSummary:
    """One round of the whole population.

    Attributes:
        round (`int`): Number of the round, from 0.
        step (`int`): Optimizer step at which the round was played.
        members (`tuple[MemberSummary, ...]`): Every member, teachers first.
        teachers, students (`tuple[str, ...]`): Players, in the order of the matrix' rows and columns.
        games, wins (`tuple[tuple[int, ...], ...]` of shape `(T, S)`): Unit games between the present occupants of two
            slots that ratings have counted, and those that the student won.
        matches (`int`): Pairings that played in this round.
        statuses (`dict[str, int]`): Status of the executor -> its executions in this round.
        complexity (`dict[str, float]`): Mean measures of what teachers wrote themselves, in the round's valid
            proposals (`TaskType.features`).
        coverage (`dict[str, int]`): `"filled"` and `"new"` cells of the archive (`diagnostics.coverage`), and
            `"filled/<author>"`.
        tasks (`dict[str, float]`): How many of its tasks go unsolved, and so on (`diagnostics.task_metrics`).
        events (`tuple[dict, ...]`): Replacements after this round, each an `EvolutionEvent` as JSON.
        seconds (`dict[str, float]`): Phase (`propose`, `verify`, `match`, `solve`, `judge`, `learn`, and `weights`
            where they were measured) -> seconds.
        alarms (`tuple[str, ...]`): Signs of collapse, in words.
        solve_rate (`float` or `None`): Matched solve rate of everybody: mean over task types of each type's newest
            one, not older than a rotation of the types ([`MatchedGames.solve_rate`]).
        solve_rates (`dict[str, float]`): Task type -> matched solve rate of this round alone.
        fill_rate (`float` or `None`): Share of the members' attempts that were at tasks filled in from the buffer.
        solve_rate_filled (`float` or `None`): Share of those attempts that solved their task.
        attempts, solved (`tuple[tuple[int, ...], ...]` of shape `(T, S)`): Matched attempts of this round, and those
            that solved their task.
        window_attempts, window_solved (`tuple[tuple[int, ...], ...]` of shape `(T, S)`): The same over the last 10
            rounds in which the present occupants of the two slots met, none of them older than 50 rounds.
        residual (`float` or `None`): Root mean square of `Ratings.residual` over pairs with at least 32 games.
        rewards (`dict[str, float]`): Headline numbers of each role's rows in self-play, by name of the metric
            ([`self_play.rewards.role_rewards`]).
        cosines (`dict[str, dict[str, float]]`): Role -> `"mean"`, `"min"` and `"max"` cosine between the updates of
            two of its members, in rounds that measure it.
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
    tasks: dict[str, float] = field(default_factory=dict)
    events: tuple[dict, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()
    solve_rate: float | None = None
    solve_rates: dict[str, float] = field(default_factory=dict)
    fill_rate: float | None = None
    solve_rate_filled: float | None = None
    attempts: tuple[tuple[int, ...], ...] = ()
    solved: tuple[tuple[int, ...], ...] = ()
    window_attempts: tuple[tuple[int, ...], ...] = ()
    window_solved: tuple[tuple[int, ...], ...] = ()
    residual: float | None = None
    rewards: dict[str, float] = field(default_factory=dict)
    cosines: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping) -> RoundSummary:
        """Inverse of `to_json`; keys of later versions are ignored."""
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        for name in ("teachers", "students", "events", "alarms"):
            known[name] = tuple(known.get(name, ()))
        for name in ("games", "wins", "attempts", "solved", "window_attempts", "window_solved"):
            known[name] = tuple(tuple(row) for row in known.get(name, ()))
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
    matched: MatchedGames | None = None,
    tasks: Mapping[str, float] | None = None,
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
        statuses, complexity, coverage, tasks, events, seconds: See [`RoundSummary`].
        coverage_history (`Sequence[int]`, *optional*): Filled cells after each round so far, this one last.
        matched ([`MatchedGames`], *optional*): Games of the last rounds, to which this one is added.
        grad_norms (`Mapping[str, float]`, *optional*): Member -> gradient norm.
    """
    proposals: dict[str, list[Proposal]] = {}
    attempts: dict[str, list[Attempt]] = {}
    settled: dict[str, list[Proposal | Attempt]] = {}
    for own, group in ((proposals, record.proposals), (settled, record.settled_proposals)):
        for proposal in group:
            own.setdefault(adapter_of(proposal.member), []).append(proposal)
    for own, group in ((attempts, record.attempts), (settled, (*record.attempts, *record.extra_attempts))):
        for attempt in group:
            own.setdefault(adapter_of(attempt.member), []).append(attempt)
    members = tuple(members)
    versions = {member.id: member.version for member in members}
    matched = MatchedGames() if matched is None else matched
    matched.update(
        record,
        teachers=ratings.teachers,
        versions={name: versions[adapter_of(name)] for name in (*ratings.teachers, *ratings.students)},
    )
    # The rating under which a member is listed: its own, or for a shared adapter that of the last player it acts for.
    player = {adapter_of(name): name for name in (*ratings.teachers, *ratings.students)}
    rows = tuple(
        _summarize_member(
            member,
            proposals.get(member.id, []),
            attempts.get(member.id, []),
            settled.get(member.id, []),
            rating=ratings[player[member.id]],
            games=(matched, (player[member.id], None) if member.role == "teacher" else (None, player[member.id])),
            grad_norm=(grad_norms or {}).get(member.id),
        )
        for member in members
    )
    games = tuple(tuple(int(n) for n in row) for row in ratings.games)
    met = [[int(n) for n in row] for row in ratings.games + ratings.forfeits]
    # In the first rounds, and after a replacement, some have yet to meet; that is no alarm.
    acquainted = record.round - matched.since >= 2 * max(len(ratings.teachers), len(ratings.students))
    pairs = [[(teacher, student) for student in ratings.students] for teacher in ratings.teachers]
    newest = [[matched.newest(*pair) for pair in row] for row in pairs]
    window = [[matched.window(*pair) for pair in row] for row in pairs]
    fill_rate, solve_rate_filled = _filled(record.attempts)
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
        tasks=dict(tasks or {}),
        events=tuple(dict(event) for event in events),
        seconds=dict(seconds or {}),
        alarms=(
            *matched.alarms(ratings.teachers, ratings.students),
            *collapse_alarms(rows, met if acquainted else (), coverage=coverage_history),
        ),
        solve_rate=matched.solve_rate(),
        solve_rates=_rates(matched.by_type()),
        fill_rate=fill_rate,
        solve_rate_filled=solve_rate_filled,
        attempts=tuple(tuple(tally.attempts for tally in row) for row in newest),
        solved=tuple(tuple(tally.solved for tally in row) for row in newest),
        window_attempts=tuple(tuple(tally.attempts for tally in row) for row in window),
        window_solved=tuple(tuple(tally.solved for tally in row) for row in window),
        residual=rating_residual(ratings),
    )


def _summarize_member(
    member: Member,
    proposals: list[Proposal],
    attempts: list[Attempt],
    settled: list[Proposal | Attempt],
    *,
    rating: Rating,
    games: tuple[MatchedGames, tuple[str | None, str | None]],
    grad_norm: float | None,
) -> MemberSummary:
    matched, scope = games
    fill_rate, solve_rate_filled = _filled(attempts)
    items = [*proposals, *attempts]
    refusals: dict[str, int] = {}
    for item in items:
        if item.refusal is not None:
            refusals[item.refusal.reason] = refusals.get(item.refusal.reason, 0) + 1
    learned = [item for item in settled if item.learned and item.reward is not None]
    tokens = sum(item.tokens for item in learned)
    return MemberSummary(
        name=member.id,
        role=member.role,
        version=member.version,
        reward=mean(item.reward for item in settled),
        validity=mean(float(item.valid) for item in proposals if not is_spared(item.refusal)),
        solve_rate=matched.solve_rate(*scope),
        mu=rating.mu,
        sigma=rating.sigma,
        length=sum(item.tokens for item in items) / max(len(items), 1),
        rows=len(learned),
        tokens=tokens,
        refusals=refusals,
        grad_norm=grad_norm,
        solve_rates=_rates(matched.by_type(*scope)),
        fill_rate=fill_rate,
        solve_rate_filled=solve_rate_filled,
        prompt_tokens=sum(item.prompt_tokens for item in learned),
        unlearned_rows=len(settled) - len(learned),
        unlearned_tokens=sum(item.tokens for item in settled) - tokens,
    )


def _rates(tallies: Mapping[str, Tally]) -> dict[str, float]:
    return {name: tally.solved / tally.attempts for name, tally in tallies.items()}


def _filled(attempts: Sequence[Attempt]) -> tuple[float | None, float | None]:
    """Share of attempts at tasks filled in from the buffer, and share of those that solved them, spared ones aside."""
    own = [attempt for attempt in attempts if attempt.opponent is None]
    share = len(own) / len(attempts) if attempts else None
    return share, mean(float(attempt.solved) for attempt in own if not is_spared(attempt.refusal))


def rating_residual(ratings: Ratings, *, min_games: int = RESIDUAL_GAMES) -> float | None:
    """Root mean square of what ratings miss: observed minus predicted win rate of the teacher, over pairs.

    Near 0 where one number per member orders everybody. Chance alone gives up to `0.5 / sqrt(games)` per pair, more
    where the attempts at one task resemble each other. Pairs with fewer than `min_games` games have no part in it;
    `None` if no pair has as many.
    """
    played = ratings.residual[ratings.games >= min_games]
    return math.sqrt(float((played**2).mean())) if played.size else None


def dispersion(values: Iterable[float | None]) -> float | None:
    """Standard deviation (divided by N) of the values that exist; `None` of fewer than two."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    centre = sum(known) / len(known)
    return math.sqrt(sum((value - centre) ** 2 for value in known) / len(known))


def solve_rate_matrix(summary: RoundSummary) -> list[list[float | None]]:
    """Matched solve rate of every pair over the last rounds in which it met, shape `(T, S)`; `None` without games."""
    pairs = zip(summary.window_attempts, summary.window_solved)
    return [[solved / n if n else None for n, solved in zip(*rows)] for rows in pairs]


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are neither `None` nor NaN; `None` if none is left."""
    known = [value for value in values if value is not None and value == value]
    return sum(known) / len(known) if known else None


def round_metrics(summary: RoundSummary) -> dict[str, float]:
    """The summary as flat metrics for a logger: `population/<member>/...`, `teachers/...`, `matches/...`, and so on.

    Values that do not exist (a student's validity) have no key. docs/training.md has a glossary.
    """
    metrics: dict[str, float | None] = {"round": summary.round, "alarms": len(summary.alarms)}
    roles = {"teachers": ("teacher", "shared"), "students": ("student", "shared")}
    for group, own in roles.items():
        members = [member for member in summary.members if member.role in own]
        names = ("reward", "validity", "length", "mu", "grad_norm", "delta_norm", "effective_rank")
        for name in names:
            metrics[f"{group}/{name}"] = mean(getattr(member, name) for member in members)
        if summary.teachers:
            metrics[f"{group}/rating_dispersion"] = dispersion(member.mu for member in members)
            metrics[f"{group}/solve_rate_dispersion"] = dispersion(member.solve_rate for member in members)
        for member in members:
            for reason, count in member.refusals.items():
                key = f"{group}/refused/{reason}"
                metrics[key] = (metrics.get(key) or 0) + count
    for member in summary.members:
        for name in (*MEMBER_METRICS, *COMPUTE):
            metrics[f"population/{member.name}/{name}"] = getattr(member, name)
        metrics.update(_under(f"population/{member.name}/solve_rate", member.solve_rates))
    for name in ("solve_rate", "fill_rate", "solve_rate_filled"):
        metrics[name] = getattr(summary, name)
    metrics |= _under("solve_rate", summary.solve_rates) | _pair_metrics(summary) | summary.rewards
    metrics["ratings/residual"] = summary.residual
    for role, values in summary.cosines.items():
        metrics.update({f"{role}/cosine_{name}": value for name, value in values.items()})
    games, wins = sum(map(sum, summary.games)), sum(map(sum, summary.wins))
    metrics |= {"matches/played": summary.matches, "matches/games": games, "matches/student_wins": wins}
    metrics["evolution/replaced"] = len(summary.events)
    for group in ("statuses", "complexity", "coverage", "tasks", "seconds"):
        prefix = "executor" if group == "statuses" else group
        metrics.update({f"{prefix}/{name}": value for name, value in getattr(summary, group).items()})
    return {name: float(value) for name, value in metrics.items() if value is not None}


def _under(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _pair_metrics(summary: RoundSummary) -> dict[str, float]:
    """Matched solve rate of every pair that met: this round's, and over the last rounds in which it met."""
    metrics = {}
    for i, teacher in enumerate(summary.teachers):
        for j, student in enumerate(summary.students):
            if summary.attempts and summary.attempts[i][j]:
                pair = f"pairs/{teacher}/{student}"
                metrics[f"{pair}/solve_rate"] = summary.solved[i][j] / summary.attempts[i][j]
                metrics[f"{pair}/solve_rate_window"] = summary.window_solved[i][j] / summary.window_attempts[i][j]
    return metrics


def collapse_alarms(
    members: Sequence[MemberSummary],
    games: Sequence[Sequence[int]],
    *,
    coverage: Sequence[int] = (),
    patience: int = 20,
) -> tuple[str, ...]:
    """Signs that the game has stopped teaching anybody anything, beside disengagement ([`MatchedGames.alarms`]).

    Thresholds are our choice.

    Args:
        members (`Sequence[MemberSummary]`): The round's members.
        games (`Sequence[Sequence[int]]` of shape `(T, S)`): Games between the present occupants.
        coverage (`Sequence[int]`, *optional*): Filled cells after each round so far, this one last.
        patience (`int`, *optional*, defaults to 20): Rounds without a new cell before coverage counts as stalled.

    Returns:
        `tuple[str, ...]`: One sentence per alarm; empty when all is well.
    """
    alarms = []
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
