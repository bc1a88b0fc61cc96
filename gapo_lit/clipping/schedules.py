"""Clip schedules: how far each rollout's ratio may move before the surrogate stops pushing it.

A schedule maps what is known of a rollout's group to its bounds. The adaptive ones share one form: a rollout's scarcity
in [0, 1] (1: the only correct one of its group, 0: one of k) goes through a function f into [0, 1], and the upper bound
is eps_lo + (eps_max − eps_lo)·f(scarcity). Incorrect rollouts, and those of a group of one, keep eps_lo on both sides.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from gapo_lit.clipping.shapes import (
    exponential_shape,
    harmonic_shape,
    scarcity_by_advantage,
    scarcity_by_count,
)
from gapo_lit.registry import kind, register
from gapo_lit.types import ClipBounds, GroupStats

Form = Literal["count", "advantage"]


@kind("clip")
class ClipSchedule(ABC):
    """Clip bounds a rollout, from its group."""

    @abstractmethod
    def __call__(self, groups: GroupStats) -> ClipBounds:
        """Bounds (B,) for the rollouts of one complete rollout batch."""

    def check(self, group_size: int) -> None:
        """Raise ValueError where the schedule means nothing for groups of this size."""
        if group_size < 1:
            raise ValueError(f"group_size={group_size} leaves no rollout to learn from; give at least 1")


@register(source="arXiv:1707.06347 (PPO); eps_hi > eps_lo is clip-higher, arXiv:2503.14476 (DAPO)")
class ConstantClip(ClipSchedule):
    """The same [1 − eps_lo, 1 + eps_hi] for every rollout; symmetric where the two are equal."""

    def __init__(self, eps_lo: float, eps_hi: float) -> None:
        _check_eps_lo(eps_lo)
        if not (math.isfinite(eps_hi) and eps_hi > 0):
            raise ValueError(f"eps_hi={eps_hi} must be finite and above 0; give eps_lo for a symmetric clip")
        self.eps_lo = eps_lo
        self.eps_hi = eps_hi

    def __call__(self, groups: GroupStats) -> ClipBounds:
        """Bounds that do not look at the group."""
        like = groups.centered
        return ClipBounds(torch.full_like(like, self.eps_lo), torch.full_like(like, self.eps_hi))


class AdaptiveClip(ClipSchedule):
    """What the schedules that widen the upper bound with scarcity have in common.

    eps_lo: the lower bound, and the narrowest upper one. eps_max: the widest upper bound, for a scarcity of 1.
    form: "count" takes (k−c)/(k−1) of a correct rollout. "advantage" takes A·k/(k−1), clamped to [0, 1], of any rollout
    above its group's mean: the same for binary rewards, and defined for graded ones.
    """

    def __init__(self, eps_lo: float, eps_max: float, form: Form = "count") -> None:
        _check_eps_lo(eps_lo)
        if not math.isfinite(eps_max):
            raise ValueError(f"eps_max={eps_max} must be finite; give a width such as 1.5 times eps_lo")
        if eps_max < eps_lo:
            raise ValueError(
                f"eps_max={eps_max} is below eps_lo={eps_lo}; the adaptive clip widens from eps_lo, "
                "so give eps_max >= eps_lo"
            )
        if form not in ("count", "advantage"):
            raise ValueError(f"form={form!r} is not known; give 'count' (binary rewards) or 'advantage' (graded ones)")
        self.eps_lo = eps_lo
        self.eps_max = eps_max
        self.form = form

    @abstractmethod
    def shape(self, scarcity: Tensor, group_size: Tensor, widened: Tensor) -> Tensor:
        """Where each upper bound lies between eps_lo (0) and eps_max (1).

        scarcity: (B,) float in [0, 1]; group_size: (B,) long; widened: (B,) bool, the rollouts whose bound is used.
        """

    def __call__(self, groups: GroupStats) -> ClipBounds:
        """Bounds eps_lo below, and eps_lo + (eps_max − eps_lo)·shape above for correct rollouts."""
        by_count = self.form == "count"
        scarcity = scarcity_by_count(groups) if by_count else scarcity_by_advantage(groups)
        widened = (groups.correct if by_count else groups.centered > 0) & (groups.group_size > 1)
        low = scarcity.new_tensor(self.eps_lo)
        high = scarcity.new_tensor(self.eps_max)
        # lerp returns its end points exactly, which low + (high − low)·1 does not in floating point
        wide = torch.lerp(low, high, self.shape(scarcity, groups.group_size, widened))
        return ClipBounds(low.expand_as(scarcity).clone(), torch.where(widened, wide, low))

    def check(self, group_size: int) -> None:
        """Adaptive schedules divide by k − 1: groups of one are refused."""
        if group_size < 2:
            raise ValueError(
                f"{type(self).__name__} needs groups to compare successes in, and group_size={group_size} has none; "
                "give at least 2, or ConstantClip"
            )


@register(source="arXiv:2609.00444, Eq. 11")
class GAPOClip(AdaptiveClip):
    """ε_hi(c) = eps_lo + (eps_max − eps_lo)·(k−c)/(k−1) for a correct rollout: linear in the success count c."""

    def shape(self, scarcity: Tensor, group_size: Tensor, widened: Tensor) -> Tensor:
        """The scarcity itself."""
        return scarcity


@register(source="arXiv:2609.00444, Eqs. 8-9, normalised to Eq. 11's end points")
class ExponentialClip(AdaptiveClip):
    """ε_hi ∝ exp(A/lam) − 1, the trust region's own bound before it is linearised. See `exponential_shape`.

    lam: the region's Lagrange multiplier in units of the advantage (at most 1); small bends more, large is GAPOClip.
    """

    def __init__(self, eps_lo: float, eps_max: float, lam: float, form: Form = "count") -> None:
        super().__init__(eps_lo, eps_max, form)
        if not 1e-3 <= lam <= 1e3:
            raise ValueError(
                f"lam={lam} is outside [0.001, 1000], where the shape is a step or a line; "
                "give about 1, ConstantClip for the step or GAPOClip for the line"
            )
        self.lam = lam

    def shape(self, scarcity: Tensor, group_size: Tensor, widened: Tensor) -> Tensor:
        """(exp(A/lam) − 1)/(exp(A_1/lam) − 1), A_1 the advantage at c=1."""
        return exponential_shape(scarcity, group_size, self.lam)


@register(source="reference code of arXiv:2609.00444 has one of this name; form ours: 1/c with Eq. 11's end points")
class HarmonicClip(AdaptiveClip):
    """ε_hi linear in 1/c: eps_lo + (eps_max − eps_lo)·(1/c − 1/k)/(1 − 1/k). See `harmonic_shape`."""

    def shape(self, scarcity: Tensor, group_size: Tensor, widened: Tensor) -> Tensor:
        """(1/c − 1/k)/(1 − 1/k)."""
        return harmonic_shape(scarcity, group_size)


@register(source="control for arXiv:2609.00444")
class MatchedWidthClip(AdaptiveClip):
    """GAPO's average width without its adaptivity: all correct rollouts get the mean of GAPO's bounds over them.

    The mean is over the rollouts of the batch handed in: in training the whole rollout batch, over all ranks.
    """

    def shape(self, scarcity: Tensor, group_size: Tensor, widened: Tensor) -> Tensor:
        """The mean scarcity of the widened rollouts, for each of them."""
        mean = torch.where(widened, scarcity, 0.0).sum() / widened.sum().clamp(min=1)
        return mean.expand_as(scarcity)


@register(source="control for arXiv:2609.00444")
class ReversedClip(AdaptiveClip):
    """GAPO turned round, eps_lo + (eps_max − eps_lo)·(c−1)/(k−1): the abundant correct rollouts get the wide clip."""

    def shape(self, scarcity: Tensor, group_size: Tensor, widened: Tensor) -> Tensor:
        """1 − scarcity."""
        return 1 - scarcity


@register(source="extension of arXiv:2609.00444, which adapts the upper bound alone")
class TwoSidedClip(ClipSchedule):
    """Any schedule, and its mirror image below: a scarce incorrect rollout gets the wide lower bound.

    The lower bounds are what base gives above when successes and failures change places, so with GAPOClip an incorrect
    rollout has ε_lo = eps_lo + (eps_max − eps_lo)·c/(k−1). A correct rollout's lower bound cannot bind (A > 0).
    base: the schedule to mirror; its widest bound must be below 1.
    """

    def __init__(self, base: ClipSchedule) -> None:
        self.base = base

    def __call__(self, groups: GroupStats) -> ClipBounds:
        """Upper bounds of base, lower bounds of base for the mirrored groups."""
        mirrored = replace(
            groups,
            correct=~groups.correct,
            success_count=groups.group_size - groups.success_count,
            centered=-groups.centered,
        )
        return ClipBounds(eps_lo=self.base(mirrored).eps_hi, eps_hi=self.base(groups).eps_hi)

    def check(self, group_size: int) -> None:
        """Base's own check, and that no lower bound reaches a ratio of 0."""
        self.base.check(group_size)
        count = torch.arange(group_size)
        widest = self(
            GroupStats(
                correct=torch.zeros_like(count, dtype=torch.bool),
                success_count=count,
                group_size=torch.full_like(count, group_size),
                centered=-count.double() / group_size,
            )
        ).eps_lo.max()
        if widest >= 1:
            raise ValueError(
                f"the mirrored lower bound reaches {widest.item():.4g}, below a ratio of 0, where it cannot bind; "
                "give base a widest upper bound below 1"
            )


def _check_eps_lo(eps_lo: float) -> None:
    if not 0 < eps_lo < 1:
        raise ValueError(
            f"eps_lo={eps_lo} is outside (0, 1), as the lower end of the clip is a ratio of 1 - eps_lo; "
            "give e.g. 0.2 for a token ratio or 3e-3 for a sequence ratio"
        )
