"""Reductions over the rollouts of a prompt, found by group id and never by position.

Ids need be neither sorted, contiguous nor adjacent, and groups may differ in size, as rollouts without a verdict leave.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gapo_lit.types import GroupStats


def group_sum(values: Tensor, group: Tensor) -> Tensor:
    """For each row the sum of values over its group; values, group: (B,); returns (B,)."""
    index, size = _index(group)
    return values.new_zeros(size).index_add(0, index, values)[index]


def group_size(group: Tensor) -> Tensor:
    """For each row how many rows share its group, k; group: (B,); returns (B,) long."""
    return group_sum(torch.ones_like(group, dtype=torch.long), group)


def group_mean(values: Tensor, group: Tensor) -> Tensor:
    """For each row the mean of values over its group; values, group: (B,); returns (B,)."""
    return group_sum(values, group) / group_size(group)


def group_unanimous(values: Tensor, group: Tensor) -> Tensor:
    """For each row whether all values of its group are the same number; values, group: (B,); returns (B,) bool."""
    index, size = _index(group)
    empty = values.new_zeros(size)
    highest = empty.scatter_reduce(0, index, values, "amax", include_self=False)
    lowest = empty.scatter_reduce(0, index, values, "amin", include_self=False)
    return (highest == lowest)[index]


def group_center(rewards: Tensor, group: Tensor) -> Tensor:
    """A_i = r_i − mean of r over i's group (arXiv:2503.20783).

    rewards, group: (B,); returns (B,) float, exactly 0 in a unanimous group, where the rounded mean need not be r.
    Raises ValueError where a reward is not finite.
    """
    check_rewards(rewards)
    values = rewards if rewards.is_floating_point() else rewards.float()
    return torch.where(group_unanimous(values, group), 0.0, values - group_mean(values, group))


def group_stats(rewards: Tensor, correct: Tensor, group: Tensor) -> GroupStats:
    """What a clip schedule may know of each rollout's group.

    rewards: (B,); correct: (B,) bool, the verifier's verdict; group: (B,) long.
    Raises ValueError where a reward is not finite.
    """
    return GroupStats(
        correct=correct,
        success_count=group_sum(correct.long(), group),
        group_size=group_size(group),
        centered=group_center(rewards, group),
    )


def check_rewards(rewards: Tensor) -> None:
    """Raise ValueError naming the rows whose reward is NaN or infinite."""
    bad = (~torch.isfinite(rewards)).nonzero().flatten().tolist()
    if bad:
        named = ", ".join(f"rewards[{row}]={rewards[row].item()}" for row in bad[:8])
        raise ValueError(
            f"{len(bad)} of {len(rewards)} rollouts have a reward that is not finite ({named}); "
            "have the verifier give such a rollout no verdict, so that it leaves its group"
        )


def _index(group: Tensor) -> tuple[Tensor, int]:
    ids, index = torch.unique(group, return_inverse=True)
    return index, len(ids)
