"""Frozen champions of the past. `self_play` decides which games they play."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from safetensors.torch import load_file, save_file

from trl_populora.population.factors import Factors, from_tensors, on_cpu, to_tensors
from trl_populora.run_files.files import read_json, write_file, write_json
from trl_populora.run_files.layout import HALL_FILE, champion_file

from .selection import Candidate, ranking


@dataclass(frozen=True)
class Champion:
    """A frozen copy of a member.

    Attributes:
        name (`str`): Slot of the member.
        role (`str`): Its role.
        version (`int`): Version of the member.
        step (`int`): Training step of the copy.
        fitness (`float`): Its fitness at that step, relative to its opponents at the time.
        factors (`Factors`): Its weights, on the CPU.
        temperature (`float`): Its sampling temperature as a multiple of the run's.
    """

    name: str
    role: str
    version: int
    step: int
    fitness: float
    factors: Factors
    temperature: float = 1.0

    @property
    def title(self) -> str:
        """Slot and version, such as `"teacher_1@3"`."""
        return f"{self.name}@{self.version}"


class HallOfFame:
    """Past champions of each role (Rosin and Belew, 1997). They help members not to forget how to beat old strategies.

    Args:
        capacity (`int`, *optional*, defaults to `8`):
            Number of champions to keep per role. When it is full, a new champion replaces the one whose neighbours in
            time are closest together, but never the first or the newest. So the champions are spread over the whole
            run (our choice).
    """

    def __init__(self, capacity: int = 8) -> None:
        if capacity < 2:
            raise ValueError(f"capacity counts champions per role and is at least 2, got {capacity}.")
        self.capacity = capacity
        self._champions: list[Champion] = []

    def __iter__(self) -> Iterator[Champion]:
        return iter(self._champions)

    def __len__(self) -> int:
        return len(self._champions)

    def of(self, role: str) -> list[Champion]:
        """Champions of a role, oldest first."""
        return [champion for champion in self._champions if champion.role == role]

    def enter(self, population: Any, ratings: Any, *, step: int) -> None:
        """Adds a copy of the fittest member of each role. Called at every evolution step, before replacement.

        Args:
            population (`Population`): Members and factors. ratings (`Ratings`): Their fitness.
            step (`int`): Training step.
        """
        for role in dict.fromkeys(population[name].role for name in population.names()):
            best = ranking([Candidate(name, ratings.fitness(name)) for name in population.names(role)])[0]
            member, factors = population[best.name], population.factors(best.name)
            self.add(Champion(best.name, role, member.version, step, best.fitness, factors, member.temperature))

    def add(self, original: Champion) -> None:
        """Adds a copy of a member.

        Raises:
            ValueError: If its role already has a champion of this step or a later one.
        """
        role, step = original.role, original.step
        others = self.of(role)
        if others and others[-1].step >= step:
            raise ValueError(
                f"The newest {role} in the hall of fame is of step {others[-1].step}; got one of step {step}. Add "
                "champions in the order of time."
            )
        self._champions.append(replace(original, factors=on_cpu(original.factors)))
        self._thin(role)

    def _thin(self, role: str) -> None:
        while len(champions := self.of(role)) > self.capacity:
            gaps = [after.step - before.step for before, after in zip(champions, champions[2:])]
            self._champions.remove(champions[1 + gaps.index(min(gaps))])

    def sample(self, role: str, rng: random.Random) -> Champion | None:
        """A random champion of a role, all equally likely; `None` if there is none."""
        champions = self.of(role)
        return rng.choice(champions) if champions else None

    def save(self, folder: str | os.PathLike) -> None:
        """Writes a table and one safetensors file per champion, and deletes files of dropped champions."""
        rows = []
        for champion in self._champions:
            row = {name: value for name, value in vars(champion).items() if name != "factors"}
            row["scalings"] = {path: factor.scaling for path, factor in champion.factors.items()}
            rows.append(row)
            tensors = {name: X.contiguous() for name, X in to_tensors(champion.factors).items()}
            write_file(os.path.join(folder, champion_file(row)), partial(save_file, tensors))
        write_json(os.path.join(folder, HALL_FILE), {"capacity": self.capacity, "champions": rows})
        for name in {*os.listdir(folder)} - {HALL_FILE, *map(champion_file, rows)}:
            os.remove(os.path.join(folder, name))

    @classmethod
    def load(cls, folder: str | os.PathLike, *, capacity: int | None = None) -> "HallOfFame":
        """Reads the files of [`HallOfFame.save`]; champions beyond another `capacity` are dropped.

        Raises:
            ValueError: If the folder holds no hall of fame.
        """
        table = read_json(os.path.join(folder, HALL_FILE), missing="no hall of fame was saved there.")
        hall = cls(capacity or table["capacity"])
        for row in table["champions"]:
            tensors = load_file(os.path.join(folder, champion_file(row)))
            factors = from_tensors(tensors, row.pop("scalings"))
            hall._champions.append(Champion(**row, factors=factors))
        for role in {champion.role for champion in hall}:
            hall._thin(role)
        return hall
