"""Importance ratios between the current policy and the one that the rollouts were scored with, as logarithms.

Every ratio comes as (B, T), whatever its level, so that nothing downstream asks which it was.

Extreme values follow verl 0.9.1: a token's log-ratio is clamped to ±20 and a sequence's to at most 10, with zero
gradient beyond. exp of the result is therefore finite in float32, and so is everything computed from it. TRL 1.16 does
not clamp.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gapo_lit.policies.masking import masked_difference
from gapo_lit.registry import kind, register

TOKEN_LIMIT = 20.0
SEQUENCE_LIMIT = 10.0


def token_log_ratio(
    logprobs: Tensor, old_logprobs: Tensor, response_mask: Tensor, limit: float = TOKEN_LIMIT
) -> Tensor:
    """The token ratio: log ρ_{i,t} = log π_θ(y_t) − log π_old(y_t), clamped to ±limit with zero gradient beyond.

    logprobs, old_logprobs: (B, T); response_mask: (B, T) bool; returns (B, T), 0 where masked (arXiv:1707.06347).
    """
    return masked_difference(logprobs, old_logprobs, response_mask).clamp(-limit, limit)


def sequence_log_ratio(
    logprobs: Tensor, old_logprobs: Tensor, response_mask: Tensor, limit: float = SEQUENCE_LIMIT
) -> Tensor:
    """The sequence ratio: log s_i = (1/|y_i|) Σ_t log ρ_{i,t}, at most limit with zero gradient beyond.

    s_i = (π_θ(y_i)/π_old(y_i))^(1/|y_i|) (arXiv:2507.18071). logprobs, old_logprobs: (B, T); response_mask: (B, T)
    bool; returns (B, T), a row's value on each of its tokens and 0 where masked. The gradient is the true one: each
    token's log-prob gets 1/|y_i| of it.
    """
    difference = masked_difference(logprobs, old_logprobs, response_mask)
    mean = difference.sum(1) / response_mask.sum(1).clamp(min=1)
    return torch.where(response_mask, mean.clamp(max=limit)[:, None], 0.0)


@kind("ratio")
class Ratio(ABC):
    """How far the policy has moved on a rollout since its log-probs were taken."""

    @abstractmethod
    def __call__(self, logprobs: Tensor, old_logprobs: Tensor, response_mask: Tensor) -> Tensor:
        """The log-ratio, (B, T), 0 where masked; its exp must be finite."""


@register(source="arXiv:1707.06347; clamped as verl 0.9.1")
class TokenRatio(Ratio):
    """One ratio a token: π_θ(y_t)/π_old(y_t). See `token_log_ratio`."""

    def __call__(self, logprobs: Tensor, old_logprobs: Tensor, response_mask: Tensor) -> Tensor:
        """(B, T) log-ratios."""
        return token_log_ratio(logprobs, old_logprobs, response_mask)


@register(source="arXiv:2507.18071; clamped as verl 0.9.1")
class SequenceRatio(Ratio):
    """One length-normalised ratio a rollout, on each of its tokens. See `sequence_log_ratio`."""

    def __call__(self, logprobs: Tensor, old_logprobs: Tensor, response_mask: Tensor) -> Tensor:
        """(B, T) log-ratios."""
        return sequence_log_ratio(logprobs, old_logprobs, response_mask)
