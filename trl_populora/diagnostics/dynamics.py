"""Numbers about a round: per member, per role and per pair, and the alarms about a collapse.

Pure functions from records to numbers. `training` writes them, and `reporting` shows them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..tasks import is_spared
from .matched import MatchedGames
from .metrics import MEMBER, ROLE
from .summary import MemberSummary, RoundSummary


if TYPE_CHECKING:
    from ..population.member import Member
    from ..self_play.ratings import Rating, Ratings
    from ..self_play.records import Attempt, Proposal, RoundRecord
    from .matched import Scope, Tally


RESIDUAL_GAMES = 32
"""Games that a pair must have played to count in the residual of the rating model. Our choice."""
REPEATED, REPEATED_ROWS, MASTERED = 0.1, 32, 0.9
"""A student that repeats itself has at most this `distinct`, in at least so many attempts, and solves less than this
share of them. Our choice."""


def summarize_round(
    record: RoundRecord,
    *,
    ratings: Ratings,
    members: Iterable[Member],
    adapter_of: Callable[[str], str] = str,
    coverage_history: Sequence[int] = (),
    matched: MatchedGames | None = None,
    grad_norms: Mapping[str, float] | None = None,
    **facts: Any,
) -> RoundSummary:
    """Sum up one round.

    Args:
        record ([`RoundRecord`]): What happened.
        ratings ([`Ratings`]): Ratings after the round.
        members (`Iterable[Member]`): The members as they played.
        adapter_of (`Callable[[str], str]`, *optional*): Player -> member that acts for it; the player itself if unset.
        coverage_history (`Sequence[int]`, *optional*): Filled cells after each round so far, this one last.
        matched ([`MatchedGames`], *optional*): Games of the last rounds, to which this one is added.
        grad_norms (`Mapping[str, float]`, *optional*): Member -> gradient norm.
        facts (`Any`): Additional fields of [`RoundSummary`].
    """
    members, players = tuple(members), (*ratings.teachers, *ratings.students)
    versions = {member.id: member.version for member in members}
    matched = MatchedGames() if matched is None else matched
    matched.update(record, teachers=ratings.teachers, versions={name: versions[adapter_of(name)] for name in players})
    # The rating under which a member is listed: its own, or for a shared adapter that of the last player it acts for.
    player = {adapter_of(name): name for name in players}
    guests = (*record.guest_proposals, *record.guest_attempts)
    settled = (*record.settled_proposals, *record.attempts, *record.extra_attempts)
    own = [_by_member(items, adapter_of) for items in (record.proposals, record.attempts, settled)]
    written = {"teachers": record.proposals, "students": record.attempts}
    rows = tuple(
        _summarize_member(
            member,
            *(items[member.id] for items in own),
            rating=ratings[player[member.id]],
            matched=matched,
            scope=(player[member.id], None) if member.role == "teacher" else (None, player[member.id]),
            grad_norm=(grad_norms or {}).get(member.id),
        )
        for member in members
    )
    return RoundSummary(
        round=record.round,
        step=record.step,
        members=rows,
        teachers=ratings.teachers,
        students=ratings.students,
        matches=len(record.matches),
        guest_rows=len(guests),
        guest_tokens=sum(item.tokens for item in guests),
        alarms=(
            *sandbox_alarms((*record.proposals, *record.attempts)),
            *repetition_alarms(_by_member(record.attempts, adapter_of)),
            *_alarms(rows, ratings, matched, coverage_history),
        ),
        solve_rate=matched.solve_rate(),
        solve_rates=_rates(matched.by_type()),
        **_filled(record.attempts),
        **_tables(ratings, matched),
        lengths={role: found for role, items in written.items() if (found := mean(one.tokens for one in items))},
        refusals={role: _reasons(items) for role, items in written.items()},
        residual=rating_residual(ratings),
        residuals=tuple(tuple(None if math.isnan(one) else one for one in row) for row in ratings.residual.tolist()),
        **facts,
    )


def _summarize_member(
    member: Member,
    proposals: Sequence[Proposal],
    attempts: Sequence[Attempt],
    settled: Sequence[Proposal | Attempt],
    *,
    rating: Rating,
    matched: MatchedGames,
    scope: Scope,
    grad_norm: float | None,
) -> MemberSummary:
    items = [*proposals, *attempts]
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
        distinct=distinct((item.group, item.completion) for item in attempts or proposals),
        refusals=_reasons(items),
        grad_norm=grad_norm,
        solve_rates=_rates(matched.by_type(*scope)),
        **_filled(attempts),
        prompt_tokens=sum(item.prompt_tokens for item in learned),
        unlearned_rows=len(settled) - len(learned),
        unlearned_tokens=sum(item.tokens for item in settled) - tokens,
    )


def _by_member(items: Iterable[Proposal | Attempt], adapter_of: Callable[[str], str]) -> dict[str, list]:
    own = defaultdict(list)
    for item in items:
        own[adapter_of(item.member)].append(item)
    return own


def _reasons(items: Iterable[Proposal | Attempt]) -> dict[str, int]:
    return dict(Counter(item.refusal.reason for item in items if item.refusal is not None))


def _tables(ratings: Ratings, matched: MatchedGames) -> dict[str, tuple[tuple[int, ...], ...]]:
    """All fields of shape `(T, S)`."""
    newest, window = (
        [[count(teacher, student) for student in ratings.students] for teacher in ratings.teachers]
        for count in (matched.newest, matched.window)
    )
    tables = {
        "games": ratings.games.tolist(),
        "wins": ratings.wins.tolist(),
        "attempts": [[tally.attempts for tally in row] for row in newest],
        "solved": [[tally.solved for tally in row] for row in newest],
        "window_attempts": [[tally.attempts for tally in row] for row in window],
        "window_solved": [[tally.solved for tally in row] for row in window],
    }
    return {name: tuple(map(tuple, rows)) for name, rows in tables.items()}


def _alarms(
    members: Sequence[MemberSummary], ratings: Ratings, matched: MatchedGames, coverage: Sequence[int]
) -> tuple[str, ...]:
    # In the first rounds, and after a replacement, some have yet to meet; that is no alarm.
    acquainted = matched.round - matched.since >= 2 * max(len(ratings.teachers), len(ratings.students))
    met = (ratings.games + ratings.forfeits).tolist() if acquainted else ()
    disengaged = matched.alarms(ratings.teachers, ratings.students)
    return (*disengaged, *collapse_alarms(members, met, coverage=coverage))


def _rates(tallies: Mapping[str, Tally]) -> dict[str, float]:
    return {name: tally.solved / tally.attempts for name, tally in tallies.items()}


def _filled(attempts: Sequence[Attempt]) -> dict[str, Any]:
    """Share of attempts at fill-ins, and share of those that solved their task, without spared attempts."""
    own = [attempt for attempt in attempts if attempt.opponent is None]
    return {
        "fill_rate": len(own) / len(attempts) if attempts else None,
        "solve_rate_filled": mean(float(attempt.solved) for attempt in own if not is_spared(attempt.refusal)),
    }


def rating_residual(ratings: Ratings, *, min_games: int = RESIDUAL_GAMES) -> float | None:
    """Root mean square, over pairs, of the error of the ratings: observed minus predicted win rate of the teacher.

    Meetings fade, so a pair counts about ten of them, however long the run is. If one number per member describes all
    results, chance alone gives up to about `0.5 / sqrt(10 * games)` with `games` per meeting, and more if attempts at
    one task are correlated. Pairs with fewer than `min_games` games are not used; `None` if no pair has enough.
    """
    played = ratings.residual[ratings.games >= min_games]
    return math.sqrt(float((played**2).mean())) if played.size else None


def distinct(completions: Iterable[tuple[Hashable, Hashable]]) -> float | None:
    """How different the completions to one prompt are: (different texts - 1) / (completions - 1), mean over prompts.

    Args:
        completions (`Iterable[tuple]`): Of each completion, what tells its prompt, and its text.

    Returns:
        `float` or `None`: From 0 (all are the same) to 1 (all are different); `None` if no prompt has two.
    """
    texts = defaultdict(list)
    for prompt, text in completions:
        texts[prompt].append(text)
    return mean((len({*own}) - 1) / (len(own) - 1) for own in texts.values() if len(own) > 1)


def dispersion(values: Iterable[float | None]) -> float | None:
    """Standard deviation (with divisor N) of the values that exist; `None` for fewer than two."""
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
    return fmean(known) if known else None


def round_metrics(summary: RoundSummary) -> dict[str, float]:
    """The summary as flat metrics for a logger, under the names of the registry ([`diagnostics.metrics`]).

    Values that do not exist, such as a student's validity, have no key.
    """
    metrics: dict[str, float | None] = {"round": summary.round, "alarms": len(summary.alarms)}
    roles = {"teachers": ("teacher", "shared"), "students": ("student", "shared")}
    for group, own in roles.items():
        members = [member for member in summary.members if member.role in own]
        for name in ROLE:
            metrics[f"{group}/{MEMBER[name]}"] = mean(getattr(member, name) for member in members)
        metrics[f"{group}/length"] = summary.lengths.get(group, metrics[f"{group}/length"])
        refused = sum((Counter(member.refusals) for member in members), Counter())
        metrics |= _under(f"{group}/refused", summary.refusals.get(group, refused))
        if group == "students":  # a single agent's proposals are the teacher's
            del metrics["students/validity"]
        elif any(member.role == "shared" for member in members):  # whose `distinct` is that of its attempts
            del metrics["teachers/distinct"]
        if summary.teachers:
            metrics[f"{group}/rating/dispersion"] = dispersion(member.mu for member in members)
            metrics[f"{group}/solve_rate_dispersion"] = dispersion(member.solve_rate for member in members)
    for member in summary.members:
        for field, name in MEMBER.items():
            metrics[f"{name}/{member.name}"] = getattr(member, field)
        metrics |= {f"types/solve_rate/{name}/{member.name}": rate for name, rate in member.solve_rates.items()}
    for name in ("solve_rate", "fill_rate", "solve_rate_filled"):
        metrics[name] = getattr(summary, name)
    metrics |= _under("types/solve_rate", summary.solve_rates) | _pair_metrics(summary) | summary.rewards
    metrics["rating/residual"] = summary.residual
    for role, values in summary.cosines.items():
        metrics.update({f"{role}/weights/cosine_{name}": value for name, value in values.items()})
    if summary.teachers:
        games, wins = sum(map(sum, summary.games)), sum(map(sum, summary.wins))
        metrics |= {"matches/played": summary.matches, "matches/games": games, "matches/student_wins": wins}
    metrics["compute/guest_rows"] = summary.guest_rows or None
    metrics |= {"evolution/replaced": len(summary.events), "evolution/recombined": len(summary.recombined)}
    metrics |= _under("executor", summary.statuses)
    for group in ("complexity", "coverage", "tasks", "seconds"):
        metrics |= _under(group, getattr(summary, group))
    return {name: float(value) for name, value in metrics.items() if value is not None}


def _under(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _pair_metrics(summary: RoundSummary) -> dict[str, float]:
    """Matched solve rate of every pair that met: in this round, and over the last rounds in which it met."""
    metrics = {}
    for i, teacher in enumerate(summary.teachers):
        for j, student in enumerate(summary.students):
            if summary.attempts and summary.attempts[i][j]:
                newest, window = (summary.solved, summary.attempts), (summary.window_solved, summary.window_attempts)
                for name, (solved, attempts) in {"solve_rate": newest, "solve_rate_window": window}.items():
                    metrics[f"pairs/{name}/{teacher}/{student}"] = solved[i][j] / attempts[i][j]
    return metrics


def collapse_alarms(
    members: Sequence[MemberSummary],
    games: Sequence[Sequence[int]],
    *,
    coverage: Sequence[int] = (),
    patience: int = 20,
) -> tuple[str, ...]:
    """Alarms: signs that members no longer learn. ([`MatchedGames.alarms`] has the alarms about disengagement.)

    Thresholds are our choice.

    Args:
        members (`Sequence[MemberSummary]`): The round's members.
        games (`Sequence[Sequence[int]]` of shape `(T, S)`): Games between the current members.
        coverage (`Sequence[int]`, *optional*): Filled cells after each round so far, this one last.
        patience (`int`, *optional*, defaults to 20): Rounds without a new cell before coverage counts as stalled.

    Returns:
        `tuple[str, ...]`: One sentence per alarm; empty if there is none.
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


def sandbox_alarms(rows: Sequence[Proposal | Attempt]) -> tuple[str, ...]:
    """Alarm if the executor failed on at least a tenth of a round's rows, or on some of them and no row is valid.

    The tenth is our choice. Such rows are neither rewarded nor punished, so nothing else shows that they are lost.
    """
    spared = sum(is_spared(row.refusal) for row in rows)
    if spared and (10 * spared >= len(rows) or not any(row.refusal is None for row in rows)):
        return (f"the executor failed on {spared} of {len(rows)} rows",)
    return ()


def repeats_itself(attempts: Collection[tuple[Hashable, Hashable]], solved: float | None) -> bool:
    """Whether a student wrote one answer in nearly all attempts at a task, and often failed.

    Args:
        attempts (`Collection[tuple]`): Of each attempt of a round, what tells its prompt, and its text.
        solved (`float` or `None`): Share of them that solved their task; `None` if none was judged.
    """
    different = distinct(attempts)
    one_answer = different is not None and different <= REPEATED and len(attempts) >= REPEATED_ROWS
    return one_answer and solved is not None and solved < MASTERED


def repetition_alarms(attempts: Mapping[str, Sequence[Attempt]]) -> tuple[str, ...]:
    """Alarm if members repeat one answer in nearly all attempts at a task, and fail many of them.

    Args:
        attempts (`Mapping[str, Sequence[Attempt]]`): Member -> its attempts of a round.
    """
    names = []
    for name, own in attempts.items():
        solved = mean(float(one.solved) for one in own if not is_spared(one.refusal))
        if repeats_itself([(one.group, one.completion) for one in own], solved):
            names.append(name)
    who = ", ".join(names)
    return (f"{who} repeated one answer in nearly all attempts at a task, often a wrong one",) if names else ()


def reward_alarms(members: Sequence[MemberSummary]) -> tuple[str, ...]:
    """Alarms of a round on a dataset: members that no reward function has scored."""
    unscored = [member.name for member in members if member.reward is None]
    return (f"no row of {', '.join(unscored)} has a reward",) if unscored else ()


def equality_alarms(groups: Iterable[Sequence[float]]) -> tuple[str, ...]:
    """Alarm of a round on a dataset in which no group has two different rewards, so that no row has an advantage.

    Args:
        groups (`Iterable[Sequence[float]]`): Rewards of each group's rows. What is not finite is not scored.
    """
    different = max((len({reward for reward in group if math.isfinite(reward)}) for group in groups), default=0)
    return ("the rewards within every group are equal: no member can learn from them",) if different == 1 else ()


def connected_groups(games: Sequence[Sequence[int]]) -> int:
    """Number of groups of members that have met, directly or through others. Ratings are comparable within a group."""
    if not games:
        return 0
    import numpy as np
    from scipy.sparse.csgraph import connected_components

    met = np.pad(np.asarray(games), ((0, len(games[0])), (len(games), 0)))  # an edge for each pair
    return int(connected_components(met, directed=False, return_labels=False))
