"""Advantages of rollouts over their group, each by group id: (rewards, group) → one number a rollout."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from torch import Tensor

from gapo_lit.policies.groups import group_center, group_mean, group_size, group_sum
from gapo_lit.registry import kind, register


def group_standardize(rewards: Tensor, group: Tensor, eps: float) -> Tensor:
    """A_i = (r_i − mean)/(std + eps) over i's group, std with k − 1 in its denominator (arXiv:2402.03300).

    rewards, group: (B,); returns (B,), exactly 0 in a unanimous group and in a group of one.
    """
    centered = group_center(rewards, group)
    variance = group_sum(centered.square(), group) / (group_size(group) - 1).clamp(min=1)
    return centered / (variance.sqrt() + eps)


def leave_one_out(rewards: Tensor, group: Tensor) -> Tensor:
    """A_i = r_i − mean of r over the others of i's group = (r_i − mean)·k/(k−1) (arXiv:2402.14740).

    rewards, group: (B,); returns (B,), exactly 0 in a unanimous group and in a group of one.
    """
    size = group_size(group)
    return group_center(rewards, group) * size / (size - 1).clamp(min=1)


def focal_weight(rewards: Tensor, group: Tensor, gamma: float) -> Tensor:
    """(1 − c/k)^gamma, with c/k the group's mean reward (arXiv:2602.06717).

    rewards, group: (B,); returns (B,) in [0, 1]. Graded rewards are clamped to [0, 1] before the mean.
    """
    values = rewards if rewards.is_floating_point() else rewards.float()
    return (1 - group_mean(values.clamp(0, 1), group)).clamp(min=0) ** gamma


@kind("advantage")
class Advantage(ABC):
    """How much better a rollout did than its group."""

    @abstractmethod
    def __call__(self, rewards: Tensor, group: Tensor) -> Tensor:
        """Advantages (B,) from rewards (B,) and group ids (B,); a reward that is not finite raises ValueError."""


@register(source="arXiv:2503.20783 (Dr.GRPO)")
class GroupMean(Advantage):
    """A_i = r_i − group mean."""

    def __call__(self, rewards: Tensor, group: Tensor) -> Tensor:
        """(B,) advantages; each group's sum to 0."""
        return group_center(rewards, group)


@register(source="arXiv:2402.03300 (GRPO)")
class GroupStd(Advantage):
    """A_i = (r_i − group mean)/(group std + eps). eps: keeps nearly equal rewards from dividing by nearly 0."""

    def __init__(self, eps: float = 1e-6) -> None:
        if not (math.isfinite(eps) and eps > 0):
            raise ValueError(f"eps={eps} must be finite and above 0, as it is what a tiny std is added to; give 1e-6")
        self.eps = eps

    def __call__(self, rewards: Tensor, group: Tensor) -> Tensor:
        """(B,) advantages; each group's sum to 0."""
        return group_standardize(rewards, group, self.eps)


@register(source="arXiv:2402.14740 (RLOO)")
class LeaveOneOut(Advantage):
    """A_i = r_i − mean of the group's other rewards."""

    def __call__(self, rewards: Tensor, group: Tensor) -> Tensor:
        """(B,) advantages; each group's sum to 0."""
        return leave_one_out(rewards, group)


@register(source="arXiv:2602.06717 (F-GRPO)")
class Focal(Advantage):
    """(1 − c/k)^gamma · A_i: prompts that are mostly solved count less. base: A_i. gamma: 0 leaves it as it is."""

    def __init__(self, base: Advantage, gamma: float) -> None:
        if not (math.isfinite(gamma) and gamma >= 0):
            raise ValueError(f"gamma={gamma} must be finite and not below 0; give 0 for the base advantage alone")
        self.base = base
        self.gamma = gamma

    def __call__(self, rewards: Tensor, group: Tensor) -> Tensor:
        """(B,) advantages; a group's sum to 0 where the base's do, as the weight is the group's."""
        return self.base(rewards, group) * focal_weight(rewards, group, self.gamma)
