"""Clip schedules (how wide, from the group) and surrogate losses (what the bounds do). Needs torch alone."""

from gapo_lit.clipping.schedules import (
    AdaptiveClip,
    ClipSchedule,
    ConstantClip,
    ExponentialClip,
    GAPOClip,
    HarmonicClip,
    MatchedWidthClip,
    ReversedClip,
    TwoSidedClip,
)
from gapo_lit.clipping.surrogate import CISPO, DualClip, PPOClip, Surrogate, TokenLoss

__all__ = [
    "CISPO",
    "AdaptiveClip",
    "ClipSchedule",
    "ConstantClip",
    "DualClip",
    "ExponentialClip",
    "GAPOClip",
    "HarmonicClip",
    "MatchedWidthClip",
    "PPOClip",
    "ReversedClip",
    "Surrogate",
    "TokenLoss",
    "TwoSidedClip",
]
