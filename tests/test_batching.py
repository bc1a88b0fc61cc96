"""Rollouts become tensors by group id, whatever their order; updates divide by counts over all ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from gapo_lit.batching import live_rows, rollout_batch, update_batches
from gapo_lit.clipping import ConstantClip, GAPOClip, MatchedWidthClip, PPOClip
from gapo_lit.packing import plan_micro_batches
from gapo_lit.policies import K1, GroupMean, Objective, SequenceMeanTokenMean, SequenceRatio, TokenMean
from gapo_lit.types import Completion, Example, Prompt, Rollout, Verdict


class Alone:
    """The collectives of a single process."""

    rank = 0

    def reduce(self, tensor: Tensor, how: Literal["sum", "max"]) -> Tensor:
        return tensor

    def gather(self, mine: Any) -> list[Any]:
        return [mine]


class OneOf(Alone):
    """A rank of two whose other rank's contribution is known."""

    def __init__(self, rank: int, theirs: Any) -> None:
        self.rank, self.theirs = rank, theirs

    def gather(self, mine: Any) -> list[Any]:
        return [mine, self.theirs] if self.rank == 0 else [self.theirs, mine]


def rollout(group: int, score: float | None, tokens: int = 2, version: int = 0) -> Rollout:
    verdict = Verdict.none("lost") if score is None else Verdict("correct" if score == 1 else "incorrect", score)
    completion = Completion((7,) * tokens, (-1.0,) * tokens, "", "stop")
    return Rollout(Prompt(Example(f"p{group}", "?", "1"), (group + 1,) * 3, ""), completion, verdict, group, version)


def objective(clip: Any = None, **parts: Any) -> Objective:
    chosen = {"aggregation": SequenceMeanTokenMean(), **parts}
    return Objective(SequenceRatio(), GroupMean(), clip or GAPOClip(0.1, 0.4), PPOClip(), **chosen)


def test_groups_are_told_by_id_and_not_by_position() -> None:
    """The nine rewards of unequal groups, in order and interleaved."""
    rewards, group = [1, 2, 3, 4, 10, 12, 5, 6, 7], [0, 0, 0, 0, 1, 1, 2, 2, 2]
    samples = [rollout(g, float(r)) for r, g in zip(rewards, group, strict=True)]
    batch = rollout_batch(samples, 1.0, objective(ConstantClip(0.1, 0.1)), Alone())
    order = [0, 4, 6, 1, 5, 7, 2, 8, 3]
    mixed = rollout_batch([samples[i] for i in order], 1.0, objective(ConstantClip(0.1, 0.1)), Alone())
    assert torch.equal(mixed.advantages, batch.advantages[order])
    for g in range(3):
        assert batch.advantages[batch.group == g].sum() == pytest.approx(0, abs=1e-6)


def test_a_rollout_without_verdict_leaves_its_group() -> None:
    batch = rollout_batch([rollout(0, 1.0), rollout(0, None), rollout(0, 0.0)], 1.0, objective(), Alone())
    assert len(batch) == 2
    assert batch.groups.group_size.tolist() == [2, 2]
    assert batch.advantages.tolist() == [0.5, -0.5]


def test_rollouts_of_two_policy_versions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"policy versions \[0, 1\]"):
        rollout_batch([rollout(0, 1.0), rollout(0, 0.0, version=1)], 1.0, objective(), Alone())


def test_credit_looks_at_the_rollouts_of_all_ranks() -> None:
    """A clip of matched width is the same for every rank, though their groups differ."""
    mine = [rollout(0, 1.0), rollout(0, 0.0), rollout(0, 0.0), rollout(0, 0.0)]
    theirs = [rollout(0, 1.0), rollout(0, 1.0), rollout(0, 1.0), rollout(0, 0.0)]
    judged = objective(MatchedWidthClip(0.1, 0.4))
    together = rollout_batch([*mine, *(replace(r, group=1) for r in theirs)], 1.0, judged, Alone())

    def told(samples: list[Rollout]) -> Any:
        rewards = torch.tensor([r.verdict.score for r in samples])
        return rewards, rewards == 1, torch.zeros(4, dtype=torch.long), 1

    first = rollout_batch(mine, 1.0, judged, OneOf(0, told(theirs)))
    second = rollout_batch(theirs, 1.0, judged, OneOf(1, told(mine)))
    assert torch.equal(torch.cat([first.bounds.eps_hi, second.bounds.eps_hi]), together.bounds.eps_hi)
    assert torch.equal(torch.cat([first.advantages, second.advantages]), together.advantages)


def test_denominators_count_rollouts_that_need_no_gradient() -> None:
    samples = [rollout(0, 1.0, 3), rollout(0, 1.0, 2), rollout(1, 1.0, 4), rollout(1, 0.0, 1)]
    tokens = objective(aggregation=TokenMean())
    first, second = updates(samples, tokens)
    assert (first.denominator, second.denominator) == (5, 5)
    assert first.micro_batches == ()  # a unanimous group has no advantage
    assert [sorted(m.rows.tolist()) for m in second.micro_batches] == [[0, 1]]
    assert [len(u.samples) for u in (first, second)] == [2, 2]


def test_a_kl_term_acts_on_rollouts_without_advantage_too() -> None:
    batch = rollout_batch([rollout(0, 1.0), rollout(0, 1.0)], 1.0, objective(), Alone())
    assert live_rows(batch, objective()).tolist() == []
    assert live_rows(batch, objective(kl=K1(), kl_coef=0.1)).tolist() == [0, 1]


def test_every_rank_gets_as_many_micro_batches_as_the_busiest() -> None:
    class Busier(Alone):
        def reduce(self, tensor: Tensor, how: Literal["sum", "max"]) -> Tensor:
            return tensor if how == "sum" else tensor + 2

    first, _ = updates([rollout(0, 1.0), rollout(0, 0.0), rollout(1, 0.0), rollout(1, 0.0)], objective(), Busier())
    assert [len(m.rows) for m in first.micro_batches] == [2, 0, 0]


def updates(samples: list[Rollout], judged: Objective, ranks: Alone | None = None) -> list[Any]:
    ranks = ranks or Alone()
    plan: Callable[..., Any] = partial(plan_micro_batches, token_budget=1000, share_prompts=True)
    return update_batches(rollout_batch(samples, 1.0, judged, ranks), samples, 2, judged, plan, ranks)
