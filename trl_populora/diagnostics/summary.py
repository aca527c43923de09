"""The summary of a round: `RoundSummary`, with a `MemberSummary` for every member. Plain records without
computations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from ..settings import hints_of, holds


@dataclass(frozen=True)
class MemberSummary:
    """One member's round.

    Attributes:
        name (`str`): Member.
        role (`str`): `"teacher"`, `"student"` or `"shared"` (one adapter plays both; its rating is the student's).
        version (`int`): Version of the member that played.
        reward (`float` or `None`): Mean reward of its rows, in both roles if it is shared; `None` if no row counts.
            With `solvable_rounds`, a teacher's rows are the late ones, with final rewards.
        validity (`float` or `None`): Share of its proposals that became tasks; `None` without proposals. Proposals on
            which the executor failed are not counted.
        solve_rate (`float` or `None`): Matched solve rate ([`MatchedGames.solve_rate`]): of its attempts, or for a
            teacher of the attempts at its tasks. `None` without matched games in the last rotation of the types.
        mu, sigma (`float` or `None`): Rating after the round; on a dataset, `None` for a member without any reward.
        length (`float`): Mean length of the completions it wrote, in tokens; without extra attempts.
        rows (`int`): Rows that it learned from: its completions with a reward. With `solvable_rounds`, a teacher's
            rows are from an earlier round.
        tokens (`int`): Completion tokens of those rows.
        distinct (`float` or `None`): How different its completions to one prompt are: (different texts - 1) /
            (completions - 1), mean over prompts; `None` if no prompt has two. In self-play, without extra attempts; of
            a shared member, its attempts.
        refusals (`dict[str, int]`): Reason -> number of its completions that were refused for this reason.
        grad_norm (`float` or `None`): Norm of its gradient before clipping, mean over the round's steps, where known.
        solve_rates (`dict[str, float]`): Task type -> matched solve rate of this round alone.
        fill_rate (`float` or `None`): Share of its attempts that were at fill-ins (tasks from the buffer).
        solve_rate_filled (`float` or `None`): Share of its attempts at fill-ins that solved their task.
        delta_norm (`float` or `None`): Frobenius norm of its update `dW` over all matrices, in rounds that measure it.
        effective_rank (`float` or `None`): Of `dW`, mean over its matrices ([`evolution.factors.effective_rank`]).
        prompt_tokens (`int`): Prompt tokens of the rows it learned from.
        unlearned_rows, unlearned_tokens (`int`): Completions that it never learns from, and their tokens: not chosen
            by `balance_rows`, extra attempts, rows without a reward, or rows of a replaced member. Rows that wait
            (`solvable_rounds`) are counted in a later round.
        updates (`int`): Optimizer steps that it took in this round; 0 without rows to learn from, or if the guard
            stopped or reset it.
    """

    name: str
    role: str
    version: int
    reward: float | None
    validity: float | None
    solve_rate: float | None
    mu: float | None
    sigma: float | None
    length: float
    rows: int
    tokens: int
    distinct: float | None = None
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
        games, wins (`tuple[tuple[int, ...], ...]` of shape `(T, S)`): Rated games between current members, and those
            that the student won.
        matches (`int`): Pairings of this round, also those without any valid task.
        guest_rows, guest_tokens (`int`): Completions of champions of the past, and their tokens. Nobody learns
            from them.
        statuses (`dict[str, int]`): Status of the executor -> its executions in this round.
        complexity (`dict[str, float]`): Mean measures of what teachers wrote themselves, in the round's valid
            proposals (`TaskType.features`).
        coverage (`dict[str, int]`): `"filled"` and `"new"` cells of the archive (`diagnostics.coverage`), and
            `"filled/<author>"`.
        tasks (`dict[str, float]`): Numbers about its tasks (`diagnostics.task_metrics`).
        events (`tuple[dict, ...]`): Replacements after this round, each an `EvolutionEvent` as JSON.
        recombined (`tuple[str, ...]`): Members that got the mean update of their role after this round.
        seconds (`dict[str, float]`): Phase (`propose`, `verify`, `match`, `solve`, `judge`, `learn`, and, in rounds
            that have them, `extra`, `weights` and `recombine`; on a dataset `sample` and `learn`) -> seconds.
        alarms (`tuple[str, ...]`): Signs of collapse, in words.
        solve_rate (`float` or `None`): Matched solve rate of everybody: mean over task types of each type's newest
            one, not older than a rotation of the types ([`MatchedGames.solve_rate`]).
        solve_rates (`dict[str, float]`): Task type -> matched solve rate of this round alone.
        fill_rate (`float` or `None`): Share of the members' attempts that were at fill-ins.
        solve_rate_filled (`float` or `None`): Share of those attempts that solved their task.
        attempts, solved (`tuple[tuple[int, ...], ...]` of shape `(T, S)`): Matched attempts of this round, and those
            that solved their task.
        window_attempts, window_solved (`tuple[tuple[int, ...], ...]` of shape `(T, S)`): The same over the last 10
            rounds in which the current members of the two slots met, within the last 50 rounds.
        lengths (`dict[str, float]`): `"teachers"` or `"students"` -> mean length of the completions of this role in
            self-play, in tokens; without extra attempts.
        refusals (`dict[str, dict[str, int]]`): `"teachers"` or `"students"` -> reason -> number of these completions
            that were refused for this reason.
        residual (`float` or `None`): Root mean square of `Ratings.residual` over pairs with at least 32 games.
        residuals (`tuple[tuple[float or None, ...], ...]` of shape `(T, S)`): `Ratings.residual` of every pair; `None`
            without games.
        rewards (`dict[str, float]`): Main numbers of each role's rows in self-play, by name of the metric
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
    guest_rows: int = 0
    guest_tokens: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    complexity: dict[str, float] = field(default_factory=dict)
    coverage: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, float] = field(default_factory=dict)
    events: tuple[dict, ...] = ()
    recombined: tuple[str, ...] = ()
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
    lengths: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, dict[str, int]] = field(default_factory=dict)
    residual: float | None = None
    residuals: tuple[tuple[float | None, ...], ...] = ()
    rewards: dict[str, float] = field(default_factory=dict)
    cosines: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_json(self) -> dict:
        """The round as JSON values: a line of `history.jsonl`."""
        return asdict(self)

    def check(self) -> None:
        """Checks the types of all fields.

        Raises:
            ValueError: If a field has another type.
        """
        _known(RoundSummary, vars(self))
        if not all(isinstance(member, MemberSummary) for member in self.members):
            raise ValueError(f"members is {self.members!r:.100}")
        for member in self.members:
            _known(MemberSummary, vars(member))

    @classmethod
    def from_json(cls, data: Mapping) -> RoundSummary:
        """Inverse of `to_json`; keys of later versions are ignored.

        Raises:
            ValueError: If a value has another type.
        """
        known = _known(cls, data)
        for name in ("teachers", "students", "events", "recombined", "alarms"):
            known[name] = tuple(known.get(name, ()))
        for name in ("games", "wins", "attempts", "solved", "window_attempts", "window_solved", "residuals"):
            known[name] = tuple(tuple(row) for row in known.get(name, ()))
        known["members"] = tuple(MemberSummary(**_known(MemberSummary, row)) for row in known["members"])
        return cls(**known)


def _known(cls: type, data: Mapping) -> dict:
    known = {field.name: data[field.name] for field in fields(cls) if field.name in data}
    for name, hint in hints_of(cls).items():
        if name in known and name != "members" and not holds(known[name], hint):
            raise ValueError(f"{name} is {known[name]!r}")
    return known
