import math
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_adapters import SHAPES, assert_same_bits, assert_same_delta, delta, factor_svd, make_factors, regauge

from tests.drawn_examples import drawn, examples
from trl_populora.evolution.factors import cosine, delta_norm
from trl_populora.evolution.gauge import align
from trl_populora.evolution.inheritance import draw_seed, layer_of
from trl_populora.evolution.operators import CROSSOVERS, MUTATIONS, OPERATORS, Operator, breed
from trl_populora.population.factors import Factor, Factors


NAMES = list(OPERATORS)
seeds = st.integers(0, 2**32 - 1)


def parents_of(name: str, seed: int, **options) -> list[Factors]:
    return [make_factors(seed + i, **options) for i in range(OPERATORS[name].num_parents)]


def svds(factors: Factors) -> dict:
    return {path: factor_svd(factor) for path, factor in factors.items()}


@pytest.mark.every(3)
@pytest.mark.parametrize("name", NAMES)
@examples(12)
@given(
    seed=seeds,
    rank=st.integers(1, 10),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    fresh=st.lists(st.booleans(), min_size=2, max_size=2),
)
def test_child_keeps_the_form_of_parent_1_and_leaves_parents_alone(name, seed, rank, dtype, fresh):
    parents = [
        make_factors(seed + i, rank=rank, dtype=dtype, fresh=fresh[i]) for i in range(OPERATORS[name].num_parents)
    ]
    copies = [{path: Factor(A.clone(), B.clone(), c) for path, (A, B, c) in parent.items()} for parent in parents]
    child = breed(name, parents, seed=seed)
    assert list(child) == list(parents[0])
    for path, factor in child.items():
        like = parents[0][path]
        assert (factor.A.shape, factor.B.shape) == (like.A.shape, like.B.shape)
        assert (factor.A.dtype, factor.B.dtype, factor.scaling) == (dtype, dtype, like.scaling)
        assert torch.isfinite(factor.A).all() and torch.isfinite(factor.B).all()
        # A direction that is zero in both factors could never learn. (dare may drop all of so small a matrix.)
        alive = (factor.A != 0).any(dim=1) | (factor.B != 0).any(dim=0)
        assert alive.all() or name == "dare"
    for parent, copy in zip(parents, copies, strict=True):
        assert_same_bits(parent, copy)
    storages = {X.data_ptr() for parent in parents for factor in parent.values() for X in factor[:2]}
    assert not storages & {X.data_ptr() for factor in child.values() for X in factor[:2]}


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_child_whatever_the_order_of_dicts(name):
    parents = parents_of(name, 5)
    shuffled = [dict(reversed(parents[0].items())), *parents[1:]]
    child = breed(name, parents, seed=3)
    assert_same_bits(child, breed(name, parents, seed=3))
    other = breed(name, shuffled, seed=3)
    assert list(other) == list(shuffled[0])
    assert_same_bits(child, {path: other[path] for path in child})


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_rounding_of_parents_is_rounding_of_the_child(name, fresh):
    """In both factors: another machine, or another number of processes, rounds a parent in another way."""
    rng = torch.Generator().manual_seed(0)

    def rounded(factors):
        noise = [[1 + 1e-7 * torch.randn(X.shape, generator=rng) for X in factor[:2]] for factor in factors.values()]
        return {
            path: Factor(A * a, B * b, scaling)
            for (path, (A, B, scaling)), (a, b) in zip(factors.items(), noise, strict=True)
        }

    for seed in range(20):
        parents = parents_of(name, seed, fresh=fresh)
        children = [breed(name, own, seed=seed) for own in (parents, [rounded(parent) for parent in parents])]
        for path in parents[0]:
            for X, Y in zip(*(child[path][:2] for child in children), strict=True):
                assert float((X - Y).abs().max()) <= 1e-4 * float(X.abs().max()), (path, seed)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("average", "clone")])
def test_seeds_matter(name):
    parents = parents_of(name, 5)
    children = [breed(name, parents, seed=seed) for seed in range(8)]
    assert len({tuple(X.sum().item() for f in child.values() for X in f[:2]) for child in children}) > 1


@pytest.mark.parametrize("name", ["svd_structured", "component_masking", "svd_subspace", "extrapolative", "average"])
@examples(20)
@given(seed=seeds, rank=st.integers(1, 4))
def test_delta_space_operators_do_not_see_the_gauge(name, seed, rank):
    parents = parents_of(name, seed, rank=rank, dtype=torch.float64)
    regauged = [regauge(parent, seed + 10 + i) for i, parent in enumerate(parents)]
    assert_same_delta(breed(name, parents, seed=seed), breed(name, regauged, seed=seed), tolerance=1e-5)


def test_layerwise_does_not_see_the_gauge():
    parents = parents_of("layerwise", 1)
    regauged = [regauge(parent, 7) for parent in parents]
    assert_same_delta(breed("layerwise", parents, seed=0), breed("layerwise", regauged, seed=0))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("svd_structured", {"eps": 0.0}),
        ("layer_gaussian", {"eps": 0.0}),
        ("layer_gaussian", {"fraction": 0.0}),
        ("component_masking", {"rho": 0.0}),
        ("gaussian", {"eps": 0.0}),
        ("neftune", {"eps": 0.0}),
        ("neftune", {"alpha_n": 0.0}),
        ("extrapolative", {"eta_min": 1.0, "eta_max": 1.0}),
        ("clone", {}),
    ],
)
@pytest.mark.parametrize("fresh", [False, True])
def test_strength_zero_is_the_parent(name, parameters, fresh):
    parents = [make_factors(1, fresh=fresh), make_factors(2)][: OPERATORS[name].num_parents]
    assert_same_delta(breed(name, parents, seed=0, parameters=parameters), parents[0])


def test_extrapolative_at_eta_0_is_the_worse_parent():
    better, worse = parents_of("extrapolative", 3)
    child = breed("extrapolative", [better, worse], seed=0, parameters={"eta_min": 0.0, "eta_max": 0.0})
    assert_same_delta(child, worse)


@pytest.mark.parametrize("name", ["layerwise", "svd_subspace", "extrapolative", "average"])
@examples(15)
@given(seed=seeds, rank=st.integers(1, 8))
def test_crossing_a_parent_with_itself_gives_it_back(name, seed, rank):
    parent = make_factors(seed, rank=rank)
    assert_same_delta(breed(name, [parent, parent], seed=seed), parent)


def test_dare_without_drops_is_the_average():
    parents = make_factors(1), make_factors(2)
    for space in ("delta", "factors"):
        child = breed("dare", parents, seed=0, parameters={"p": 0.0, "space": space})
        assert_same_delta(child, breed("average", parents, seed=0, parameters={"space": space}))
        assert_same_delta(breed("dare", [parents[0]] * 2, seed=0, parameters={"p": 0.0, "space": space}), parents[0])


def test_clone_is_exact():
    parent = make_factors(1, dtype=torch.bfloat16)
    assert_same_bits(breed("clone", [parent], seed=0), parent)


@examples(20)
@given(seed=seeds, eps=st.floats(0.01, 0.5))
def test_m1_stretches_singular_values_and_keeps_the_spaces(seed, eps):
    parent = make_factors(seed, dtype=torch.float64)
    child = svds(breed("svd_structured", [parent], seed=seed, parameters={"eps": eps}))
    rng = torch.Generator().manual_seed(seed)
    torch.randint(2**48, (), generator=rng)  # the seed of rows for directions without a component
    old = svds(parent)
    for path in sorted(parent):
        r = parent[path].A.shape[0]
        z = torch.randn(r, generator=rng, dtype=torch.float64)
        torch.randn(2, r, r, generator=rng, dtype=torch.float64)  # the two rotations come after z
        expected = (old[path].s * torch.exp(eps * z)).sort(descending=True).values
        torch.testing.assert_close(child[path].s, expected, rtol=1e-6, atol=1e-9)
        if old[path].s[old[path].s > 0][-1] > 1e-3 * old[path].s[0]:
            for a, b in ((old[path].U, child[path].U), (old[path].V, child[path].V)):
                torch.testing.assert_close(a @ a.T, b @ b.T, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [2, 8, 32])
def test_m1_turns_by_about_eps_at_any_rank(rank):
    rng = torch.Generator().manual_seed(0)
    A = torch.linalg.qr(torch.randn(64, rank, generator=rng, dtype=torch.float64))[0].T
    B = torch.linalg.qr(torch.randn(64, rank, generator=rng, dtype=torch.float64))[0]
    B = B * torch.linspace(2, 1, rank, dtype=torch.float64)
    parent = {f"layers.{i}": Factor(A, B, 1.0) for i in range(200)}
    old, _, _ = factor_svd(parent["layers.0"])
    angles = []
    for factor in breed("svd_structured", [parent], seed=0, parameters={"eps": 0.1}).values():
        cosines = (old.T @ factor_svd(factor).U).abs().amax(dim=0)  # stretched values may have changed places
        angles.append(torch.arccos(cosines.clamp(max=1)))
    assert float(torch.cat(angles).square().mean().sqrt()) == pytest.approx(0.1, rel=0.15)


@examples(20)
@given(seed=seeds, rho=st.floats(0, 1))
def test_m3_drops_whole_components_and_frees_their_directions(seed, rho):
    parent = make_factors(seed, dtype=torch.float64)
    child = breed("component_masking", [parent], seed=seed, parameters={"rho": rho})
    for path, factor in child.items():
        old, new = factor_svd(parent[path]), factor_svd(factor)
        k = min(*parent[path].A.shape, parent[path].B.shape[0])
        dropped = math.ceil(rho * k - 1e-9)
        kept = [i for i in range(k) if (new.s - old.s[i]).abs().min() < 1e-9 * old.s[0]]
        assert len(kept) == k - dropped
        expected = old.U[:, kept] @ torch.diag(old.s[kept]) @ old.V[:, kept].T
        torch.testing.assert_close(delta(factor), expected, rtol=1e-6, atol=1e-8)
        # Along the dropped components' directions B is 0 and A is drawn anew; elsewhere A is the parent's.
        change = factor.A - parent[path].A
        assert int(torch.linalg.matrix_rank(change, atol=1e-9, rtol=0)) == dropped
        if dropped:
            free = torch.linalg.svd(change, full_matrices=False).U[:, :dropped]
            assert float((factor.B @ free).abs().max()) < 1e-9 * float(parent[path].B.abs().max())


def test_m3_frees_directions_at_the_scale_of_loras_init():
    rng = torch.Generator().manual_seed(0)
    A = torch.randn(16, 300, generator=rng) / math.sqrt(3 * 300)
    parent = {f"layers.{i}": Factor(A, 0.01 * torch.randn(40, 16, generator=rng), 1.0) for i in range(8)}
    fresh = []
    for factor in breed("component_masking", [parent], seed=0, parameters={"rho": 0.5}).values():
        free = torch.linalg.svd(factor.B)[2][8:]
        fresh.append((free @ factor.A).flatten())
        torch.testing.assert_close(factor.A - free.T @ free @ factor.A, A - free.T @ free @ A, rtol=0, atol=1e-5)
    assert float(torch.cat(fresh).std()) == pytest.approx(1 / math.sqrt(3 * 300), rel=0.03)


def test_m2_changes_a_third_of_the_layers():
    parent = {f"model.layers.{i}.{part}": f for i in range(9) for part, f in zip("qv", make_factors(i).values())}
    child = breed("layer_gaussian", [parent], seed=0)
    changed = {layer_of(path) for path in parent if not torch.equal(child[path].A, parent[path].A)}
    assert len(changed) == 3
    for path in parent:
        assert torch.equal(child[path].A, parent[path].A) == (layer_of(path) not in changed)
        assert torch.equal(child[path].B, parent[path].B) == (layer_of(path) not in changed)


@pytest.mark.parametrize(("name", "eps"), [("gaussian", 0.15), ("layer_gaussian", 0.1)])
def test_gaussian_noise_has_its_stated_size(name, eps):
    rng = torch.Generator().manual_seed(0)
    A, B = 3 * torch.randn(16, 500, generator=rng), 0.01 * torch.randn(400, 16, generator=rng)
    parents = {"layers.0": Factor(A, B, 1.0), "layers.1": Factor(A, B * 0, 1.0)}
    child = breed(name, [parents], seed=0, parameters={} if name == "gaussian" else {"fraction": 1.0})
    noise = {path: (child[path].A - parents[path].A, child[path].B - parents[path].B) for path in parents}
    assert float(noise["layers.0"][0].std()) == pytest.approx(3 * eps, rel=0.05)
    assert float(noise["layers.0"][1].std()) == pytest.approx(0.01 * eps, rel=0.05)
    assert not child["layers.1"].B.any()  # a fresh adapter has no dW that noise could be relative to
    flat = {"layers.0": Factor(torch.ones(16, 500), B, 1.0)}
    noise = breed(name, [flat], seed=0, parameters={"fraction": 1.0} if name != "gaussian" else {})["layers.0"].A - 1
    assert float(noise.std()) == pytest.approx(eps / math.sqrt(3 * 500), rel=0.05)


@pytest.mark.parametrize(
    ("parameters", "bound"),
    [
        ({}, 0.3 * math.sqrt(3) * 0.05),
        ({"eps": 2.0}, 2 * math.sqrt(3) * 0.05),
        ({"alpha_n": 10.0}, 10 / math.sqrt(1600)),
    ],
)
def test_m5_noise_is_bounded_and_on_A_only(parameters, bound):
    rng = torch.Generator().manual_seed(0)
    A = torch.randn(8, 200, generator=rng)
    parent = {"layers.0": Factor(A * (0.05 / A.std(correction=0)), torch.randn(50, 8, generator=rng), 1.0)}
    child = breed("neftune", [parent], seed=0, parameters=parameters)["layers.0"]
    noise = child.A - parent["layers.0"].A
    assert 0.99 * bound < float(noise.abs().max()) < bound * (1 + 1e-5)
    assert float(noise.mean()) == pytest.approx(0, abs=0.06 * bound), "to either side"
    assert float(noise.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05), "uniform"
    assert torch.equal(child.B, parent["layers.0"].B)


@examples(10)
@given(seed=seeds, rank=st.integers(2, 16))
def test_mutations_stay_mutations(seed, rank):
    rng = torch.Generator().manual_seed(seed)
    parent = {
        f"layers.{i}.q": Factor(
            torch.randn(rank, 96, generator=rng) / math.sqrt(3 * 96), 1e-3 * torch.randn(64, rank, generator=rng), 2.0
        )
        for i in range(6)
    }
    for name in MUTATIONS:
        if name == "component_masking" and rank < 16:  # one of few components is a large share
            continue
        child = breed(name, [parent], seed=seed + 1)
        assert cosine(child, parent) > 0.9, name
        assert 0.85 < delta_norm(child) / delta_norm(parent) < 1.15, name


@pytest.mark.slow
@pytest.mark.sized
def test_expectation_of_dare_is_the_mean_of_updates():
    first, second = ({"head": make_factors(seed, dtype=torch.float64)["head"]} for seed in (1, 2))
    n, kept = drawn(2000), 0.3
    total = sum(
        delta(breed("dare", [first, second], seed=seed)["head"]) for seed in range(n)
    )  # 4 rows: nothing is cut
    expected = (delta(first["head"]) + delta(second["head"])) / 2
    variance = sum(f.scaling**2 * f.B.square() @ f.A.square() for f in (first["head"], second["head"])) / 4
    assert ((total / n - expected).abs() <= 5 * torch.sqrt(variance * (1 - kept) / kept / n)).all()


@pytest.mark.sized
def test_expectation_of_dare_in_factors_is_the_mean_of_aligned_parents():
    first, second = ({"head": make_factors(seed, dtype=torch.float64)["head"]} for seed in (1, 2))
    parameters = {"space": "factors"}
    draws = [breed("dare", [first, second], seed=seed, parameters=parameters)["head"] for seed in range(drawn(3000))]
    for mean, a, b in zip(
        (torch.stack([d.A for d in draws]).mean(0), torch.stack([d.B for d in draws]).mean(0)),
        first["head"][:2],
        align(second["head"], first["head"])[:2],
    ):
        spread = torch.sqrt((a**2 + b**2) / 4 * 0.7 / 0.3 / len(draws))
        assert ((mean - (a + b) / 2).abs() <= 5 * spread).all()
    kept = torch.cat([torch.cat([d.A.flatten(), d.B.flatten()]) for d in draws])
    assert float((kept == 0).double().mean()) == pytest.approx(0.49, abs=0.02)


@examples(20)
@given(seed=seeds)
def test_x2_takes_whole_blocks(seed):
    parents = parents_of("layerwise", seed)
    child = breed("layerwise", parents, seed=seed)
    donors: dict[str, set] = {}
    for path, factor in child.items():
        donor = [i for i in (0, 1) if torch.equal(factor.A, parents[i][path].A)]
        assert len(donor) == 1 and torch.equal(factor.B, parents[donor[0]][path].B)
        donors.setdefault(layer_of(path), set()).update(donor)
    assert len(donors) == 4 and all(len(donor) == 1 for donor in donors.values())


@examples(20)
@given(seed=seeds, rank=st.integers(2, 4))
def test_x3_keeps_the_chosen_components(seed, rank):
    parents = parents_of("svd_subspace", seed, rank=rank, dtype=torch.float64)
    child = breed("svd_subspace", parents, seed=seed)
    for path, factor in child.items():
        first, second = factor_svd(parents[0][path]), factor_svd(parents[1][path])
        k = min(*parents[0][path].A.shape, parents[0][path].B.shape[0])
        errors = []
        for j in range(1, k):
            expected = (
                first.U[:, :j] * first.s[:j] @ first.V[:, :j].T + second.U[:, j:] * second.s[j:] @ second.V[:, j:].T
            )
            errors.append(float((delta(factor) - expected).abs().max()))
        assert min(errors) < 1e-9 * float(first.s[0] + second.s[0])


@pytest.mark.slow
def test_x3_draws_every_cut():
    parents = [{"a": make_factors(i, dtype=torch.float64)["model.layers.2.q_proj"]} for i in (1, 2)]
    counts = [0, 0, 0]
    first, second = factor_svd(parents[0]["a"]), factor_svd(parents[1]["a"])
    for seed in range(300):
        dense = delta(breed("svd_subspace", parents, seed=seed)["a"])
        for j in (1, 2, 3):
            expected = (
                first.U[:, :j] * first.s[:j] @ first.V[:, :j].T + second.U[:, j:] * second.s[j:] @ second.V[:, j:].T
            )
            counts[j - 1] += int(torch.allclose(dense, expected))
    assert sum(counts) == 300 and min(counts) > 70


def test_x4_against_dense():
    better, worse = parents_of("extrapolative", 9, rank=2, dtype=torch.float64)
    child = breed("extrapolative", [better, worse], seed=0, parameters={"eta_min": 1.3, "eta_max": 1.3})
    for path, factor in child.items():
        dense = delta(worse[path]) + 1.3 * (delta(better[path]) - delta(worse[path]))
        U, s, Vh = torch.linalg.svd(dense, full_matrices=False)
        torch.testing.assert_close(delta(factor), U[:, :2] * s[:2] @ Vh[:2], rtol=1e-6, atol=1e-8)


def test_average_of_several_against_dense():
    parents = [make_factors(i, rank=r, scaling=c, dtype=torch.float64) for i, (r, c) in enumerate([(3, 1), (1, 2)])]
    child = breed("average", parents, seed=0)
    for path, factor in child.items():
        dense = sum(delta(parent[path]) for parent in parents) / 2
        U, s, Vh = torch.linalg.svd(dense, full_matrices=False)
        torch.testing.assert_close(delta(factor), U[:, :3] * s[:3] @ Vh[:3], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", list(CROSSOVERS) + ["average"])
def test_scalings_that_differ_are_carried_by_B(name):
    """A parent written with another scaling, same dW and same A, makes the same child."""
    first, second = parents_of(name, 4, dtype=torch.float64)
    other = {path: Factor(A, B / 4, c * 4) for path, (A, B, c) in second.items()}
    child, same = breed(name, [first, second], seed=1), breed(name, [first, other], seed=1)
    assert {factor.scaling for factor in same.values()} == {2.0}
    assert_same_delta(child, same, tolerance=1e-9)


@pytest.mark.parametrize("name", ["layerwise", "svd_subspace", "extrapolative", "average", "dare"])
def test_ranks_that_differ(name):
    first, second = make_factors(1, rank=2), make_factors(2, rank=4)
    for parents in ([first, second], [second, first]):
        child = breed(name, parents, seed=0)
        assert all(child[path].A.shape == parents[0][path].A.shape for path in SHAPES)
    with pytest.raises(ValueError, match=r"equal rank.*\[2, 4\]"):
        breed("dare", [first, second], seed=0, parameters={"space": "factors"})


@pytest.mark.parametrize("name", NAMES)
def test_a_child_has_memory_of_its_own(name):
    parents = parents_of(name, 1)
    taken = {X.data_ptr() for parent in parents for factor in parent.values() for X in factor[:2]}
    child = breed(name, parents, seed=0)
    assert not taken & {X.data_ptr() for factor in child.values() for X in factor[:2]}


def test_what_an_operator_of_ones_own_takes_as_it_is_is_copied(monkeypatch):
    monkeypatch.setitem(OPERATORS, "first", Operator(lambda parents, rng: parents[0], 1))
    test_a_child_has_memory_of_its_own("first")
    whole = torch.randn(8, 4)  # a view of a parent's memory is its memory, too
    parent = {"q": Factor(whole[:4], torch.randn(6, 4), 1.0)}
    monkeypatch.setitem(OPERATORS, "view", Operator(lambda parents, rng: {"q": parent["q"]._replace(A=whole[4:])}, 1))
    child = breed("view", [parent], seed=0)["q"]
    assert torch.equal(child.A, whole[4:]) and not {child.A.data_ptr(), child.B.data_ptr()} & {
        whole[4:].data_ptr(), parent["q"].B.data_ptr()
    }  # fmt: skip


@pytest.mark.parametrize(("name", "weights"), [("average", (0.5, 0.5)), ("extrapolative", (1.25, -0.25))])
def test_mixing_in_the_space_of_factors(name, weights):
    first, second = make_factors(1), make_factors(2, scaling=1.0)
    parameters = {"space": "factors"} | ({} if name == "average" else {"eta_min": 1.25, "eta_max": 1.25})
    child = breed(name, [first, second], seed=0, parameters=parameters)
    for path, factor in child.items():
        (A1, B1, _), (A2, B2, _) = first[path], align(second[path], first[path])
        torch.testing.assert_close(factor.A, weights[0] * A1 + weights[1] * A2)
        torch.testing.assert_close(factor.B, weights[0] * B1 + weights[1] * B2 / 2)
    assert_same_delta(breed(name, [first, first], seed=0, parameters=parameters), first)
    with pytest.raises(ValueError, match="space is one of.*'matrices'"):
        breed(name, [first, second], seed=0, parameters={"space": "matrices"})


@pytest.mark.parametrize("name", ["dare", "average", "extrapolative"])
def test_mixed_factors_do_not_see_how_the_second_parent_is_turned(name):
    first, second = make_factors(1), make_factors(2)
    turned = {}
    for i, (path, (A, B, scaling)) in enumerate(second.items()):
        Q, _ = torch.linalg.qr(torch.randn(A.shape[0], A.shape[0], generator=torch.Generator().manual_seed(i)))
        turned[path] = Factor(Q.T @ A, B @ Q, scaling)
    children = [breed(name, [first, other], seed=0, parameters={"space": "factors"}) for other in (second, turned)]
    for path, factor in children[0].items():
        for X, Y in zip(factor[:2], children[1][path][:2]):
            torch.testing.assert_close(X, Y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1e-18, 1e15])
def test_extreme_scales_stay_finite(name, scale):
    parents = [
        {path: Factor(A * scale, B * scale, c) for path, (A, B, c) in parent.items()} for parent in parents_of(name, 1)
    ]
    for factor in breed(name, parents, seed=0).values():
        assert torch.isfinite(factor.A).all() and torch.isfinite(factor.B).all()


@pytest.mark.parametrize("name", NAMES)
def test_all_zero_factors_are_legal(name):
    zero = {path: Factor(A * 0, B * 0, c) for path, (A, B, c) in make_factors(0).items()}
    for factor in breed(name, [zero] * OPERATORS[name].num_parents, seed=0).values():
        assert torch.isfinite(factor.A).all() and torch.isfinite(factor.B).all()


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("svd_structured", {"eps": -0.1}, "eps.*-0.1"),
        ("gaussian", {"eps": float("nan")}, "eps.*nan"),
        ("layer_gaussian", {"fraction": 1.5}, "fraction.*1.5"),
        ("component_masking", {"rho": 2}, "rho.*2"),
        ("neftune", {"eps": -1}, "eps.*-1"),
        ("neftune", {"alpha_n": -1}, "alpha_n.*-1"),
        ("dare", {"p": 1.0}, "p .*1.0"),
        ("extrapolative", {"eta_min": 2.0}, "eta_min.*2.0"),
    ],
)
def test_bad_strength_is_named(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        breed(name, parents_of(name, 0), seed=0, parameters=parameters)


def test_parents_that_do_not_fit_are_named():
    first, second = parents_of("dare", 0)
    with pytest.raises(ValueError, match="2 parents, got 1"):
        breed("dare", [first], seed=0)
    fewer = {path: second[path] for path in list(second)[1:]}
    with pytest.raises(ValueError, match=r"layers\.0\.q_proj"):
        breed("layerwise", [first, fewer], seed=0)
    wider = {**second, "head": second["model.layers.2.q_proj"]}
    with pytest.raises(ValueError, match="head"):
        breed("svd_subspace", [first, wider], seed=0)


def test_tables():
    assert {**MUTATIONS, **CROSSOVERS}.items() <= OPERATORS.items() and not MUTATIONS.keys() & CROSSOVERS.keys()
    assert OPERATORS["extrapolative"].parameters == {"eta_min": 1.0, "eta_max": 1.5, "space": "delta"}
    assert OPERATORS["layer_gaussian"].parameters == {"eps": 0.1, "fraction": 0.33}
    first = {name: next(iter(operator.parameters.values()), None) for name, operator in MUTATIONS.items()}
    assert (
        first.items()
        >= {
            "svd_structured": 0.1,
            "layer_gaussian": 0.1,
            "component_masking": 0.05,
            "gaussian": 0.15,
            "neftune": 0.3,
        }.items()
    )
    assert OPERATORS["dare"].parameters == {"p": 0.7, "space": "delta"}
    assert OPERATORS["neftune"].parameters == {"eps": 0.3, "alpha_n": None}
    assert Operator(lambda parents, rng: parents[0], 1).parameters == {}


def test_every_operator_has_its_section():
    page = (Path(__file__).resolve().parents[2] / "docs" / "operators.md").read_text()
    assert [name for name in OPERATORS if not re.search(rf"^#+ .*`{name}`", page, re.MULTILINE)] == []


def test_seeds_of_children_do_not_repeat():
    rng = torch.Generator().manual_seed(0)
    assert len({draw_seed(rng) for _ in range(1000)}) == 1000


def test_layer_of():
    assert layer_of("base_model.model.layers.11.self_attn.q_proj") == "base_model.model.layers.11"
    assert layer_of("model.layers.3.mlp.experts.5.w1") == "model.layers.3"
    assert layer_of("lm.head") == "lm.head"
