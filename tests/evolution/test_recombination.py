"""Recombination: every member of a role gets the mean update, in its own frame."""

import pytest
import torch
from toy_adapters import delta

from tests.tiny import lora, tiny_population
from trl_populora.evolution import NotFiniteError, cosine, recombine


def updates(population, names):
    return {name: {path: delta(factor).clone() for path, factor in population.factors(name).items()} for name in names}


def population_of(teachers, students, rank=4):
    """Members that adapt differently, with updates of rank 2 at most, so that the mean of two fits into rank 4."""
    population = tiny_population(teachers, students, lora_config=lora(rank))
    for name in population.names():
        for factor in population.factors(name).values():
            factor.B[:, rank // 2 :] = 0  # factors share the memory of the parameters
    return population


def test_members_of_a_role_get_its_mean_and_other_roles_stay():
    population = population_of(1, 2)
    before, rows = updates(population, population.names()), population.factors("student_0")
    kept = {path: factor.A.clone() for path, factor in rows.items()}
    assert recombine(population) == ("student_0", "student_1")
    after = updates(population, population.names())
    for path, first in before["student_0"].items():
        mean = (first + before["student_1"][path]) / 2
        for name in ("student_0", "student_1"):
            assert torch.allclose(after[name][path], mean, atol=1e-5 * float(mean.abs().max())), (name, path)
        assert torch.equal(after["teacher_0"][path], before["teacher_0"][path])
    assert [member.version for member in population.values()] == [0, 0, 0]
    assert any(torch.equal(kept[path], factor.A) is False for path, factor in rows.items())


def test_once_more_changes_nothing_and_frames_stay_apart():
    population = population_of(2, 2)
    recombine(population)
    once = updates(population, population.names())
    frames = {name: population.factors(name) for name in population.names("student")}
    assert not all(torch.allclose(A, frames["student_1"][path].A) for path, (A, _, _) in frames["student_0"].items())
    assert cosine(*frames.values()) == pytest.approx(1)
    recombine(population)
    for name, own in updates(population, population.names()).items():
        for path, update in own.items():
            assert torch.allclose(update, once[name][path], atol=1e-5 * float(update.abs().max()))


def test_a_mean_of_more_directions_than_the_rank_is_the_nearest():
    population = tiny_population(1, 3, lora_config=lora(2))
    before = updates(population, population.names("student"))
    recombine(population)
    for path, update in updates(population, ["student_2"])["student_2"].items():
        mean = sum(own[path] for own in before.values()) / 3
        U, s, Vt = torch.linalg.svd(mean, full_matrices=False)
        nearest = U[:, :2] * s[:2] @ Vt[:2]
        assert torch.allclose(update, nearest, atol=1e-4 * float(mean.abs().max()))


def test_islands_have_means_of_their_own():
    population = population_of(1, 4)
    recombine(population, islands=2)
    own = {name: population.factors(name) for name in population.names("student")}
    assert cosine(own["student_0"], own["student_1"]) == pytest.approx(1)
    assert cosine(own["student_2"], own["student_3"]) == pytest.approx(1)
    assert cosine(own["student_1"], own["student_2"]) < 0.9


def test_a_role_that_is_not_named_stays():
    population = population_of(2, 2)
    before = updates(population, population.names("teacher"))
    assert recombine(population, roles=["student"]) == ("student_0", "student_1")
    for name, own in updates(population, population.names("teacher")).items():
        assert all(torch.equal(update, before[name][path]) for path, update in own.items())


def test_a_mean_that_is_not_finite_stops_it_before_anything_is_written():
    population = population_of(4, 4)
    for A, B, _ in population.factors("student_3").values():
        A.fill_(1e30)
        B.fill_(1e30)
    kept = updates(population, population.names())
    with pytest.raises(NotFiniteError, match="the mean of student_2, student_3 is not finite"):
        recombine(population, islands=2)
    for name, own in updates(population, population.names()).items():
        assert all(torch.equal(update, kept[name][path]) for path, update in own.items()), name


def test_a_member_that_is_not_finite_stops_it_before_anything_is_written():
    population = population_of(4, 4)
    next(iter(population.factors("student_3").values())).B.fill_(float("inf"))
    finite = [name for name in population.names() if name != "student_3"]
    kept = updates(population, finite)
    with pytest.raises(ValueError, match="finite"):
        recombine(population, islands=2)
    for name, own in updates(population, finite).items():
        assert all(torch.equal(update, kept[name][path]) for path, update in own.items()), name
