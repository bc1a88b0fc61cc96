"""The schedule meets its end points and its middle."""

import torch
from gapo_lit_cosine_clip import CosineClip

from gapo_lit.types import GroupStats


def test_end_points_and_middle() -> None:
    """C = 1, half way, and c = k of groups of 9."""
    k = 9
    count = torch.tensor([1, 5, 9])
    groups = GroupStats(
        correct=torch.ones(3, dtype=torch.bool),
        success_count=count,
        group_size=torch.full((3,), k),
        centered=1 - count / k,
    )
    bounds = CosineClip(eps_lo=0.2, eps_max=0.4)(groups)
    torch.testing.assert_close(bounds.eps_hi, torch.tensor([0.4, 0.3, 0.2]))
    torch.testing.assert_close(bounds.eps_lo, torch.full((3,), 0.2))
