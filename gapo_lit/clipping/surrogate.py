"""Surrogate losses a token, from log-ratios, advantages and clip bounds.

Each states which bounds were active, meaning that they changed the gradient of that token. A rollout whose advantage is
0 has a loss and gradient of exactly 0, however large its ratio.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from gapo_lit.registry import kind, register
from gapo_lit.types import ClipBounds, LossInputs


@dataclass(frozen=True)
class TokenLoss:
    """Losses (B, T) with gradient, and where the lower and the upper bound were active; (B, T) bool.

    clipped_dual: where a floor on the loss of bad actions was active; None for a surrogate without one.
    """

    loss: Tensor
    clipped_low: Tensor
    clipped_high: Tensor
    clipped_dual: Tensor | None = None


def ppo_clip(log_ratio: Tensor, advantages: Tensor, bounds: ClipBounds) -> TokenLoss:
    """max(−A·ρ, −A·clip(ρ, 1 − ε_lo, 1 + ε_hi)) (arXiv:1707.06347, Eq. 7).

    log_ratio: (B, T), exp of it finite; advantages and bounds: (B,). The upper bound is active where A > 0 and
    ρ > 1 + ε_hi, the lower where A < 0 and ρ < 1 − ε_lo; there the gradient is 0.
    """
    advantage = advantages[:, None]
    ratio = _ratio(log_ratio, advantage)
    highest = 1 + bounds.eps_hi[:, None]
    lowest = 1 - bounds.eps_lo[:, None]
    high = (advantage > 0) & (ratio > highest)
    low = (advantage < 0) & (ratio < lowest)
    # the same value as the maximum, and no tie for its gradient to be split at
    clipped = torch.where(high, highest, torch.where(low, lowest, ratio))
    return TokenLoss(-advantage * clipped, low, high)


def dual_clip(log_ratio: Tensor, advantages: Tensor, bounds: ClipBounds, c_dual: float) -> TokenLoss:
    """PPO clip, with the loss of A < 0 at most −A·c_dual (arXiv:1912.09729; TRL's delta is the same).

    Arguments as for `ppo_clip`; c_dual > 1. Where ρ > c_dual and A < 0 the gradient is 0.
    """
    advantage = advantages[:, None]
    inner = ppo_clip(log_ratio, advantages, bounds)
    dual = (advantage < 0) & (_ratio(log_ratio, advantage) > c_dual)
    return TokenLoss(torch.where(dual, -advantage * c_dual, inner.loss), inner.clipped_low, inner.clipped_high, dual)


def cispo(log_ratio: Tensor, logprobs: Tensor, advantages: Tensor, bounds: ClipBounds, mask: Tensor) -> TokenLoss:
    """−sg[min(ρ, 1 + ε_hi)]·A·log π_θ, sg stopping the gradient (arXiv:2506.13585).

    log_ratio, logprobs: (B, T); advantages and bounds: (B,); mask: (B, T) bool. There is no lower bound, as in the
    paper's experiments. The upper one only weakens a token's gradient, never removes it, and does so for either sign
    of A.
    """
    advantage = advantages[:, None]
    ratio = _ratio(log_ratio, advantage).detach()
    highest = 1 + bounds.eps_hi[:, None]
    high = (advantage != 0) & (ratio > highest)
    # masked before the product: −inf in padding times 0 is NaN
    loss = -torch.minimum(ratio, highest) * advantage * torch.where(mask, logprobs, 0.0)
    return TokenLoss(loss, torch.zeros_like(high), high)


@kind("surrogate")
class Surrogate(ABC):
    """The loss of one token.

    zero_without_advantage: whether a rollout of advantage 0 has loss and gradient 0, and so need not be computed.
    reports_dual: whether its TokenLoss has clipped_dual.
    """

    zero_without_advantage: bool = True
    reports_dual: bool = False

    @abstractmethod
    def __call__(self, log_ratio: Tensor, inputs: LossInputs) -> TokenLoss:
        """Losses (B, T), finite at every response token; those under the mask are ignored."""


@register(source="arXiv:1707.06347 (PPO)")
class PPOClip(Surrogate):
    """Pessimistic clipped surrogate. See `ppo_clip`."""

    def __call__(self, log_ratio: Tensor, inputs: LossInputs) -> TokenLoss:
        """Losses of one micro-batch."""
        return ppo_clip(log_ratio, inputs.advantages, inputs.bounds)


@register(source="arXiv:1912.09729; 10.0 in DAPO's script")
class DualClip(Surrogate):
    """PPO clip that also bounds the push away from a bad action. See `dual_clip`.

    c_dual: the largest ratio that counts where A < 0.
    """

    reports_dual = True

    def __init__(self, c_dual: float = 3.0) -> None:
        if not (math.isfinite(c_dual) and c_dual > 1):
            raise ValueError(
                f"c_dual={c_dual} must be finite and above 1, or it would bind before the policy moves; give 3.0"
            )
        self.c_dual = c_dual

    def __call__(self, log_ratio: Tensor, inputs: LossInputs) -> TokenLoss:
        """Losses of one micro-batch."""
        return dual_clip(log_ratio, inputs.advantages, inputs.bounds, self.c_dual)


@register(source="arXiv:2506.13585 (MiniMax-M1)")
class CISPO(Surrogate):
    """REINFORCE with a clipped importance weight that carries no gradient. See `cispo`."""

    def __call__(self, log_ratio: Tensor, inputs: LossInputs) -> TokenLoss:
        """Losses of one micro-batch."""
        return cispo(log_ratio, inputs.logprobs, inputs.advantages, inputs.bounds, inputs.response_mask)


def _ratio(log_ratio: Tensor, advantage: Tensor) -> Tensor:
    # a zero advantage takes the ratio out of the graph, so that 0·inf cannot appear in the value or in the gradient
    return torch.where(advantage == 0, 0.0, log_ratio).exp()
