"""Fitness sharing: what resembles other tasks earns less, and the mean reward factor stays 1."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.code_tasks import code_buffer, code_task, code_types
from tests.drawn_examples import examples
from tests.self_play.script import G, scripted, self_play
from trl_populora.diagnostics import task_metrics
from trl_populora.self_play import RewardSettings, RoundSettings
from trl_populora.self_play.records import Proposal, RoundRecord
from trl_populora.self_play.rewards import MAX_SHARING
from trl_populora.self_play.sharing import divide, niche_counts, share, similarities
from trl_populora.tasks import Refusal


TYPES = code_types()
SORTED = "def f(x):\n    x = sorted(x)\n    return x"
RENAMED = "def f(values):\n    values = sorted(values)\n    return values"
LENGTH = "def f(x):\n    y = len(x)\n    return y"


def proposal(program, reward, kind="code_o"):
    task = program and code_task(kind, program, inputs=["[2, 1]"], outputs=["[1, 2]"])
    refusal = None if task else Refusal("no_program", "")
    return Proposal("teacher_0", kind, "", 0, task=task, refusal=refusal, reward=reward)


def test_niche_counts_are_sums_of_similarities_by_the_weights_of_parts():
    parts = [frozenset(text) for text in ("zab", "zab", "zac", "zd")]
    three, two, one = math.log(4 / 3), math.log(2), math.log(4)  # a has three of four, b two, c and d one, z all
    apart = three / (three + two + one)
    assert niche_counts(parts) == pytest.approx([2 + apart, 2 + apart, 1 + 2 * apart, 1])
    assert niche_counts([frozenset("z")] * 3).tolist() == [3, 3, 3] and niche_counts([]).shape == (0,)


def test_a_proposal_that_nobody_could_attempt_is_not_among_the_unsolved():
    """Valid, but the executor failed on all attempts, so that it has no solve rate."""
    solved, lost, spared = (proposal(text, 0.5) for text in (SORTED, LENGTH, RENAMED))
    proposals = (replace(solved, solve_rate=0.5), replace(lost, solve_rate=0.0), spared, proposal(None, -1.0))
    metrics = task_metrics(RoundRecord(round=0, step=0, proposals=proposals), code_buffer(9), TYPES)
    assert metrics["unsolved"] == 0.5


def test_one_task_without_what_all_others_have_makes_them_hardly_more_alike():
    parts = [frozenset(["def", name]) for name in "abcdefgh" * 4]
    before = niche_counts(parts)
    after = niche_counts([*parts[:-1], frozenset(["other def", "h"])])
    assert (after[:-1] < 1.2 * before[:-1]).all()


def test_tasks_that_share_nearly_everything_are_similar_in_the_metric_and_not_in_the_weights():
    parts = [frozenset([*"abcdefgh", f"own {i}"]) for i in range(8)]
    off_diagonal = ~np.eye(8, dtype=bool)
    assert similarities(parts, weighed=False)[off_diagonal] == pytest.approx(0.8)
    assert similarities(parts, weighed=True)[off_diagonal] == pytest.approx(0)


def full(parts, weighed):
    """The equation, with a full matrix of tasks and parts."""
    names = sorted(frozenset().union(*parts))
    has = np.array([[name in own for name in names] for own in parts], dtype=float).reshape(len(parts), len(names))
    counted = has * np.log(len(parts) / has.sum(axis=0)) if weighed else has
    both, sizes = counted @ has.T, counted.sum(axis=1)
    either = sizes[:, None] + sizes - both
    return np.divide(both, either, out=np.ones_like(both), where=either > 1e-9)


@given(st.lists(st.frozensets(st.integers(0, 40).map(str)), max_size=12))
@examples(100)
def test_similarities_are_those_of_the_full_matrix(parts):
    assert np.array_equal(similarities(parts, weighed=False), full(parts, False))
    np.testing.assert_allclose(similarities(parts, weighed=True), full(parts, True), rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("owners", [1, 2, 100])
def test_memory_is_for_the_parts_that_tasks_have(owners, weighed):
    """A full matrix of what 100 tasks of 1,000 parts have takes 80 MB."""
    parts = [frozenset(f"{task // owners} {part}" for part in range(1000)) for task in range(100)]
    tracemalloc.start()
    try:
        found = similarities(parts, weighed=weighed)
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()
    assert found.sum() == pytest.approx(100 * owners)


@given(
    st.lists(
        st.tuples(st.frozensets(st.sampled_from("abcdef")), st.just(0.0) | st.floats(0.01, 4)), min_size=1, max_size=8
    ),
    st.floats(0, MAX_SHARING),
)
@examples(100)
def test_counts_are_between_1_and_n_and_rewards_keep_their_sum(tasks, exponent):
    parts, rewards = [one for one, _ in tasks], np.array([reward for _, reward in tasks])
    counts = niche_counts(parts)
    assert (counts >= 1 - 1e-9).all() and (counts <= len(parts) + 1e-9).all()
    divided = divide(rewards, counts, exponent)
    assert divided.sum() == pytest.approx(rewards.sum()) and (divided >= 0).all()
    ratios = divided[rewards > 1e-3] / rewards[rewards > 1e-3]
    assert (np.diff(ratios[np.argsort(counts[rewards > 1e-3], kind="stable")]) <= 1e-9).all(), (
        "more alike, less reward"
    )


def test_the_unusual_task_earns_more_and_names_make_no_difference():
    before = [proposal(SORTED, 0.5), proposal(RENAMED, 0.5), proposal(LENGTH, 0.5)]
    first, second, third = (one.reward for one in share(before, TYPES, exponent=1.0))
    assert first == pytest.approx(second) and third == pytest.approx(2 * first)
    assert first + second + third == pytest.approx(1.5)
    assert share(before, TYPES, exponent=0.0) == tuple(before)


def test_only_positive_rewards_of_valid_tasks_are_shared_and_types_apart():
    before = [proposal(SORTED, -0.5), proposal(RENAMED, None), proposal(LENGTH, 0.5), proposal(None, -1.0)]
    before += [proposal(SORTED, 0.5, "code_i")]
    after = share(before, TYPES, exponent=1.0)
    assert [one.reward for one in after[:2]] == [-0.5, None] and after[3:] == tuple(before[3:])
    assert after[2].reward == pytest.approx(0.5), "the only one that earns something"
    before[0] = replace(before[0], reward=1.0)
    many, few = (
        one.reward
        for one in share(before, TYPES, exponent=1.0)
        if one.type == "code_o" and one.reward and one.reward > 0
    )
    assert many < 1.0 and few > 0.5 and many + few == pytest.approx(1.5)


@pytest.mark.slow
def test_in_a_round_a_teacher_earns_less_for_what_is_often_proposed(executor):
    plain, shared = (
        self_play(executor, settings=RoundSettings(num_generations=G, num_references=1, rewards=rewards))
        for rewards in (RewardSettings(), RewardSettings(sharing=1.0))
    )
    script = {"valid": 0.9, "solved": 0.4}
    before = plain.play(scripted(plain, **script), round=0, step=0).record.proposals
    played = shared.play(scripted(shared, **script), round=0, step=0)
    after = played.record.proposals
    assert [one.completion for one in after] == [one.completion for one in before]
    assert after == share(before, shared.task_types, exponent=1.0) != before
    assert [row.reward for row in played.rows[: len(after)]] == [one.reward for one in after]


def test_the_metric_is_the_mean_over_pairs_of_one_type():
    tasks = [proposal(SORTED, 0.5), proposal(RENAMED, 0.5), proposal(LENGTH, 0.5), proposal(SORTED, 0.5, "code_i")]
    record = RoundRecord(0, 0, proposals=(*tasks, proposal(None, -1.0)))
    found = task_metrics(record, code_buffer(), TYPES)
    assert found["similarity"] == pytest.approx((1 + 2 / 4 + 2 / 4) / 3)  # two of the four different statements
    assert "similarity" not in task_metrics(replace(record, proposals=tuple(tasks[2:])), code_buffer(), TYPES)


def test_a_strength_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"sharing=-1.0 must be between 0 \(off\) and 10"):
        RewardSettings(sharing=-1.0)
    rewards = RewardSettings(sharing=1.0, teacher="solvable")
    with pytest.raises(ValueError, match="sharing=1.0 in reward_kwargs with solvable_rounds=2"):
        RoundSettings(rewards=rewards, solvable_rounds=2)
