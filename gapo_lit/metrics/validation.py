"""What one validation says, over all ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gapo_lit.metrics.pass_at_k import PassAtK
from gapo_lit.metrics.rollouts import Ranks, add_metrics, mean_of, reduce_metrics, sample_metrics
from gapo_lit.types import Metrics, Rollout


class ValidationMetrics:
    """pass@k for k = 1, 2, 4, … and `samples`, the completions a problem; mean reward, lengths and missing verdicts.

    A problem that lacks a verdict is left out of pass@k, as fewer samples would estimate another quantity; it shows in
    verdicts/none_fraction.
    """

    def __init__(self, samples: int, device: torch.device) -> None:
        self._pass_at_k = PassAtK(sorted({samples, *(1 << i for i in range(samples.bit_length()))})).to(device)
        self._means: Metrics = {}

    def update(self, rollouts: Sequence[Rollout]) -> None:
        """Add graded rollouts, all those of a problem at once."""
        problems: dict[int, list[Rollout]] = {}
        for rollout in rollouts:
            problems.setdefault(rollout.group, []).append(rollout)
        reward = mean_of([r.verdict.score for r in rollouts if r.verdict.score is not None])
        self._means = add_metrics(self._means, {"reward": reward, **sample_metrics(rollouts)})
        whole = [group for group in problems.values() if all(r.verdict.kind != "none" for r in group)]
        if whole:
            n = torch.tensor([len(group) for group in whole])
            c = torch.tensor([sum(r.verdict.kind == "correct" for r in group) for group in whole])
            self._pass_at_k.update(n, c)

    def compute(self, ranks: Ranks) -> dict[str, float]:
        """Name → value; a collective."""
        passed = {name: float(value) for name, value in self._pass_at_k.compute().items()}
        return reduce_metrics(self._means, ranks) | passed
