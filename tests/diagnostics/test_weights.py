"""Measures of the members' weights against dense matrices."""

import math
from itertools import combinations

import pytest
import torch

from tests.tiny import tiny_population
from trl_populora.diagnostics import RoundSummary, round_metrics
from trl_populora.diagnostics.dynamics import MemberSummary
from trl_populora.diagnostics.weights import measure_weights
from trl_populora.evolution.factors import cosine, effective_rank, spectra


@pytest.fixture
def roles():
    population = tiny_population(3, 2)
    return {
        "teachers": {name: population.factors(name) for name in population.teachers},
        "students": {name: population.factors(name) for name in population.students},
    }


def measured(roles):
    """The summary with the measures, and its members by name."""
    members = tuple(
        MemberSummary(name, role[:-1], 0, 0.0, None, None, 25.0, 8.0, 1.0, 4, 4)
        for role in roles
        for name in roles[role]
    )
    names = tuple(tuple(roles.get(role, ())) for role in ("teachers", "students"))
    empty = RoundSummary(0, 0, members, *names, games=((0, 0),) * 3, wins=((0, 0),) * 3)
    assert not any("cosine" in name or "norm" in name for name in round_metrics(empty))
    summary = measure_weights(empty, roles)
    return summary, {member.name: member for member in summary.members}


def dense(factors):
    return torch.cat([f.scaling * (f.B.double() @ f.A.double()).flatten() for f in factors.values()])


def test_norms_ranks_and_cosines_are_those_of_the_dense_updates(roles):
    summary, found = measured(roles)
    for members in roles.values():
        for name, factors in members.items():
            assert found[name].delta_norm == pytest.approx(float(dense(factors).norm()), rel=1e-6)
            ranks = [float(effective_rank(spectrum.s)) for spectrum in spectra([factors]).values()]
            assert found[name].effective_rank == pytest.approx(sum(ranks) / len(ranks), rel=1e-9)
    for role, members in roles.items():
        pairs = [cosine(a, b) for a, b in combinations(members.values(), 2)]
        facts = {"mean": sum(pairs) / len(pairs), "min": min(pairs), "max": max(pairs)}
        assert summary.cosines[role] == pytest.approx(facts, abs=1e-9)
        a, b = [dense(factors) for factors in members.values()][:2]
        assert pairs[0] == pytest.approx(float(torch.cosine_similarity(a, b, dim=0)), abs=1e-6)


def test_fresh_equal_and_diverged_members(roles):
    teachers = roles["teachers"]
    for factor in teachers["teacher_0"].values():
        factor.B.zero_()
    next(iter(teachers["teacher_1"].values())).A.fill_(math.nan)
    roles["students"]["student_1"] = roles["students"]["student_0"]
    summary, found = measured(roles)
    assert found["teacher_0"].delta_norm == found["teacher_0"].effective_rank == 0
    assert found["teacher_1"].delta_norm is found["teacher_1"].effective_rank is None
    assert summary.cosines["teachers"] == {"mean": 0, "min": 0, "max": 0}  # between a fresh one and another
    assert summary.cosines["students"]["min"] == pytest.approx(1)
    alone = {"agents": {"agent_0": roles["students"]["student_0"]}}
    assert measured(alone)[0].cosines == {}


def test_they_go_into_the_log(roles):
    summary, found = measured(roles)
    logged = round_metrics(summary)
    assert logged["weights/delta_norm/teacher_2"] == found["teacher_2"].delta_norm
    assert logged["students/weights/cosine_max"] == summary.cosines["students"]["max"]
    own = [found[name].effective_rank for name in roles["students"]]
    assert logged["students/weights/effective_rank"] == pytest.approx(sum(own) / 2)
