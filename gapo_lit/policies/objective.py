"""The objective of an algorithm, composed of its parts. Which parts make GRPO, GSPO or GAPO is a recipe's business."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gapo_lit.clipping.schedules import ClipSchedule
from gapo_lit.clipping.surrogate import Surrogate, TokenLoss
from gapo_lit.policies.advantages import Advantage
from gapo_lit.policies.aggregation import Aggregation
from gapo_lit.policies.correction import Correction, mismatch_metrics
from gapo_lit.policies.groups import group_stats
from gapo_lit.policies.kl import KLEstimator
from gapo_lit.policies.masking import masked_mean, masked_mean_by_row_bin
from gapo_lit.policies.ratio import Ratio
from gapo_lit.types import ClipBounds, GroupStats, LossInputs, Metrics


class Objective:
    """loss = Σ_{i,t} w_{i,t}·(u_{i,t}·ℓ_{i,t} + kl_coef·KL_{i,t}) / denominator.

    w is the aggregation's weight, u the correction's (1 without one), ℓ the surrogate's loss. The denominator is
    `denominator(mask)` summed over all micro-batches and ranks of the update; the losses of the micro-batches then add
    up to the update's.

    group_size: rollouts a prompt; metrics by success count have one bin for each of 0..group_size. None: no such
    metrics.
    """

    def __init__(
        self,
        ratio: Ratio,
        advantage: Advantage,
        clip: ClipSchedule,
        surrogate: Surrogate,
        aggregation: Aggregation,
        kl: KLEstimator | None = None,
        kl_coef: float = 0.0,
        correction: Correction | None = None,
        group_size: int | None = None,
    ) -> None:
        if not (math.isfinite(kl_coef) and kl_coef >= 0):
            raise ValueError(f"kl_coef={kl_coef} must be finite and not below 0; give 0 to turn the penalty off")
        if kl_coef > 0 and kl is None:
            raise ValueError(f"kl_coef={kl_coef} without a KL estimator penalises nothing; give kl=K3() or kl_coef=0")
        if group_size is not None:
            clip.check(group_size)
        self.ratio = ratio
        self.advantage = advantage
        self.clip = clip
        self.surrogate = surrogate
        self.aggregation = aggregation
        self.kl = kl
        self.kl_coef = kl_coef
        self.correction = correction
        self.group_size = group_size

    @property
    def needs_reference(self) -> bool:
        """Whether inputs must carry the reference model's log-probs."""
        return self.kl is not None

    @property
    def exact_zero_skip(self) -> bool:
        """Whether rollouts of advantage 0 need no forward or backward pass: they add nothing but to the denominator."""
        return self.kl is None and self.surrogate.zero_without_advantage

    def credit(self, rewards: Tensor, correct: Tensor, group: Tensor) -> tuple[Tensor, GroupStats, ClipBounds]:
        """Advantages, group statistics and clip bounds of a complete rollout batch, by group id.

        rewards: (B,); correct: (B,) bool; group: (B,) long. A reward that is not finite raises ValueError.
        """
        groups = group_stats(rewards, correct, group)
        return self.advantage(rewards, group), groups, self.clip(groups)

    def denominator(self, response_mask: Tensor) -> Tensor:
        """The share of the loss denominator that these rows, trained or skipped, contribute; (B, T) bool → scalar."""
        return self.aggregation.count(response_mask)

    def __call__(self, inputs: LossInputs, denominator: Tensor) -> tuple[Tensor, Metrics]:
        """One micro-batch's part of the update's loss, and its metrics.

        denominator: scalar, of the whole update batch; 0 (everything masked) gives a loss of 0, not NaN.
        """
        mask = inputs.response_mask
        log_ratio = self.ratio(inputs.logprobs, inputs.old_logprobs, mask)
        token = self.surrogate(log_ratio, inputs)
        loss = token.loss
        metrics = clip_metrics(token, mask, inputs.groups, self.group_size)
        metrics |= ratio_metrics(log_ratio, mask, inputs.groups, self.group_size)
        metrics |= mismatch_metrics(inputs.old_logprobs, inputs.sampler_logprobs, mask)
        if self.correction is not None:
            loss = loss * self.correction(inputs.old_logprobs, inputs.sampler_logprobs, mask)
        if self.kl is not None:
            kl = self._kl(self.kl, inputs)
            metrics["kl"] = masked_mean(kl, mask)
            loss = loss + self.kl_coef * kl
        weighted = self.aggregation.weights(mask) * torch.where(mask, loss, 0.0)
        return weighted.sum() / denominator.clamp(min=1), metrics

    def skipped_metrics(self, response_mask: Tensor, groups: GroupStats) -> Metrics:
        """Clip metrics of rollouts that were skipped for an advantage of 0: nothing clipped, but counted.

        response_mask: (B, T) bool. Added to the metrics of the trained rollouts they make the clip fractions those of
        all response tokens of the update batch. Ratios and mismatch were not computed and stay means over trained
        rollouts.
        """
        none = torch.zeros_like(response_mask)
        token = TokenLoss(none.float(), none, none, none if self.surrogate.reports_dual else None)
        return clip_metrics(token, response_mask, groups, self.group_size)

    def _kl(self, estimator: KLEstimator, inputs: LossInputs) -> Tensor:
        if inputs.ref_logprobs is None:
            raise ValueError(
                "ref_logprobs is None although the objective has a KL term; score the rollouts with a reference"
            )
        mask = inputs.response_mask
        return estimator(torch.where(mask, inputs.logprobs, 0.0), torch.where(mask, inputs.ref_logprobs, 0.0))


@torch.no_grad()
def clip_metrics(token: TokenLoss, response_mask: Tensor, groups: GroupStats, group_size: int | None) -> Metrics:
    """Fractions of response tokens at which a bound was active: either, low, high, and the last two by success count.

    response_mask: (B, T) bool. `clip_fraction/dual` joins where the surrogate has a floor, and is not in the total.
    """
    fractions = {
        "clip_fraction": token.clipped_low | token.clipped_high,
        "clip_fraction/low": token.clipped_low,
        "clip_fraction/high": token.clipped_high,
    }
    if token.clipped_dual is not None:
        fractions["clip_fraction/dual"] = token.clipped_dual
    metrics = {name: masked_mean(where, response_mask) for name, where in fractions.items()}
    if group_size is not None:
        for side, where in (("low", token.clipped_low), ("high", token.clipped_high)):
            metrics[f"by_count/clip_fraction_{side}"] = masked_mean_by_row_bin(
                where, response_mask, groups.success_count, group_size + 1
            )
    return metrics


@torch.no_grad()
def ratio_metrics(log_ratio: Tensor, response_mask: Tensor, groups: GroupStats, group_size: int | None) -> Metrics:
    """Mean |ratio − 1| over response tokens, and by success count; log_ratio: (B, T); response_mask: (B, T) bool."""
    deviation = log_ratio.expm1().abs()
    metrics = {"ratio/deviation": masked_mean(deviation, response_mask)}
    if group_size is not None:
        metrics["by_count/ratio_deviation"] = masked_mean_by_row_bin(
            deviation, response_mask, groups.success_count, group_size + 1
        )
    return metrics
