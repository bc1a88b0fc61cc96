"""What is shared by everything that reads padded token tensors: values under a false mask never reach a result."""

from __future__ import annotations

import torch
from torch import Tensor

from gapo_lit.types import Mean


def masked_difference(left: Tensor, right: Tensor, mask: Tensor) -> Tensor:
    """Subtract where mask holds: left − right there, 0 elsewhere, in at least float32.

    left, right, mask: (B, T). Each side is masked before the subtraction, so that −inf or NaN in padding reaches
    neither the value nor the gradient.
    """
    dtype = torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)
    return torch.where(mask, left, 0.0).to(dtype) - torch.where(mask, right, 0.0).to(dtype)


def masked_mean(values: Tensor, mask: Tensor) -> Mean:
    """The mean of values over the true tokens of mask, as its two sums; values, mask: (B, T). No gradient."""
    return Mean(torch.where(mask, values.detach(), 0.0).sum(), mask.sum())


def masked_mean_by_row_bin(values: Tensor, mask: Tensor, bin_of_row: Tensor, bins: int) -> Mean:
    """`masked_mean` kept apart by a bin index a row; values, mask: (B, T); bin_of_row: (B,) long in [0, bins)."""
    per_row = torch.where(mask, values.detach(), 0.0).sum(1)
    lengths = mask.sum(1)
    return Mean(
        per_row.new_zeros(bins).index_add(0, bin_of_row, per_row),
        lengths.new_zeros(bins).index_add(0, bin_of_row, lengths),
    )
