"""From graded rollouts to the tensors of one rollout batch, and from those to the batches of single optimizer steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from gapo_lit.metrics.rollouts import Ranks
from gapo_lit.packing import pad_sequences
from gapo_lit.policies.objective import Objective
from gapo_lit.types import ClipBounds, GroupStats, MicroBatch, Rollout, RolloutBatch, UpdateBatch


def rollout_batch(samples: Sequence[Rollout], temperature: float, objective: Objective, ranks: Ranks) -> RolloutBatch:
    """One rank's rollouts as tensors, with the objective's advantages and clip bounds.

    A group is never split over ranks, but a part may look at the whole rollout batch (a clip of matched width does), so
    rewards are gathered first and credit is given to all ranks' rollouts at once: one small collective.
    Rollouts without a verdict leave their group here: they count neither in c nor in k. Raises ValueError where the
    samples come from weights of different versions.
    """
    versions = {rollout.policy_version for rollout in samples}
    if len(versions) != 1:
        raise ValueError(
            f"rollouts of policy versions {sorted(versions)} in one rollout batch; sample a batch from one version"
        )
    graded = [rollout for rollout in samples if rollout.verdict.kind != "none"]
    prompts = {rollout.group: rollout.prompt.token_ids for rollout in samples}
    row_of = {group: row for row, group in enumerate(prompts)}
    batch = token_batch(
        list(prompts.values()),
        [row_of[rollout.group] for rollout in graded],
        [rollout.completion.token_ids for rollout in graded],
        [rollout.completion.logprobs for rollout in graded],
        temperature,
        versions.pop(),
    )
    rewards = torch.tensor([rollout.verdict.score for rollout in graded], dtype=torch.float32)
    correct = torch.tensor([rollout.verdict.kind == "correct" for rollout in graded], dtype=torch.bool)
    everyone = ranks.gather((rewards, correct, batch.group, len(prompts)))
    first_group = accumulate((part[3] for part in everyone), initial=0)
    group = torch.cat([part[2] + first for part, first in zip(everyone, first_group, strict=False)])
    advantages, groups, bounds = objective.credit(
        torch.cat([part[0] for part in everyone]), torch.cat([part[1] for part in everyone]), group
    )
    start = sum(len(part[0]) for part in everyone[: ranks.rank])
    mine = torch.arange(start, start + len(rewards))
    return replace(
        batch, rewards=rewards, groups=groups.select(mine), advantages=advantages[mine], bounds=bounds.select(mine)
    )


def token_batch(
    prompts: Sequence[Sequence[int]],
    group: Sequence[int],
    responses: Sequence[Sequence[int]],
    sampler_logprobs: Sequence[Sequence[float]],
    temperature: float,
    policy_version: int,
) -> RolloutBatch:
    """Prompts and responses as a batch that can be scored; without rewards, so every advantage is zero."""
    zeros = torch.zeros(len(responses))
    return RolloutBatch(
        prompt_ids=pad_sequences(prompts, torch.long),
        prompt_lengths=torch.tensor([len(p) for p in prompts], dtype=torch.long),
        group=torch.tensor(group, dtype=torch.long),
        response_ids=pad_sequences(responses, torch.long),
        response_lengths=torch.tensor([len(r) for r in responses], dtype=torch.long),
        sampler_logprobs=pad_sequences(sampler_logprobs, torch.float32),
        rewards=zeros,
        groups=GroupStats(zeros.bool(), zeros.long(), zeros.long(), zeros),
        advantages=zeros,
        bounds=ClipBounds(zeros, zeros),
        policy_version=policy_version,
        temperature=temperature,
    )


def live_rows(rollouts: RolloutBatch, objective: Objective) -> Tensor:
    """Index of the rollouts that can move the policy: those without tokens never do, nor those of zero advantage when
    nothing but the surrogate acts on them.
    """
    live = rollouts.response_lengths > 0
    if objective.exact_zero_skip:
        live &= rollouts.advantages != 0
    return live.nonzero()[:, 0]


def update_batches(
    rollouts: RolloutBatch,
    samples: Sequence[Rollout],
    updates: int,
    objective: Objective,
    plan: Callable[[RolloutBatch, Tensor], list[MicroBatch]],
    ranks: Ranks,
) -> list[UpdateBatch]:
    """Cut a rollout batch into `updates` batches of equally many whole groups, still without old log-probs.

    The denominators count every rollout, also those that need no gradient, over all ranks; all ranks get as many
    micro-batches as the one that needs most. Two small collectives a rollout batch, whatever the number of updates.
    """
    share = len(rollouts.prompt_ids) // updates
    cut = [rollouts.select((rollouts.group // share == u).nonzero()[:, 0]) for u in range(updates)]
    plans = [plan(part, live_rows(part, objective)) for part in cut]
    counts = torch.stack([objective.denominator(part.response_mask).float() for part in cut])
    denominators = ranks.reduce(counts, "sum")
    steps = ranks.reduce(torch.tensor([len(p) for p in plans]), "max").tolist()
    group_of = {group: row for row, group in enumerate(dict.fromkeys(rollout.group for rollout in samples))}
    nothing = MicroBatch(torch.zeros(0, dtype=torch.long), ())
    return [
        UpdateBatch(
            rollouts=part,
            old_logprobs=None,
            denominator=denominators[u],
            micro_batches=(*plans[u], *[nothing] * (steps[u] - len(plans[u]))),
            index=u,
            samples=tuple(rollout for rollout in samples if group_of[rollout.group] // share == u),
            timings={},
        )
        for u, part in enumerate(cut)
    ]
