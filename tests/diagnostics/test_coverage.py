import json

import numpy as np
import pytest
from scipy.spatial import cKDTree

from trl_populora.diagnostics.coverage import CoverageArchive, centroids


HERE, NEAR, FAR = (0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.01), (1.0, 1.0, 1.0, 0.5)


@pytest.mark.slow
def test_centroids_are_fixed_and_lie_in_the_cube():
    centres = centroids()
    assert centres.shape == (1024, 4)
    assert centres.min() >= 0 and centres.max() <= 1
    centroids.cache_clear()
    assert np.array_equal(centres, centroids())
    with pytest.raises(ValueError):
        centres[0, 0] = 2


def test_cells_are_about_equally_large():
    points = np.random.default_rng(1).random((200_000, 4))
    counts = np.bincount(cKDTree(centroids()).query(points)[1], minlength=1024)
    assert counts.std() < 0.35 * counts.mean()


def test_cells_are_opened_once_and_counted_per_author():
    archive = CoverageArchive()
    for count, author, place in ((1, "teacher_0", HERE), (1, "teacher_1", NEAR), (2, "teacher_1", FAR)):
        archive.add(place, author=author, step=count)
        assert archive.filled == count
    assert archive.filled_by_author == {"teacher_0": 1, "teacher_1": 2}


def test_state_survives_json():
    archive = CoverageArchive()
    archive.add(HERE, author="teacher_0", step=1)
    state = json.loads(json.dumps(archive.state_dict()))
    copy = CoverageArchive()
    copy.load_state_dict(state)
    assert copy.state_dict() == archive.state_dict()
    copy.add(HERE, author="teacher_0", step=2)
    assert copy.state_dict() == state


def test_cells_are_those_of_earlier_releases():
    """Otherwise the coverage of runs could not be compared. A change here needs a new seed and a line in HISTORY."""
    centres = centroids()
    np.testing.assert_allclose(centres[0], [0.617888, 0.275188, 0.048314, 0.04532], atol=1e-5)
    np.testing.assert_allclose(centres[-1], [0.938989, 0.315758, 0.541019, 0.310242], atol=1e-5)
    np.testing.assert_allclose(centres.sum(), 2036.98044, atol=1e-3)
