"""The curves behind the adaptive clip schedules, on a scarcity in [0, 1]; each (B,) → (B,)."""

from __future__ import annotations

import torch
from torch import Tensor

from gapo_lit.types import GroupStats


def scarcity_by_count(groups: GroupStats) -> Tensor:
    """(k−c)/(k−1) of a correct rollout, 0 of an incorrect one and in a group of one (arXiv:2609.00444, Eq. 11).

    Taken literally at c=0 the formula exceeds 1; such a group has no correct rollout, so all of it gets 0.
    """
    k = groups.group_size.to(groups.centered.dtype)
    return torch.where(groups.correct, (k - groups.success_count) / (k - 1).clamp(min=1), 0.0)


def scarcity_by_advantage(groups: GroupStats) -> Tensor:
    """A·k/(k−1) clamped to [0, 1], A = r − group mean; for binary rewards equal to `scarcity_by_count`."""
    k = groups.group_size.to(groups.centered.dtype)
    return (groups.centered * k / (k - 1).clamp(min=1)).clamp(0, 1)


def exponential_shape(scarcity: Tensor, group_size: Tensor, lam: float) -> Tensor:
    """(exp(A/λ) − 1)/(exp(A_1/λ) − 1), with A the advantage and A_1 = (k−1)/k its value at c=1.

    A per-prompt reverse-KL trust region has the solution ρ* ∝ exp(A/λ), and clipping at ρ* allows ε = exp(A/λ) − 1
    (arXiv:2609.00444, Eqs. 8–9). That is 0 at c=k, where A = 0, and largest at c=1, so dividing by the latter maps it
    to [0, 1] with the end points of the linear schedule. In terms of scarcity s = (k−c)/(k−1), A = (k−c)/k = s·A_1.
    λ → ∞ gives s. The unnormalised bound spans ε_max − ε_lo for λ ≈ A_1/(ε_max − ε_lo), which is over 400 for
    3e-3/5e-3: there exponential and linear cannot be told apart.

    scarcity: (B,); group_size: (B,) long, at least 2 where the result is used; lam > 0.
    """
    k = group_size.to(scarcity.dtype)
    top = (k - 1).clamp(min=1) / k / lam
    here = scarcity * top
    # expm1(here)/expm1(top) with exp(top) cancelled, so that a small λ cannot overflow
    return torch.exp(here - top) * torch.expm1(-here) / torch.expm1(-top)


def harmonic_shape(scarcity: Tensor, group_size: Tensor) -> Tensor:
    """(1/c − 1/k)/(1 − 1/k) = s/c, with c = k − s·(k−1) in [1, k].

    c is read back from the scarcity s, so that graded rewards have one too. scarcity: (B,) in [0, 1]; group_size: (B,).
    """
    return scarcity / (group_size - scarcity * (group_size - 1))
