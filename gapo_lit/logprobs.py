"""Log-probabilities of responses under the policy in training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gapo_lit.packing import pack
from gapo_lit.types import RolloutBatch


def response_logprobs(model: nn.Module, rollouts: RolloutBatch, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Log π(y_t | x, y_<t) at the sampling temperature, and the entropy of π(· | x, y_<t) in nats (without gradient).

    model: a causal language model that takes `logits_to_keep`. sizes: how the rollouts lie in packed rows (MicroBatch).
    Both results are (B, T) float32 and arbitrary in padding.
    """
    packed = pack(rollouts, sizes)
    logits = model(
        input_ids=packed.input_ids,
        position_ids=packed.position_ids,
        attention_mask=packed.attention_mask,
        logits_to_keep=packed.keep,
        use_cache=False,
    ).logits
    # A row at a time, its float32 intermediates computed again in the backward pass: with a vocabulary of 150,000 they
    # are what memory is spent on.
    cut = list(sizes)
    rows = zip(logits, torch.split(packed.column, cut), torch.split(rollouts.response_ids, cut), strict=True)
    found = [checkpoint(token_logprobs, *row, rollouts.temperature, use_reentrant=False) for row in rows]
    logprobs, entropy = zip(*found, strict=True)
    return torch.cat(logprobs), torch.cat(entropy)


def token_logprobs(logits: Tensor, column: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Out of logits (C, V) the log-prob of each of tokens (b, T), predicted at column (b, T), and the entropy there."""
    scaled = logits.float() / temperature
    normaliser = scaled.logsumexp(-1)
    with torch.no_grad():
        probabilities = (scaled - normaliser[:, None]).exp()
        entropy = normaliser - (probabilities * scaled).sum(-1)
    return scaled[column, tokens] - normaliser[column], entropy[column]
