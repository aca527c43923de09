"""Coverage of the task space: a CVT archive that records which kinds of tasks have appeared.

A centroidal Voronoi tessellation divides the space of four normalised features into 1,024 cells. Their centres never
change, so counts can be compared between runs. Rewards and wins are not used here.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np


CELLS = 1_024
DIMENSIONS = 4


class CoverageArchive:
    """Records which cells of the task space have been visited, by which author, and when. (The cells are our choice.)

    Args:
        cells (`int`, *optional*, defaults to 1,024): Number of centroids.
        seed (`int`, *optional*, defaults to 0): Seed of the tessellation. Keep both to compare runs.

    Example:
        ```python
        >>> archive = CoverageArchive()
        >>> archive.add((0.1, 0.5, 0.0, 0.2), author="teacher_0", step=1)
        >>> archive.filled
        1
        ```
    """

    def __init__(self, cells: int = CELLS, *, seed: int = 0) -> None:
        if cells < 1:
            raise ValueError(f"cells={cells}: a coverage archive needs at least one cell")
        self.cells, self.seed = cells, seed
        self._first_visit: dict[int, tuple[str, int]] = {}  # cell -> (author, step) of its first task
        self._by_author: dict[str, set[int]] = {}

    @property
    def filled(self) -> int:
        """Cells that hold at least one task."""
        return len(self._first_visit)

    @property
    def filled_by_author(self) -> dict[str, int]:
        """Author -> number of cells that this author has visited."""
        return {author: len(cells) for author, cells in sorted(self._by_author.items())}

    def add(self, point: Sequence[float], *, author: str, step: int) -> None:
        """Adds one task by its position in the unit cube, of shape `(4,)`."""
        cell = int(np.argmin(((centroids(self.cells, self.seed) - np.asarray(point)) ** 2).sum(axis=1)))
        self._by_author.setdefault(author, set()).add(cell)
        self._first_visit.setdefault(cell, (author, step))

    def state_dict(self) -> dict:
        """The visited cells, as data for JSON."""
        return {
            "cells": self.cells,
            "seed": self.seed,
            "first_visit": {str(cell): list(visit) for cell, visit in self._first_visit.items()},
            "by_author": {author: sorted(cells) for author, cells in self._by_author.items()},
        }

    def load_state_dict(self, state: Mapping) -> None:
        """Take over a `state_dict`.

        Raises:
            ValueError: If it belongs to another tessellation.
        """
        if (state["cells"], state["seed"]) != (self.cells, self.seed):
            raise ValueError(
                f"the coverage archive was saved with cells={state['cells']}, seed={state['seed']}, and this one has "
                f"cells={self.cells}, seed={self.seed}; build it with the saved values"
            )
        self._first_visit = {int(cell): (author, int(step)) for cell, (author, step) in state["first_visit"].items()}
        self._by_author = {author: set(cells) for author, cells in state["by_author"].items()}


@lru_cache(maxsize=4)
def centroids(cells: int = CELLS, seed: int = 0) -> np.ndarray:
    """Centres of the tessellation, shape (cells, 4), made by Lloyd's algorithm on uniform points of the unit cube.

    The generator and the number of iterations are fixed: the same arguments give the same centres on every machine,
    up to the last bits of the floating-point sums.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    points = rng.random((cells * 16, DIMENSIONS))
    centres = points[:cells].copy()
    for _ in range(8):
        nearest = _nearest(points, centres)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        counts = np.bincount(nearest, minlength=cells)
        occupied = counts > 0
        centres[occupied] = sums[occupied] / counts[occupied, None]
    centres.flags.writeable = False
    return centres


def _nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    # |p - c|^2 = |p|^2 - 2 p.c + |c|^2, and |p|^2 is the same for every centre.
    return np.concatenate(
        [np.argmin((centres**2).sum(axis=1) - 2 * chunk @ centres.T, axis=1) for chunk in np.array_split(points, 16)]
    )
