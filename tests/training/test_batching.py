"""Micro-batches: every row once, equally many of each member, similar lengths."""

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.drawn_examples import examples
from trl_populora.population.composition import schedule
from trl_populora.training.batching import deal, needed


@st.composite
def rounds(draw):
    """A compute-matched round as the config allows it: members, roles, lengths, rows of a micro-batch."""
    T, S, P, G = (draw(st.integers(1, n)) for n in (6, 6, 3, 6))
    proposals = T * P * G
    if proposals * G % S:
        S = T
    per_student = proposals * G // S
    members = [t for t in range(T) for _ in range(P * G)] + [T + s for s in range(S) for _ in range(per_student)]
    roles = ["teacher"] * T + ["student"] * S
    size = draw(st.sampled_from([b for b in range(1, 33) if len(members) % b == 0]))
    lengths = [draw(st.integers(1, 300)) for _ in members]
    order = draw(st.permutations(range(len(members))))
    return [members[i] for i in order], [lengths[i] for i in order], roles, size


@examples(150)
@given(rounds())
def test_every_row_is_dealt_once_and_the_sizes_are_kept(round):
    members, lengths, roles, size = round
    chosen = schedule(members, lengths, roles=roles, size=size)
    assert sorted(row for rows in chosen for row in rows) == list(range(len(members)))
    assert {len(rows) for rows in chosen} == {size}
    for rows in chosen:  # in blocks, as routing wants them
        blocks = [members[row] for row in rows]
        counts = Counter(blocks)
        assert blocks == sorted(blocks, key=lambda member: (counts[member], member))


def per_member(chosen, members):
    return [set(Counter(members[row] for row in rows).values()) for rows in chosen]


def matched(T, S, teacher_rows, student_rows):
    members = [t for t in range(T) for _ in range(teacher_rows)]
    members += [T + s for s in range(S) for _ in range(student_rows)]
    return members, ["teacher"] * T + ["student"] * S


def test_each_micro_batch_holds_equally_many_rows_of_its_members():
    """The shapes of the recipes and of the paper, and more members than rows."""
    for T, S, teacher_rows, student_rows, size in [
        (2, 2, 2, 4, 4),
        (4, 4, 8, 64, 16),
        (2, 2, 4, 16, 8),
        (4, 2, 2, 8, 4),
        (8, 8, 8, 64, 16),
        (32, 32, 2, 4, 16),
        (32, 32, 8, 64, 16),
        (1, 1, 8, 64, 8),
    ]:
        members, roles = matched(T, S, teacher_rows, student_rows)
        generator = torch.Generator().manual_seed(T)
        lengths = torch.randint(1, 200, (len(members),), generator=generator).tolist()
        chosen = schedule(members, lengths, roles=roles, size=size)
        assert all(len(counts) == 1 for counts in per_member(chosen, members)), (T, S, teacher_rows, student_rows)
        mixed = [rows for rows in chosen if len({roles[members[row]] for row in rows}) == 2]
        assert len(mixed) <= 1  # where one role's rows do not fill whole micro-batches


def test_lengths_in_a_micro_batch_are_similar():
    """Padding at most half of what shuffled rows need, and not much above what sorting by length alone would need."""
    members, roles = matched(4, 4, 8, 64)
    generator = torch.Generator().manual_seed(0)
    lengths = (torch.randn(len(members), generator=generator).exp() * 60 + 20).int()
    lengths[:32] += 300  # proposers read long prompts
    chosen = schedule(members, lengths.tolist(), roles=roles, size=16)

    def padding(batches):
        return sum(int(16 * lengths[rows].max() - lengths[rows].sum()) for rows in batches)

    shuffled = torch.randperm(len(members), generator=generator).split(16)
    by_length = lengths.argsort().split(16)
    assert padding(by_length) <= padding(chosen) <= 2 * padding(by_length)
    assert padding(chosen) < 0.5 * padding(shuffled)


def test_other_lengths_of_one_member_leave_the_rows_of_the_others_where_they_were():
    members, roles = matched(2, 2, 4, 8)
    lengths = [(7 * i) % 23 + 1 for i in range(len(members))]
    before = schedule(members, lengths, roles=roles, size=4)
    changed = [length * 9 if member == 2 else length for length, member in zip(lengths, members, strict=True)]
    after = schedule(members, changed, roles=roles, size=4)
    others = [[[row for row in rows if members[row] != 2] for rows in batches] for batches in (before, after)]
    assert others[0] == others[1]


@examples(60)
@given(st.lists(st.integers(0, 4), min_size=12, max_size=12), st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_unequal_shares_are_dealt_too(members, size):
    """One rank's share of a round may hold any rows."""
    chosen = schedule(members, list(range(12)), roles=["teacher"] * 2 + ["student"] * 3, size=size)
    assert sorted(row for rows in chosen for row in rows) == list(range(12))
    assert {len(rows) for rows in chosen} == {size}


def test_deal_keeps_each_rows_tensors_together_and_cuts_padding_only():
    generator = torch.Generator().manual_seed(3)
    prompt, completion, rows = 7, 5, 12
    prompts = torch.randint(1, prompt + 1, (rows,), generator=generator)
    completions = torch.randint(1, completion + 1, (rows,), generator=generator)
    whole = {
        "prompt_mask": (torch.arange(prompt) >= prompt - prompts[:, None]).long(),
        "completion_mask": (torch.arange(completion) < completions[:, None]).long(),
        "advantages": torch.arange(rows).float(),
        "member_ids": torch.arange(rows) % 4,
        "num_items_in_batch": torch.tensor(99),
    }
    whole["prompt_ids"] = whole["prompt_mask"] * (torch.arange(rows)[:, None] * 100 + torch.arange(prompt) + 1)
    whole["completion_ids"] = whole["completion_mask"] * (torch.arange(rows)[:, None] * 100 + torch.arange(completion))
    whole["old_per_token_logps"] = whole["completion_ids"] / 10
    batches = [{k: v[i : i + 4] if v.dim() else v for k, v in whole.items()} for i in (0, 4, 8)]
    dealt = deal(batches, ["teacher", "teacher", "student", "student"])
    assert len(dealt) == 3
    seen = []
    for batch in dealt:
        assert batch["num_items_in_batch"] == 99
        assert batch["prompt_mask"][:, 0].any() and batch["completion_mask"][:, -1].any()
        for i, row in enumerate(batch["advantages"].int().tolist()):
            seen.append(row)
            assert batch["member_ids"][i] == row % 4
            for side, keep in (("prompt", slice(-int(prompts[row]), None)), ("completion", slice(completions[row]))):
                assert batch[f"{side}_mask"][i].sum() == whole[f"{side}_mask"][row].sum()
                assert torch.equal(batch[f"{side}_ids"][i][keep], whole[f"{side}_ids"][row][keep])
            width = batch["completion_ids"].shape[1]
            assert torch.equal(batch["old_per_token_logps"][i], whole["old_per_token_logps"][row][:width])
    assert sorted(seen) == list(range(rows))
    longest = [int((batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)).max()) for batch in dealt]
    assert longest == sorted(longest, reverse=True) and longest[0] > longest[-1]  # what needs most memory comes first


@examples(150)
@given(st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 0.0, 0.5]), st.integers(0, 3), st.integers(1, 9)), min_size=1))
def test_the_update_needs_rows_with_an_advantage_and_one_of_every_member(rows):
    rows = rows * 3
    advantages, members, lengths = zip(*rows, strict=True)
    kept = needed(advantages, members, lengths, multiple=3)
    assert kept == sorted(set(kept)) and len(kept) % 3 == 0
    wanted = {row for row, advantage in enumerate(advantages) if advantage}
    assert wanted <= set(kept) and {members[row] for row in kept} == set(members)
    without = set(members) - {members[row] for row in wanted}
    assert len(kept) < len(wanted) + len(without) + 3
    for member in without:  # the shortest stays
        assert min(lengths[row] for row in kept if members[row] == member) == min(
            length for one, length in zip(members, lengths, strict=True) if one == member
        )
