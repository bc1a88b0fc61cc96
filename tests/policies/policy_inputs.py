"""Random but reproducible loss inputs, with garbage in the padding, and what the tests do with them."""

import math
from dataclasses import replace

import torch

from gapo_lit.clipping import CISPO, DualClip, PPOClip
from gapo_lit.policies import (
    ConstantLength,
    SequenceMeanTokenMean,
    SequenceMeanTokenSum,
    SequenceRatio,
    TokenMean,
    TokenRatio,
    group_stats,
)
from gapo_lit.types import ClipBounds, LossInputs

RATIOS = [TokenRatio(), SequenceRatio()]
SURROGATES = [PPOClip(), DualClip(), CISPO()]
AGGREGATIONS = [TokenMean(), SequenceMeanTokenMean(), SequenceMeanTokenSum(), ConstantLength(5)]
GARBAGE = [0.0, 1e4, -math.inf, math.nan]


def name_of(part):
    return type(part).__name__


def random_inputs(seed, groups=3, k=4, tokens=6, drift=0.3, garbage=-math.inf, dtype=torch.float64, empty_rows=True):
    """LossInputs of groups·k rollouts in shuffled order, some empty, their log-ratios normal with scale drift."""
    g = torch.Generator().manual_seed(seed)
    rows = groups * k
    lengths = torch.randint(0 if empty_rows else 1, tokens + 1, (rows,), generator=g)
    mask = torch.arange(tokens) < lengths[:, None]
    old = -3 * torch.rand(rows, tokens, generator=g, dtype=dtype)
    log_probs = old + drift * torch.randn(rows, tokens, generator=g, dtype=dtype)
    sampler = old + 0.1 * torch.randn(rows, tokens, generator=g, dtype=dtype)
    reference = old + 0.1 * torch.randn(rows, tokens, generator=g, dtype=dtype)
    group = torch.arange(groups).repeat_interleave(k)[torch.randperm(rows, generator=g)]
    correct = torch.rand(rows, generator=g) < 0.5
    rewards = correct.to(dtype)
    stats = group_stats(rewards, correct, group)
    bounds = ClipBounds(*(0.05 + 0.3 * torch.rand(2, rows, generator=g, dtype=dtype)))
    fill = {"logprobs": log_probs, "old_logprobs": old, "sampler_logprobs": sampler, "ref_logprobs": reference}
    filled = {name: torch.where(mask, value, garbage) for name, value in fill.items()}
    return LossInputs(**filled, response_mask=mask, advantages=stats.centered, groups=stats, bounds=bounds)


def select(inputs, rows):
    """The same inputs for some of the rows."""
    return LossInputs(
        **{
            name: getattr(inputs, name)[rows]
            for name in ("logprobs", "old_logprobs", "sampler_logprobs", "ref_logprobs", "response_mask", "advantages")
        },
        groups=inputs.groups.select(rows),
        bounds=inputs.bounds.select(rows),
    )


def loss_and_grad(objective, inputs, denominator=None):
    """The loss, its gradient by the current log-probs, and the metrics."""
    leaf = inputs.logprobs.clone().requires_grad_()
    if denominator is None:
        denominator = objective.denominator(inputs.response_mask)
    loss, metrics = objective(replace(inputs, logprobs=leaf), denominator)
    (grad,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), grad, metrics
