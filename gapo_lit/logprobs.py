"""Log-probabilities of responses under the policy in training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gapo_lit.packing import PackedRows, pack
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
    return gather_logprobs(logits, packed, rollouts.response_ids, rollouts.temperature)


def gather_logprobs(logits: Tensor, packed: PackedRows, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Pick out of logits (R, C, V) the log-prob of each of tokens (B, T), and the entropy where it was predicted."""
    scaled = logits.float() / temperature
    normaliser = scaled.logsumexp(-1)
    chosen = scaled[packed.row, packed.column, tokens]
    with torch.no_grad():
        entropy = torch.stack([_entropy(row, norm) for row, norm in zip(scaled, normaliser, strict=True)])
    return chosen - normaliser[packed.row, packed.column], entropy[packed.row, packed.column]


def _entropy(logits: Tensor, normaliser: Tensor) -> Tensor:
    """−Σ p log p of logits (C, V), one row at a time so that no second (R, C, V) tensor stands in memory."""
    probabilities = (logits - normaliser[:, None]).exp()
    return normaliser - (probabilities * logits).sum(-1)
