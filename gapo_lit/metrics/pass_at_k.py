"""pass@k: the chance that at least one of k samples of a problem is right."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 − C(n−c, k)/C(n, k), unbiased from n samples of which c are right (arXiv:2107.03374, Eq. 1).

    Exact: integers, then one correctly rounded division. Raises ValueError for k > n, where the estimate is undefined
    (a common implementation returns 1.0), and for counts that cannot be.
    """
    if k < 1:
        raise ValueError(f"pass@{k} asks for no sample at all; give k >= 1")
    if not 0 <= c <= n:
        raise ValueError(f"c={c} right samples of n={n} cannot be; give 0 <= c <= n")
    if k > n:
        raise ValueError(f"pass@{k} cannot be estimated from n={n} samples; sample at least {k} a problem, or lower k")
    subsets = math.comb(n, k)
    return (subsets - math.comb(n - c, k)) / subsets


class PassAtK(Metric):
    """Mean pass@k over problems, for several k, over all ranks.

    ks: the k's. `update` takes problems, as (n, c) a problem; n may differ between problems. `compute` returns
    {"pass@1": …}, each scalar float64, NaN before the first problem.
    """

    full_state_update = False
    higher_is_better = True
    n: list[Tensor]
    c: list[Tensor]

    def __init__(self, ks: Sequence[int] = (1,)) -> None:
        super().__init__()
        if not ks or any(k < 1 for k in ks):
            raise ValueError(f"ks={list(ks)} must name at least one k, each at least 1; give e.g. [1, 8]")
        self.ks = tuple(sorted(set(ks)))
        # float32, exact for counts: a rank that saw no problem sends an empty tensor of the metric's own dtype
        self.add_state("n", default=[], dist_reduce_fx="cat")
        self.add_state("c", default=[], dist_reduce_fx="cat")

    def update(self, n: Tensor, c: Tensor) -> None:
        """Add problems. n, c: (P,), samples and right samples a problem. Raises ValueError where n is below a k."""
        if n.ndim != 1 or n.shape != c.shape:
            raise ValueError(
                f"n has shape {tuple(n.shape)} and c {tuple(c.shape)}; give both as one number a problem, (P,)"
            )
        for samples, right in zip(n.tolist(), c.tolist(), strict=True):
            pass_at_k(samples, right, self.ks[-1])
        self.n.append(n.to(self.device, torch.float32))
        self.c.append(c.to(self.device, torch.float32))

    def compute(self) -> dict[str, Tensor]:
        """{"pass@k": mean over problems} for each k."""
        pairs = list(zip(_counts(self.n), _counts(self.c), strict=True))
        return {f"pass@{k}": _mean([pass_at_k(n, c, k) for n, c in pairs]) for k in self.ks}


def _counts(state: Tensor | list[Tensor]) -> list[int]:
    parts = [state] if isinstance(state, Tensor) else state
    return [int(x) for part in parts for x in part.tolist()]


def _mean(values: list[float]) -> Tensor:
    return torch.tensor(math.fsum(values) / len(values) if values else math.nan, dtype=torch.float64)
