"""The genotype of a member: its LoRA factors, one pair per adapted matrix.

Only the type lives here; what is done with factors (algebra, variation) lives in `evolution`.
"""

from typing import NamedTuple

from torch import Tensor


class Factor(NamedTuple):
    """LoRA factors of one adapted matrix, with `dW = scaling * B @ A`.

    Attributes:
        A (`torch.Tensor` of shape `(rank, d_in)`): Down projection.
        B (`torch.Tensor` of shape `(d_out, rank)`): Up projection; zero for a fresh adapter.
        scaling (`float`): `alpha / rank`, or `alpha / sqrt(rank)` with rank-stabilised LoRA.
    """

    A: Tensor
    B: Tensor
    scaling: float


Factors = dict[str, Factor]
"""Module path of the adapted matrix -> its factors, in the model's module order."""
