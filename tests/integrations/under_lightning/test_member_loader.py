"""The loader: what each member gets, in what order, on how many processes, and going on inside an epoch."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.integrations.lightning import MemberLoader


NAMES = ["student_0", "student_1", "student_2"]


def collate(samples):
    return {"x": samples}


def make(count=10, **settings):
    return MemberLoader(range(count), NAMES, collate=collate, **({"rows_per_member": 2} | settings))


def dealt(batches):
    """What each member got, in order."""
    got = {name: [] for name in NAMES}
    for batch in batches:
        for name, x in zip(batch["members"], batch["x"], strict=True):
            got[name].append(x)
    return got


def test_shared_gives_every_sample_to_every_member_and_split_deals_them_out():
    assert dealt(make()) == {name: list(range(10)) for name in NAMES}
    assert dealt(make(samples="split")) == {name: [k, k + 3, k + 6] for k, name in enumerate(NAMES)}


@given(st.integers(1, 20), st.integers(1, 7), st.booleans(), st.sampled_from(["shared", "split"]))
def test_every_batch_holds_equally_many_rows_of_each_member(count, rows, shuffle, samples):
    if samples == "split" and count < len(NAMES):
        return
    loader = make(count, rows_per_member=rows, shuffle=shuffle, samples=samples)
    batches = list(loader)
    assert len(batches) == len(loader)
    for batch in batches:
        each = {name: batch["members"].count(name) for name in NAMES}
        assert len(set(each.values())) == 1 and each["student_0"] <= rows
    together = sorted(x for own in dealt(batches).values() for x in own)
    if samples == "shared":
        assert together == sorted(list(range(count)) * 3)
    else:
        assert together == list(range(count - count % 3))


def test_order_is_a_function_of_seed_and_epoch_and_draws_on_no_global_state():
    before = torch.get_rng_state()
    one, other, seeded = make(shuffle=True), make(shuffle=True), make(shuffle=True, seed=1)
    first = dealt(one)
    assert first == dealt(other) != dealt(seeded)
    assert first["student_0"] == first["student_1"] != list(range(10))
    one.set_epoch(1)
    assert dealt(one) != first
    assert torch.equal(before, torch.get_rng_state())


def test_it_goes_on_after_the_batches_that_were_given():
    loader, again = make(shuffle=True), make(shuffle=True)
    whole = [batch["x"] for batch in loader]
    running = iter(loader)
    assert [next(running)["x"] for _ in range(2)] == whole[:2]
    again.load_state_dict(loader.state_dict())
    assert [batch["x"] for batch in again] == whole[2:]
    assert again.state_dict()["given"] == 5
    assert [batch["x"] for batch in again] == whole  # and from the beginning afterwards
    again.load_state_dict(again.state_dict())  # saved at the end of an epoch: the next one is whole
    assert [batch["x"] for batch in again] == whole
    with pytest.raises(ValueError, match="saved with 5 batches in an epoch; now there are 10"):
        make(20).load_state_dict(loader.state_dict())


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_processes_share_every_batch_and_repeat_nothing(monkeypatch, rows):
    whole = [list(zip(b["members"], b["x"])) for b in make(rows_per_member=rows, shuffle=True)]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    shares = []
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        shares.append([list(zip(b["members"], b["x"])) for b in make(rows_per_member=rows, shuffle=True)])
    for batch, first, second in zip(whole, *shares, strict=True):
        assert sorted(first + second) == sorted(batch) and first and second
        assert [name for name, _ in first] == sorted(name for name, _ in first)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    with pytest.raises(ValueError, match="has 3 rows for 4 processes"):
        list(make(1, rows_per_member=1))


def test_workers_load_the_same():
    assert dealt(make(shuffle=True, num_workers=1)) == dealt(make(shuffle=True))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"samples": "half"}, "samples must be one of .*'half'"),
        ({"rows_per_member": 0}, "rows_per_member=0"),
        ({"count": 0}, "0 samples are too few"),
        ({"count": 2, "samples": "split"}, "2 samples are too few for 3 members"),
    ],
)
def test_bad_input_is_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        make(**bad)
    for members in ([], "student_0"):
        with pytest.raises(ValueError, match=f"members={re.escape(repr(members))} must be a list of names"):
            MemberLoader([1], members, rows_per_member=1)
