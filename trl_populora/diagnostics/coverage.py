"""Coverage of the task space: a CVT archive that records which kinds of tasks have appeared.

A centroidal Voronoi tessellation divides the space of four normalised features into 1,024 cells. Their centres never
change, so counts can be compared between runs. Rewards and wins are not used here.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from scipy.cluster.vq import kmeans2


CELLS = 1_024
DIMENSIONS = 4


class CoverageArchive:
    """Records which cells of the task space have been visited, by which author, and when. (The cells are our choice.)

    Example:
        ```python
        >>> archive = CoverageArchive()
        >>> archive.add((0.1, 0.5, 0.0, 0.2), author="teacher_0", step=1)
        >>> archive.filled
        1
        ```
    """

    def __init__(self) -> None:
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
        cell = int(np.argmin(((centroids() - np.asarray(point)) ** 2).sum(axis=1)))
        self._by_author.setdefault(author, set()).add(cell)
        self._first_visit.setdefault(cell, (author, step))

    def state_dict(self) -> dict:
        """The visited cells, as data for JSON."""
        return {
            "first_visit": {str(cell): list(visit) for cell, visit in self._first_visit.items()},
            "by_author": {author: sorted(cells) for author, cells in self._by_author.items()},
        }

    def load_state_dict(self, state: Mapping) -> None:
        """Take over a `state_dict`."""
        self._first_visit = {int(cell): (author, int(step)) for cell, (author, step) in state["first_visit"].items()}
        self._by_author = {author: set(cells) for author, cells in state["by_author"].items()}


@lru_cache(maxsize=1)
def centroids() -> np.ndarray:
    """Centres of the tessellation, shape (1024, 4), made by Lloyd's algorithm on uniform points of the unit cube.

    Points and number of iterations are fixed: the centres are the same on every machine, up to the last bits of the
    floating-point sums.
    """
    points = np.random.Generator(np.random.PCG64(0)).random((CELLS * 16, DIMENSIONS))
    centres, _ = kmeans2(points, points[:CELLS].copy(), iter=8, minit="matrix")
    centres.flags.writeable = False
    return centres
