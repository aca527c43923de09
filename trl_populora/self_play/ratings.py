"""TrueSkill ratings of teachers and students, and the counts of games and wins.

`pairing` uses ratings for matchmaking, and `evolution` uses them for replacement.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from .evidence import VALIDITY, Correlations, Outcome
from .weighted_games import BETA, GAME, MU, SIGMA, TAU, play_step, schedule


REMEMBERED = 10.0
"""A new interval begins with the share of invalid proposals of the last one, weighted as at most so many independent
proposals."""
RECENT = 5.0
"""Meetings of a pair after which its games have faded to 1 / e in the residual. Our choice."""


@dataclass(frozen=True)
class Rating:
    """Estimate of a member's skill: a normal distribution.

    Attributes:
        mu (`float`, *optional*, defaults to `25.0`): Mean.
        sigma (`float`, *optional*, defaults to `25 / 3`): Standard deviation.
    """

    mu: float = MU
    sigma: float = SIGMA

    @property
    def fitness(self) -> float:
        """Lower confidence bound of the skill, `mu - 3 sigma`: what selection ranks by."""
        return self.mu - 3 * self.sigma


@dataclass(frozen=True)
class Match:
    """Observed games of one teacher against one student in one round.

    Attributes:
        teacher (`str`): Member that proposed.
        student (`str`): Member that solved.
        games (`int`): Attempts at the teacher's valid tasks.
        student_wins (`int`): Attempts that solved their task; the teacher wins the others.
        forfeits (`int`, *optional*, defaults to `0`): Games that the teacher lost by invalid proposals, not part of
            `games`.
    """

    teacher: str
    student: str
    games: int
    student_wins: int
    forfeits: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.student_wins <= self.games:
            raise ValueError(
                f"A match needs 0 <= student_wins <= games, got student_wins={self.student_wins} and "
                f"games={self.games} for {self.teacher!r} against {self.student!r}."
            )


def tally(outcomes: Iterable[Outcome]) -> tuple[Match, ...]:
    """Sums outcomes into matches, one per teacher and student, in order of first appearance."""
    totals: dict[tuple[str, str], list[int]] = {}
    for outcome in outcomes:
        total = totals.setdefault((outcome.teacher, outcome.student), [0, 0, 0])
        total[0] += 0 if outcome.forfeit else outcome.games
        total[1] += outcome.student_wins
        total[2] += outcome.games if outcome.forfeit else 0
    return tuple(Match(*pair, *total) for pair, total in totals.items())


class Ratings:
    """Ratings of teachers and students, and the counts of games for each pair.

    Args:
        teachers (`Sequence[str]`): Names of the teachers, in row order.
        students (`Sequence[str]`): Names of the students, in column order.

    Attributes:
        games (`np.ndarray` of shape `(T, S)`): Games played by the current members of both slots.
        wins (`np.ndarray` of shape `(T, S)`): Games that the student won.
        forfeits (`np.ndarray` of shape `(T, S)`): Games that the teacher forfeited, not part of `games`.
        correlations ([`Correlations`]): Correlations of attempts, which determine the weights of games.
        validity ([`Correlations`]): Correlation of the validity of proposals to one prompt, which determines how many
            independent proposals they count as.

    A teacher's rating has two parts: its skill, from the games that were played, and its share of invalid proposals,
    which lose all their games. The rating is the skill at which it would win as often without forfeits.

    Raises:
        ValueError: If a name appears twice.

    TrueSkill (Herbrich et al., 2006) with mu 25, sigma 25/3, beta 25/6 and no draws; tau 25/300 is added once a round.
    Teachers only meet students, so games do not determine the common level of all ratings. [`Ratings.update`] keeps
    their mean at 25 (our choice).
    """

    def __init__(self, teachers: Sequence[str], students: Sequence[str]) -> None:
        self.teachers = tuple(teachers)
        self.students = tuple(students)
        names = self.teachers + self.students
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"Every member needs a name of its own, but {repeated} appear more than once.")
        self._ratings = {name: Rating() for name in names}
        self._row = {name: index for index, name in enumerate(self.teachers)}
        self._column = {name: index for index, name in enumerate(self.students)}
        self.games = np.zeros((len(self.teachers), len(self.students)), dtype=np.int64)
        self.wins = np.zeros_like(self.games)
        self.forfeits = np.zeros_like(self.games)
        self.correlations, self.validity = Correlations(), Correlations(prompt=VALIDITY)
        self._types: set[str] = set()  # that were played
        self._recent = np.zeros((3, *self.games.shape))  # faded: games, the teacher's wins, and its predicted wins
        self._proposals = dict.fromkeys(self.teachers, (0.0, 0.0))  # independent ones of this interval, and invalid

    def __getitem__(self, name: str) -> Rating:
        """Rating of a member, including forfeits."""
        skill = self.skill(name)
        proposals, invalid = self._proposals.get(name, (0.0, 0.0))
        if not invalid:
            return skill
        level = math.fsum(self._ratings[student].mu for student in self.students) / len(self.students)
        return _with_forfeits(skill, level, proposals, invalid)

    def skill(self, name: str) -> Rating:
        """Rating of a member from played games only, without forfeits. It predicts a game between two members."""
        try:
            return self._ratings[name]
        except KeyError:
            raise ValueError(f"No member is called {name!r}; the members are {list(self._ratings)}.") from None

    def fitness(self, name: str) -> float:
        """`mu - 3 sigma` of a member: a fitness relative to the other side."""
        return self[name].fitness

    def win_probability(self, i: str, j: str, handicap: float = 0.0) -> float:
        """P(i beats j) = Phi((mu_i - mu_j) / sqrt(2 beta^2 + sigma_i^2 + sigma_j^2)) in a played game."""
        a, b = self.skill(i), self.skill(j)
        return float(ndtr((a.mu + handicap - b.mu) / math.sqrt(2 * BETA**2 + a.sigma**2 + b.sigma**2)))

    def win_probabilities(self) -> np.ndarray:
        """P(teacher beats student) in a played game for every pair, shape `(T, S)`."""
        rows = [[self.win_probability(t, s) for s in self.students] for t in self.teachers]
        return np.array(rows).reshape(self.games.shape)

    @property
    def residual(self) -> np.ndarray:
        """Observed minus predicted win rate of the teachers, shape `(T, S)`; NaN if no game was played.

        Every round is predicted by the ratings before it. Earlier meetings of a pair fade ([`RECENT`]), so members
        may change. A rating is a single number per member. What it cannot describe, such as a teacher that is hard for
        only one student, shows here.
        """
        games, won, predicted = self._recent
        with np.errstate(invalid="ignore"):
            return (won - predicted) / games

    def _handicaps(self) -> dict[str, float]:
        """Rating points that each type adds to every teacher, for its difficulty compared with the mean of types."""
        gaps = {type: -math.sqrt(2) * BETA * float(ndtri(self.correlations.solve_rate(type))) for type in self._types}
        mean = math.fsum(gaps.values()) / max(len(gaps), 1)
        return {type: gap - mean for type, gap in sorted(gaps.items())}

    def update(self, outcomes: Iterable[Outcome]) -> None:
        """Rates one round, then shifts all means so that their average over all members is 25 again.

        Args:
            outcomes (`Iterable[Outcome]`): Every proposal of the round that counts. The result does not depend on
                their order.

        Raises:
            ValueError: If an outcome names a member that does not exist or plays the other role.

        An attempt has a weight w from [`Correlations`]. Its update by the `trueskill` package is scaled by w in
        natural parameters. This is about the update with its likelihood to the power of w: as good as equal for narrow
        estimates, and more cautious about surprising results where estimates are wide. Some types are harder for
        everybody. So a teacher plays each type with a handicap: the difference between the type's solve rate and the
        mean of types, in rating points. A forfeit is not a game of the student. It only lowers the teacher's rating.
        Proposals to one prompt are often valid or invalid together, and count as fewer independent ones.

        TrueSkill depends on the order of games, so the order is fixed. The weights of the teacher's wins and of the
        student's wins are summed per pair and type. They are divided evenly over n equal steps of the round, with n so
        large that neither weight in a step is above 1. Step `k` is at time `(k + 1/2) / n`. Ties are ordered by
        teacher, student and type. The wins and losses of a step update the same estimate.
        """
        outcomes = list(outcomes)
        prompts: dict[tuple, list[Outcome]] = {}
        for outcome in outcomes:
            row, column = self._pair(outcome)
            if outcome.games and not outcome.forfeit:
                prompts.setdefault((row, column, outcome.type, outcome.prompt), []).append(outcome)
        self._note_meetings(prompts)
        self.correlations.learn(prompts.values(), self._predicted(prompts))
        weights: dict[tuple[int, int, str], tuple[list[float], list[float]]] = {}
        for (row, column, type, _), tasks in prompts.items():
            weight = self.correlations.weigh(tasks)
            wins, games = sum(task.student_wins for task in tasks), sum(task.games for task in tasks)
            teacher_won, student_won = weights.setdefault((row, column, type), ([], []))
            teacher_won.append(weight * (games - wins))
            student_won.append(weight * wins)
        self._types.update(type for *_, type, _ in prompts)
        self._rate({place: (math.fsum(lost), math.fsum(won)) for place, (lost, won) in weights.items()})
        self._count_proposals(outcomes)
        for match in tally(outcomes):
            place = self._row[match.teacher], self._column[match.student]
            self.games[place] += match.games
            self.wins[place] += match.student_wins
            self.forfeits[place] += match.forfeits

    def _note_meetings(self, prompts: Mapping[tuple[int, int, str, int], Sequence[Outcome]]) -> None:
        """Adds the round's games, and what the ratings predict of them, to those of earlier meetings, which fade."""
        handicaps, new = self._handicaps(), np.zeros_like(self._recent)
        for (row, column, type, _), tasks in sorted(prompts.items(), key=lambda item: item[0]):
            games, wins = sum(task.games for task in tasks), sum(task.student_wins for task in tasks)
            chance = self.win_probability(self.teachers[row], self.students[column], handicaps.get(type, 0.0))
            new[:, row, column] += games, games - wins, games * chance
        self._recent = np.where(new[0] > 0, math.exp(-1 / RECENT), 1.0) * self._recent + new

    def _count_proposals(self, outcomes: Iterable[Outcome]) -> None:
        """Adds the round's proposals and invalid ones to those of each teacher, as independent ones."""
        prompts: dict[tuple[str, str, int], list[Outcome]] = {}
        for one in outcomes:
            if one.games:
                drawn = Outcome(one.teacher, one.student, 1, int(one.forfeit), one.type, one.prompt)
                prompts.setdefault((one.teacher, one.type, one.prompt), []).append(drawn)
        groups = [prompts[key] for key in sorted(prompts)]
        shares = {name: (invalid + 0.5) / (count + 1) for name, (count, invalid) in self._proposals.items()}
        self.validity.learn(groups, [shares[group[0].teacher] for group in groups])
        for group in groups:
            proposals, invalid = self._proposals[group[0].teacher]
            weight = self.validity.weigh(group)
            invalid += weight * sum(one.student_wins for one in group)
            self._proposals[group[0].teacher] = (proposals + weight * len(group), invalid)

    def _predicted(self, prompts: Iterable[tuple[int, int, str, int]]) -> list[float]:
        """Solve rate that the skills predict for each `(row, column, type, prompt)`.

        It uses only mu. With sigma, predictions would be closer together, and differences between members would count
        as correlation.
        """
        handicaps, predicted = self._handicaps(), []
        for row, column, type, _ in prompts:
            teacher, student = self._ratings[self.teachers[row]], self._ratings[self.students[column]]
            gap = student.mu - teacher.mu - handicaps.get(type, 0.0)
            predicted.append(float(ndtr(gap / (math.sqrt(2) * BETA))))
        return predicted

    def _pair(self, outcome: Outcome) -> tuple[int, int]:
        if outcome.teacher not in self._row or outcome.student not in self._column:
            raise ValueError(
                f"An outcome needs a teacher of {self.teachers} and a student of {self.students}, "
                f"got {outcome.teacher!r} against {outcome.student!r}."
            )
        return self._row[outcome.teacher], self._column[outcome.student]

    def _rate(self, weights: dict[tuple[int, int, str], tuple[float, float]]) -> None:
        """Rates a round from `(row, column, type) -> weighted games won by the teacher, and by the student`."""
        drift = TAU if weights else 0.0
        belief = {
            name: GAME.create_rating(old.mu, math.hypot(old.sigma, drift)) for name, old in self._ratings.items()
        }
        handicaps = self._handicaps()
        for _, row, column, type, teacher_won, student_won in schedule(weights):
            teacher, student = self.teachers[row], self.students[column]
            belief[teacher], belief[student] = play_step(
                belief[teacher], belief[student], handicaps[type], teacher_won, student_won
            )
        shift = MU - math.fsum(rating.mu for rating in belief.values()) / len(belief)
        self._ratings = {name: Rating(rating.mu + shift, rating.sigma) for name, rating in belief.items()}

    def inherit(self, child: str, parents: Sequence[str], *, begin: bool = True) -> Rating:
        """Gives the new member of a slot its first rating and no games, and starts a new rating interval.

        Args:
            child (`str`): Slot whose member was replaced.
            parents (`Sequence[str]`): Its parents; the slot itself may be among them.
            begin (`bool`, *optional*, defaults to `True`):
                Whether a new interval starts. If not, nothing changes for the other members.

        Returns:
            `Rating`: The child's rating. Its skill has the mean mu of the parents' skills and sigma = max(parents'
            sigma, half the prior's). A teacher also inherits the mean of the parents' shares of invalid proposals,
            with the mean of their weights, at most `REMEMBERED` (our choice).

        In a new interval, every other member keeps its mu, and its sigma becomes at least half the prior's sigma, too.
        It keeps its share of valid proposals, with the weight of a few proposals. So games after the replacement soon
        outweigh earlier ones, and the next selection depends on the whole interval, for old and new members (our
        choice).
        """
        if not parents:
            raise ValueError(f"{child!r} needs at least one parent to inherit a rating from.")
        self[child]
        ratings = [self.skill(parent) for parent in parents]
        mu = math.fsum(rating.mu for rating in ratings) / len(ratings)
        sigma = max(SIGMA / 2, *(rating.sigma for rating in ratings))
        self._ratings[child] = Rating(mu, sigma)
        record = (self._row[child], slice(None)) if child in self._row else (slice(None), self._column[child])
        for counts in (self.games, self.wins, self.forfeits):
            counts[record] = 0
        self._recent[(slice(None), *record)] = 0
        if child in self._proposals:
            known = [self._proposals[parent] for parent in parents if self._proposals[parent][0]]
            share = math.fsum(invalid / proposals for proposals, invalid in known) / max(len(known), 1)
            weight = min(REMEMBERED, math.fsum(proposals for proposals, _ in known) / max(len(known), 1))
            self._proposals[child] = (weight, weight * share)
        if begin:
            self._begin()
        return self[child]

    def _begin(self) -> None:
        self._ratings = {name: Rating(old.mu, max(SIGMA / 2, old.sigma)) for name, old in self._ratings.items()}
        for name, (proposals, invalid) in self._proposals.items():
            kept = min(1.0, REMEMBERED / max(proposals, 1.0))
            self._proposals[name] = (kept * proposals, kept * invalid)

    def state_dict(self) -> dict:
        """State as plain data that survives JSON without loss."""
        return {
            "teachers": list(self.teachers),
            "students": list(self.students),
            "ratings": {name: [rating.mu, rating.sigma] for name, rating in self._ratings.items()},
            **{name: getattr(self, name).tolist() for name in ("games", "wins", "forfeits")},
            "types": sorted(self._types),
            "recent": self._recent.tolist(),
            "proposals": {name: list(counts) for name, counts in self._proposals.items()},
            "correlations": self.correlations.state_dict(),
            "validity": self.validity.state_dict(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Restores what [`Ratings.state_dict`] gave; refuses a state of other members."""
        if (tuple(state["teachers"]), tuple(state["students"])) != (self.teachers, self.students):
            raise ValueError(
                f"The state rates teachers {state['teachers']} and students {state['students']}, but this population "
                f"has {list(self.teachers)} and {list(self.students)}. Build it with the same members."
            )
        self._ratings = {name: Rating(*state["ratings"][name]) for name in self._ratings}
        for name in ("games", "wins", "forfeits"):
            setattr(self, name, np.array(state[name], dtype=np.int64).reshape(self.games.shape))
        self._types, self._recent = set(state["types"]), np.array(state["recent"]).reshape(self._recent.shape)
        self._proposals = {name: tuple(state["proposals"][name]) for name in self.teachers}
        self.correlations.load_state_dict(state["correlations"])
        self.validity.load_state_dict(state["validity"])


def _with_forfeits(skill: Rating, level: float, proposals: float, invalid: float) -> Rating:
    """The rating at which a member would win as often without forfeits against the mean student.

    With f the share of invalid proposals, P(win) is (1 - f) Phi(z) where z is the skill's distance from the level in
    performance deviations. The standard deviation is that of both parts, to first order.
    """
    scale = math.sqrt(2) * BETA
    f = invalid / (proposals + 1)  # below 1, so that the rating stays finite
    deviation = math.sqrt((invalid + 0.5) * (proposals - invalid + 0.5) / (proposals + 2)) / (proposals + 1)
    z = (skill.mu - level) / scale
    y = float(ndtri(max((1 - f) * ndtr(z), 1e-300)))
    ratio = math.exp((y * y - z * z) / 2)  # of the normal densities at z and at y
    by_share = scale * float(ndtr(z)) * math.sqrt(2 * math.pi) * math.exp(y * y / 2)
    return Rating(level + scale * y, math.hypot((1 - f) * ratio * skill.sigma, by_share * deviation))
