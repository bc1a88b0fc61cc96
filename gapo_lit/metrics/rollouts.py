"""What a batch of rollouts looks like before anything is learnt from it, and reducing metrics over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar

import torch
from torch import Tensor

from gapo_lit.types import Mean, Metrics, Rollout, RolloutBatch

T = TypeVar("T")


def sample_metrics(samples: Sequence[Rollout]) -> Metrics:
    """Lengths, truncation and missing verdicts, each a mean over completions; and the parts of a combined reward."""
    metrics = {
        "completions/mean_length": mean_of([len(r.completion.token_ids) for r in samples]),
        "completions/truncated_fraction": mean_of([r.completion.finish_reason == "length" for r in samples]),
        "verdicts/none_fraction": mean_of([r.verdict.kind == "none" for r in samples]),
    }
    for name in sorted({name for r in samples for name in r.verdict.components}):
        metrics[f"reward/{name}"] = mean_of(
            [r.verdict.components[name] for r in samples if name in r.verdict.components]
        )
    return metrics


def rollout_metrics(rollouts: RolloutBatch, samples: Sequence[Rollout]) -> Metrics:
    """`sample_metrics`, and rewards and how the groups came out, over the rollouts with a verdict.

    A group is unanimous when all its rewards are equal. There may be no rollouts: a mean then has a zero count.
    """
    return sample_metrics(samples) | {
        "reward": mean_of(rollouts.rewards.tolist()),
        "pass@1": mean_of(rollouts.groups.correct.tolist()),
        "groups/unanimous_fraction": mean_of(unanimous(rollouts).tolist()),
    }


def unanimous(rollouts: RolloutBatch) -> Tensor:
    """(groups present,) bool: whether all rewards of the group are equal, so that no rollout of it has an advantage."""
    _, index = torch.unique(rollouts.group, return_inverse=True)
    return torch.bincount(index, weights=(rollouts.groups.centered != 0).double()) == 0


class Ranks(Protocol):
    """What the processes of a job tell one another (`gapo_lit.sharding.Collectives`)."""

    @property
    def rank(self) -> int:
        """The number of this one."""

    def reduce(self, tensor: Tensor, how: Literal["sum", "max"]) -> Tensor:
        """The sum or maximum over ranks."""

    def gather(self, mine: T) -> list[T]:
        """What each rank has, by rank."""


def reduce_metrics(metrics: Metrics, ranks: Ranks) -> dict[str, float]:
    """Values over all ranks; a vector becomes `name/c=0`, `name/c=1`, …. A mean of nothing is left out.

    A rank may lack names that others have: it then counts nothing of them.
    """
    sums: dict[str, Tensor] = {}
    for name, mean in metrics.items():
        bins = [name] if mean.total.ndim == 0 else [f"{name}/c={c}" for c in range(mean.total.numel())]
        both = torch.stack([mean.total.detach().double(), mean.count.detach().double()]).reshape(2, -1)
        sums.update(zip(bins, both.T.cpu(), strict=True))
    names = sorted({name for theirs in ranks.gather(list(sums)) for name in theirs})
    if not names:
        return {}
    nothing = torch.zeros(2, dtype=torch.float64)
    reduced = ranks.reduce(torch.stack([sums.get(name, nothing) for name in names]), "sum").tolist()
    return {name: total / count for name, (total, count) in zip(names, reduced, strict=True) if count}


def add_metrics(a: Metrics, b: Metrics) -> Metrics:
    """Sums of both; a name in one only is kept."""
    return a | {name: a[name] + mean if name in a else mean for name, mean in b.items()}


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of plain numbers, of none too."""
    return Mean(torch.tensor(float(sum(values))), torch.tensor(float(len(values))))
