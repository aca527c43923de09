import json

import numpy as np
import pytest

from trl_populora.diagnostics.coverage import CoverageArchive, centroids, task_features


IDENTITY = "def f(x):\n    return x"
LARGE = "def f(x):\n" + "    if x:\n        x = [y for y in range(len(str(x)))]\n" * 12 + "    return x"


def test_centroids_are_fixed_and_lie_in_the_cube():
    centres = centroids(64, 3)
    assert centres.shape == (64, 4)
    assert centres.min() >= 0 and centres.max() <= 1
    centroids.cache_clear()
    assert np.array_equal(centres, centroids(64, 3))
    assert not np.array_equal(centres, centroids(64, 4))
    with pytest.raises(ValueError):
        centres[0, 0] = 2


def test_features_grow_with_the_program_and_stay_in_the_cube():
    low, high = task_features(IDENTITY, ["1"]), task_features(LARGE, ["[" + "1, " * 900 + "]"])
    assert (low == 0).all()
    assert (high > low).all() and (high <= 1).all()
    assert task_features("def f(:", ["1"]) is None


def test_cells_are_opened_once_and_counted_per_author():
    archive = CoverageArchive(64)
    assert archive.add(IDENTITY, ["1"], author="teacher_0", step=1)
    assert not archive.add(IDENTITY, ["2"], author="teacher_1", step=2)
    assert archive.add(LARGE, ["[]"], author="teacher_1", step=3)
    assert not archive.add("def f(:", ["1"], author="teacher_1", step=3)
    assert archive.filled == 2
    assert archive.filled_by_author == {"teacher_0": 1, "teacher_1": 2}


def test_state_survives_json_and_refuses_another_tessellation():
    archive = CoverageArchive(64)
    archive.add(IDENTITY, ["1"], author="teacher_0", step=1)
    state = json.loads(json.dumps(archive.state_dict()))
    copy = CoverageArchive(64)
    copy.load_state_dict(state)
    assert copy.state_dict() == archive.state_dict()
    assert not copy.add(IDENTITY, ["1"], author="teacher_0", step=2)
    with pytest.raises(ValueError, match="cells=64, seed=0"):
        CoverageArchive(64, seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match="cells=0"):
        CoverageArchive(0)
