"""What is said of a round: `RoundSummary`, with a `MemberSummary` of everybody. Plain records, no arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields


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
        residuals (`tuple[tuple[float or None, ...], ...]` of shape `(T, S)`): `Ratings.residual` of every pair; `None`
            without games.
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
    residuals: tuple[tuple[float | None, ...], ...] = ()
    rewards: dict[str, float] = field(default_factory=dict)
    cosines: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping) -> RoundSummary:
        """Inverse of `to_json`; keys of later versions are ignored."""
        known = _known(cls, data)
        for name in ("teachers", "students", "events", "alarms"):
            known[name] = tuple(known.get(name, ()))
        for name in ("games", "wins", "attempts", "solved", "window_attempts", "window_solved", "residuals"):
            known[name] = tuple(tuple(row) for row in known.get(name, ()))
        known["members"] = tuple(MemberSummary(**_known(MemberSummary, row)) for row in known["members"])
        return cls(**known)


def _known(cls: type, data: Mapping) -> dict:
    return {field.name: data[field.name] for field in fields(cls) if field.name in data}
