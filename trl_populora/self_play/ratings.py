"""TrueSkill ratings of teachers and students, and the tally of who beat whom.

Ratings only: how they steer matchmaking is in `pairing`, how they steer replacement is in `evolution`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import trueskill
from scipy.special import ndtr


MU = 25.0
SIGMA = MU / 3
BETA = SIGMA / 2
TAU = SIGMA / 100
_GAME = trueskill.TrueSkill(mu=MU, sigma=SIGMA, beta=BETA, tau=TAU, draw_probability=0.0)


@dataclass(frozen=True)
class Rating:
    """Belief about a member's skill: a normal distribution.

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
    """Outcome of one pairing in one round. Every attempt at a valid task of the teacher is a unit game.

    Attributes:
        teacher (`str`): Member that proposed.
        student (`str`): Member that solved.
        games (`int`): Attempts.
        student_wins (`int`): Attempts that solved the task; the teacher wins the others.
    """

    teacher: str
    student: str
    games: int
    student_wins: int

    def __post_init__(self):
        if not 0 <= self.student_wins <= self.games:
            raise ValueError(
                f"A match needs 0 <= student_wins <= games, got student_wins={self.student_wins} and "
                f"games={self.games} for {self.teacher!r} against {self.student!r}."
            )


class Ratings:
    """Ratings of a two-sided population, and its teachers x students tally.

    Args:
        teachers (`Sequence[str]`): Names of the teachers, in row order.
        students (`Sequence[str]`): Names of the students, in column order.

    Attributes:
        games (`np.ndarray` of shape `(T, S)`): Unit games played by the present occupants of both slots.
        wins (`np.ndarray` of shape `(T, S)`): Those of them that the student won.

    Raises:
        ValueError: If a name appears twice.

    TrueSkill (Herbrich et al., 2006) with mu 25, sigma 25/3, beta 25/6, tau 25/300 and no draws. Teachers meet
    students only, so the common level of all ratings is free; [`Ratings.update`] keeps their mean at 25 (our choice).
    """

    def __init__(self, teachers: Sequence[str], students: Sequence[str]):
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

    def __getitem__(self, name: str) -> Rating:
        try:
            return self._ratings[name]
        except KeyError:
            raise ValueError(f"No member is called {name!r}; the members are {list(self._ratings)}.") from None

    def fitness(self, name: str) -> float:
        """`mu - 3 sigma` of a member, a relative fitness measured against the other side."""
        return self[name].fitness

    def win_probability(self, i: str, j: str) -> float:
        """P(i beats j) = Phi((mu_i - mu_j) / sqrt(2 beta^2 + sigma_i^2 + sigma_j^2)), for any two members."""
        a, b = self[i], self[j]
        return float(ndtr((a.mu - b.mu) / math.sqrt(2 * BETA**2 + a.sigma**2 + b.sigma**2)))

    def win_probabilities(self) -> np.ndarray:
        """P(teacher beats student) of every pair, shape `(T, S)`."""
        rows = [[self.win_probability(teacher, student) for student in self.students] for teacher in self.teachers]
        return np.array(rows).reshape(self.games.shape)

    @property
    def residual(self) -> np.ndarray:
        """Observed minus predicted win rate of the teachers, shape `(T, S)`; NaN where no game was played.

        Ratings are a one-dimensional summary of the tally; what they miss (a teacher that one student alone finds
        hard) shows here.
        """
        with np.errstate(invalid="ignore"):
            return 1 - self.wins / self.games - self.win_probabilities()

    def update(self, matches: Iterable[Match]) -> None:
        """Rates one round, then shifts all means so that their average over all members is 25 again.

        Args:
            matches (`Iterable[Match]`): The round's matches, in any order: the result does not depend on it.

        Raises:
            ValueError: If a match names a member that does not exist or plays the other role.

        TrueSkill depends on the order of games, so the order is fixed: matches of one pair are added up, the wins of
        a pair are spread evenly over its games, and game `k` of a pair of `n` games is played at time `(k + 1/2) / n`
        of the round, ties in the order of teachers and then students. Each unit game is one update
        of the `trueskill` package, which does some thousands a second: a round of 4,096 games takes about a second.
        """
        tally: dict[tuple[int, int], list[int]] = {}
        for match in matches:
            if match.teacher not in self._row or match.student not in self._column:
                raise ValueError(
                    f"A match needs a teacher of {self.teachers} and a student of {self.students}, "
                    f"got {match.teacher!r} against {match.student!r}."
                )
            total = tally.setdefault((self._row[match.teacher], self._column[match.student]), [0, 0])
            total[0] += match.games
            total[1] += match.student_wins

        belief = {name: _GAME.create_rating(rating.mu, rating.sigma) for name, rating in self._ratings.items()}
        for _, row, column, student_won in _schedule(tally):
            teacher, student = self.teachers[row], self.students[column]
            winner, loser = (student, teacher) if student_won else (teacher, student)
            belief[winner], belief[loser] = trueskill.rate_1vs1(belief[winner], belief[loser], env=_GAME)
        shift = MU - math.fsum(rating.mu for rating in belief.values()) / len(belief)
        self._ratings = {name: Rating(rating.mu + shift, rating.sigma) for name, rating in belief.items()}

        for (row, column), (games, wins) in tally.items():
            self.games[row, column] += games
            self.wins[row, column] += wins

    def inherit(self, child: str, parents: Sequence[str]) -> Rating:
        """Gives the new occupant of a slot its starting rating and an empty tally.

        Args:
            child (`str`): The slot whose member was replaced.
            parents (`Sequence[str]`): Its parents; the slot itself may be among them.

        Returns:
            `Rating`: mean mu of the parents, sigma = max(parents' sigma, half the prior) (our choice).
        """
        if not parents:
            raise ValueError(f"{child!r} needs at least one parent to inherit a rating from.")
        self[child]
        ratings = [self[parent] for parent in parents]
        mu = math.fsum(rating.mu for rating in ratings) / len(ratings)
        sigma = max(SIGMA / 2, *(rating.sigma for rating in ratings))
        self._ratings[child] = Rating(mu, sigma)
        record = (self._row[child], slice(None)) if child in self._row else (slice(None), self._column[child])
        self.games[record] = 0
        self.wins[record] = 0
        return self._ratings[child]

    def state_dict(self) -> dict:
        """State as plain data that survives JSON without loss."""
        return {
            "teachers": list(self.teachers),
            "students": list(self.students),
            "ratings": {name: [rating.mu, rating.sigma] for name, rating in self._ratings.items()},
            "games": self.games.tolist(),
            "wins": self.wins.tolist(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Restores what [`Ratings.state_dict`] gave; refuses a state of other members."""
        if (tuple(state["teachers"]), tuple(state["students"])) != (self.teachers, self.students):
            raise ValueError(
                f"The state rates teachers {state['teachers']} and students {state['students']}, but this population "
                f"has {list(self.teachers)} and {list(self.students)}. Build it with the same members."
            )
        self._ratings = {name: Rating(*state["ratings"][name]) for name in self._ratings}
        self.games = np.array(state["games"], dtype=np.int64).reshape(self.games.shape)
        self.wins = np.array(state["wins"], dtype=np.int64).reshape(self.wins.shape)


def _schedule(tally: dict[tuple[int, int], list[int]]) -> list[tuple[float, int, int, bool]]:
    """Unit games of a round as `(time, teacher row, student column, student won)`, in playing order."""
    schedule = []
    for (row, column), (games, wins) in tally.items():
        for k in range(games):
            won = ((k + 1) * wins + games // 2) // games > (k * wins + games // 2) // games
            schedule.append(((k + 0.5) / games, row, column, won))
    return sorted(schedule)
