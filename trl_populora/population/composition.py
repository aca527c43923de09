"""Which rows share a batch: equally many of each member, of similar length. For the update, and for sampling."""

from collections import Counter
from collections.abc import Sequence

from .routing import member_order


def schedule(
    members: Sequence[int],
    lengths: Sequence[int],
    *,
    roles: Sequence[str],
    size: int,
    prompts: Sequence[int] | None = None,
) -> list[list[int]]:
    """Which rows share a batch.

    Each member's rows are sorted by length and cut into parts of equal size. The parts of a role are arranged in this
    order: the first (shortest) part of every member, then the second part of every member, and so on. Every batch
    takes the next parts in this order. So it has equally many rows of each of its members, and these rows have a
    similar position in the order of length. Roles follow one another, because the lengths of their prompts differ
    several times: one batch at most has rows of both. Parts are as small as possible, so that lengths are as similar
    as possible. Our choice.

    Some batches have more rows of some members than of others if members have different numbers of rows, as in one
    rank's share of a round, or if the largest part that divides `size` and all these numbers still leaves more parts
    in a batch than a role has members: 12 rows from two members of 8 rows each are 8 and 4.

    With `prompts`, a part is all rows of a member to one prompt, and parts are sorted by their tokens. So rows that
    share a prompt share a batch, but for those at its ends.

    Args:
        members (`Sequence[int]`): Member of each row.
        lengths (`Sequence[int]`): Length of each row in tokens.
        roles (`Sequence[str]`): Role of each member.
        size (`int`): Rows of a batch; of the last one, what is left.
        prompts (`Sequence[int]`, *optional*): A number for the prompt of each row, if rows are to share prompts.

    Returns:
        `list[list[int]]`: Row indices of each batch, in the order in which routing moves no row.
    """
    own: dict[int, list[int]] = {}
    for row in sorted(range(len(members)), key=lambda row: (lengths[row], row)):
        own.setdefault(members[row], []).append(row)
    if prompts is None:
        hand = _hand_size([len(rows) for rows in own.values()], Counter(roles[member] for member in own), size)
        parts = {
            member: [rows[start : start + hand] for start in range(0, len(rows), hand)] for member, rows in own.items()
        }
    else:
        parts = {member: _by_prompt(rows, prompts, lengths) for member, rows in own.items()}
    order = sorted((roles[member], i, member) for member, cut in parts.items() for i in range(len(cut)))
    dealt = [row for _, i, member in order for row in parts[member][i]]
    chosen = [dealt[start : start + size] for start in range(0, len(dealt), size)]
    return [[rows[i] for i in member_order([members[row] for row in rows])] for rows in chosen]


def _by_prompt(rows: Sequence[int], prompts: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Rows in parts of one prompt each, by their tokens together."""
    parts: dict[int, list[int]] = {}
    for row in rows:
        parts.setdefault(prompts[row], []).append(row)
    return sorted(parts.values(), key=lambda part: sum(lengths[row] for row in part))


def _hand_size(counts: Sequence[int], role_sizes: Counter[str], size: int) -> int:
    """Fewest rows of one member so that a batch can be filled from different members of one role."""
    smallest = min(role_sizes.values(), default=1)
    fitting = [
        q for q in range(1, min([size, *counts]) + 1) if size % q == 0 and all(count % q == 0 for count in counts)
    ]
    return next((q for q in fitting if size // q <= smallest), fitting[-1])
