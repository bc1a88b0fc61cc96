"""A clip schedule that widens along a cosine: nearly flat at both ends, steepest for groups that are half right."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gapo_lit.clipping.schedules import AdaptiveClip
from gapo_lit.registry import register


def cosine_shape(scarcity: Tensor) -> Tensor:
    """(1 − cos(π·s))/2, which is 0 at s=0 and 1 at s=1. scarcity: (B,) in [0, 1]; returns (B,)."""
    return (1 - torch.cos(math.pi * scarcity)) / 2


@register(source="example plug-in of gapo-lit")
class CosineClip(AdaptiveClip):
    """ε_hi = eps_lo + (eps_max − eps_lo)·(1 − cos(π·s))/2, s the scarcity (k−c)/(k−1) of a correct rollout."""

    def shape(self, scarcity: Tensor, group_size: Tensor, widened: Tensor) -> Tensor:
        """See `cosine_shape`."""
        return cosine_shape(scarcity)
