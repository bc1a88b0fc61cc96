"""How token losses become one number: loss = Σ weights·token_loss / denominator.

The denominator is the `count` summed over the whole update batch and over all ranks, and is handed in. So neither
micro-batching nor the number of ranks changes loss or gradient. A row without response tokens weighs nothing and is not
counted, as in verl 0.9.1; TRL 1.16 counts it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gapo_lit.registry import kind, register


def token_count(response_mask: Tensor) -> Tensor:
    """How many response tokens there are; (B, T) bool → scalar long."""
    return response_mask.sum()


def row_count(response_mask: Tensor) -> Tensor:
    """How many rows have a response token; (B, T) bool → scalar long."""
    return response_mask.any(1).sum()


@kind("aggregation")
class Aggregation(ABC):
    """How much each response token weighs, and what the sum is divided by."""

    @abstractmethod
    def weights(self, response_mask: Tensor) -> Tensor:
        """(B, T) float, 0 where masked; a row's weights may depend on that row alone."""

    @abstractmethod
    def count(self, response_mask: Tensor) -> Tensor:
        """The rows' share of the denominator, a scalar that adds over micro-batches and ranks."""


@register(source="arXiv:2503.14476 (DAPO)")
class TokenMean(Aggregation):
    """Every response token of the update batch weighs the same: Σ_i Σ_t ℓ_{i,t} / Σ_i |y_i|."""

    def weights(self, response_mask: Tensor) -> Tensor:
        """1 on each response token."""
        return response_mask.to(torch.get_default_dtype())

    def count(self, response_mask: Tensor) -> Tensor:
        """Response tokens."""
        return token_count(response_mask)


@register(source="arXiv:2402.03300 (GRPO), arXiv:2507.18071 (GSPO)")
class SequenceMeanTokenMean(Aggregation):
    """Every rollout weighs the same: (1/N) Σ_i (1/|y_i|) Σ_t ℓ_{i,t}, N the rollouts that have a token."""

    def weights(self, response_mask: Tensor) -> Tensor:
        """1/|y_i| on each response token of rollout i."""
        lengths = response_mask.sum(1, keepdim=True).clamp(min=1)
        return response_mask.to(torch.get_default_dtype()) / lengths

    def count(self, response_mask: Tensor) -> Tensor:
        """Rollouts with a token."""
        return row_count(response_mask)


@register(source="verl 0.9.1, seq-mean-token-sum")
class SequenceMeanTokenSum(Aggregation):
    """(1/N) Σ_i Σ_t ℓ_{i,t}, N the rollouts that have a token: the policy gradient of a whole response."""

    def weights(self, response_mask: Tensor) -> Tensor:
        """1 on each response token."""
        return response_mask.to(torch.get_default_dtype())

    def count(self, response_mask: Tensor) -> Tensor:
        """Rollouts with a token."""
        return row_count(response_mask)


@register(source="arXiv:2503.20783 (Dr.GRPO)")
class ConstantLength(Aggregation):
    """(1/N) Σ_i (1/length) Σ_t ℓ_{i,t}: no bias by response length.

    length: the constant, usually the longest completion that sampling allows (3000 in Dr.GRPO's script).
    """

    def __init__(self, length: float) -> None:
        if not (math.isfinite(length) and length > 0):
            raise ValueError(f"length={length} must be finite and above 0; give the longest completion in tokens")
        self.length = length

    def weights(self, response_mask: Tensor) -> Tensor:
        """1/length on each response token."""
        return response_mask.to(torch.get_default_dtype()) / self.length

    def count(self, response_mask: Tensor) -> Tensor:
        """Rollouts with a token."""
        return row_count(response_mask)
