"""Engine and trainer give the same token different probabilities: measure that, and correct for it.

With d = log π_old(y_t) − log π_sampler(y_t), trainer against engine for the same weights; 0 if the two agree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from gapo_lit.policies.masking import masked_difference, masked_mean
from gapo_lit.registry import kind, register
from gapo_lit.types import Metrics

LOG_RATIO_LIMIT = 20.0


@torch.no_grad()
def truncated_importance_weights(
    old_logprobs: Tensor,
    sampler_logprobs: Tensor,
    response_mask: Tensor,
    cap: float,
    level: Literal["token", "sequence"],
) -> Tensor:
    """Weights min(e^d, cap) a token, or min(e^(Σ_t d), cap) a sequence.

    old_logprobs, sampler_logprobs: (B, T); response_mask: (B, T) bool; returns (B, T) in (0, cap], 0 where masked, with
    no gradient. The sum over a sequence is its true importance weight, not length-normalised.
    """
    difference = masked_difference(old_logprobs, sampler_logprobs, response_mask)
    if level == "sequence":
        difference = difference.sum(1, keepdim=True)
    weights = difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp().clamp(max=cap)
    return torch.where(response_mask, weights, 0.0)


@torch.no_grad()
def mismatch_metrics(old_logprobs: Tensor, sampler_logprobs: Tensor, response_mask: Tensor) -> Metrics:
    """How far trainer and engine are apart, as means over response tokens.

    mismatch/logprob_abs_diff: |d|. mismatch/ratio: e^d, whose expectation is 1. mismatch/kl: e^d − 1 − d, an unbiased
    estimate of KL(π_sampler ‖ π_old). Inputs as for `truncated_importance_weights`.
    """
    difference = masked_difference(old_logprobs, sampler_logprobs, response_mask)
    bounded = difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return {
        "mismatch/logprob_abs_diff": masked_mean(difference.abs(), response_mask),
        "mismatch/ratio": masked_mean(bounded.exp(), response_mask),
        "mismatch/kl": masked_mean(bounded.expm1() - bounded, response_mask),
    }


@kind("correction")
class Correction(ABC):
    """Weights on the token losses that make up for tokens having been sampled by another distribution."""

    @abstractmethod
    def __call__(self, old_logprobs: Tensor, sampler_logprobs: Tensor, response_mask: Tensor) -> Tensor:
        """(B, T) weights, no gradient."""


@register(source="off-policy correction of verl 0.9.1 and TRL 1.16; truncation: Ionides 2008")
class TruncatedImportance(Correction):
    """Importance weights π_old/π_sampler, cut at cap. See `truncated_importance_weights`.

    cap: the largest weight, at least 1. level: one weight a token or one a sequence.
    """

    def __init__(self, cap: float = 2.0, level: Literal["token", "sequence"] = "token") -> None:
        if not (math.isfinite(cap) and cap >= 1):
            raise ValueError(
                f"cap={cap} must be finite and at least 1, the weight of a token on which both agree; give 2.0"
            )
        if level not in ("token", "sequence"):
            raise ValueError(f"level={level!r} is not known; give 'token' or 'sequence'")
        self.cap = cap
        self.level = level

    def __call__(self, old_logprobs: Tensor, sampler_logprobs: Tensor, response_mask: Tensor) -> Tensor:
        """(B, T) weights, no gradient."""
        return truncated_importance_weights(old_logprobs, sampler_logprobs, response_mask, self.cap, self.level)
