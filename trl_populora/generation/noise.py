"""Counter-based Gumbel noise: a function of (row seed, position, token), without any state.

So a row's tokens depend only on its own seed and logits. They do not depend on other rows of the batch, on the number
of processes, or on a generator that a resume would have to restore.
"""

import torch
from torch import Tensor


def _mix(z: Tensor) -> Tensor:
    """32-bit integer finaliser (two rounds of xor-shift and multiply), in place on int32 with wrap-around."""
    z ^= (z >> 16) & 0xFFFF
    z *= 0x7FEB352D
    z ^= (z >> 15) & 0x1FFFF
    z *= 0x846CA68B - (1 << 32)
    z ^= (z >> 16) & 0xFFFF
    return z


def gumbel(row_seeds: Tensor, position: int, vocabulary: int) -> Tensor:
    """Independent standard Gumbel noise for one decoding step.

    Args:
        row_seeds (`torch.Tensor` of shape `(batch,)`, int32): Seed of each row.
        position (`int`): Index of the token being drawn.
        vocabulary (`int`): Number of tokens.

    Returns:
        `torch.Tensor` of shape `(batch, vocabulary)`, float32. Resolution 2^-23 of the underlying uniform.
    """
    step = torch.tensor(position + 1, dtype=torch.int32, device=row_seeds.device)
    keys = _mix(row_seeds.clone() ^ _mix(step * 0x3504F333))
    tokens = _mix(torch.arange(vocabulary, dtype=torch.int32, device=row_seeds.device))
    bits = _mix(tokens[None, :] + keys[:, None])
    return gumbel_of_bits(bits)


def gumbel_of_bits(bits: Tensor) -> Tensor:
    """Gumbel noise from the upper 23 bits of int32 words: k + 1/2 is exact in float32 for them, so never 0 or 1."""
    uniform = ((bits >> 9) & 0x7FFFFF).to(torch.float32).add_(0.5).mul_(2.0**-23)
    return uniform.log_().neg_().log_().neg_()
