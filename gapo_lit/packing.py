"""Which rollouts share a forward pass, and how they lie in it.

A row of the forward pass holds one prompt and any number of its rollouts' responses, one behind the other::

    columns      0 … P-1 (prompt, left-padded)   P …
    tokens       . . p p p p                     a a a b b c c c c . .
    segment      - - 0 0 0 0                     1 1 1 2 2 3 3 3 3 - -
    positions    - - 0 1 2 3                     4 5 6 4 5 4 5 6 7 - -

A token attends to the prompt and to its own response only, so each response is scored as if it stood alone and the
prompt is computed once for the group: for k short answers to one prompt nearly a k-fold saving.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from gapo_lit.types import MicroBatch, RolloutBatch

MAX_SHARED_ROW = 4096
"""Longest row, in tokens, in which responses share a prompt; its attention mask has the square of that many entries."""


@dataclass(frozen=True)
class PackedRows:
    """Model inputs for R rows of S columns, and where each response token is predicted.

    input_ids, position_ids (R, S); attention_mask (R, S) bool where every row holds one response, else (R, 1, S, S).
    keep (C,): the columns whose logits are needed. column (B, T): token (b, t) is predicted by that one of the kept
    columns of its row; arbitrary in padding. S is the longest prompt and the longest responses of a row together.
    """

    input_ids: Tensor
    position_ids: Tensor
    attention_mask: Tensor
    keep: Tensor
    column: Tensor


def plan_micro_batches(
    rollouts: RolloutBatch, rows: Tensor, token_budget: int, share_prompts: bool
) -> list[MicroBatch]:
    """Cut the rollouts `rows` (index tensor) into micro-batches of at most `token_budget` packed tokens, padding
    included.

    Groups stay whole where they fit a row. A rollout longer than the budget makes a micro-batch of its own: the budget
    bounds memory, it never drops data. No rows make no micro-batch. Deterministic.
    """
    pieces = sorted(_pieces(rollouts, rows.tolist(), token_budget, share_prompts), key=lambda piece: piece.length)
    planned: list[list[_Piece]] = []
    for piece in pieces:
        if planned and _fits([*planned[-1], piece], token_budget):
            planned[-1].append(piece)
        else:
            planned.append([piece])
    return [
        MicroBatch(
            torch.tensor([i for piece in packed for i in piece.members], device=rows.device),
            tuple(len(piece.members) for piece in packed),
        )
        for packed in planned
    ]


@dataclass
class _Piece:
    """One packed row to be: tokens of its prompt, of its responses together, and which rollouts these are."""

    prompt: int
    responses: int
    members: list[int]

    @property
    def length(self) -> int:
        return self.prompt + self.responses


def _fits(pieces: Sequence[_Piece], budget: int) -> bool:
    """Whether the rows fit the budget once prompts are padded to the longest prompt and responses to the longest."""
    width = max(piece.prompt for piece in pieces) + max(piece.responses for piece in pieces)
    shared = any(len(piece.members) > 1 for piece in pieces)
    return width * len(pieces) <= budget and (width <= MAX_SHARED_ROW or not shared)


def _pieces(rollouts: RolloutBatch, rows: list[int], budget: int, share: bool) -> list[_Piece]:
    """The packed rows that the groups make, before rows are put together."""
    prompt = rollouts.prompt_lengths.tolist()
    response = rollouts.response_lengths.tolist()
    group = rollouts.group.tolist()
    limit = min(budget, MAX_SHARED_ROW) if share else 0
    pieces: list[_Piece] = []
    for g in dict.fromkeys(group[i] for i in rows):
        piece = _Piece(prompt[g], 0, [])
        for i in (i for i in rows if group[i] == g):
            if piece.members and piece.length + response[i] > limit:
                pieces.append(piece)
                piece = _Piece(prompt[g], 0, [])
            piece.members.append(i)
            piece.responses += response[i]
        pieces.append(piece)
    return pieces


def pack(rollouts: RolloutBatch, sizes: Sequence[int]) -> PackedRows:
    """Lay out the rollouts of one micro-batch (`RolloutBatch.select` of its rows) in packed rows of `sizes`
    rollouts.
    """
    members_of = iter(range(len(rollouts)))
    pieces = [list(islice(members_of, size)) for size in sizes]
    lengths = rollouts.response_lengths.tolist()
    prompts = rollouts.prompt_lengths.tolist()
    group = rollouts.group.tolist()
    width = max(prompts[group[members[0]]] for members in pieces)
    total = width + max(sum(lengths[i] for i in members) for members in pieces)

    shape = (len(pieces), total)
    input_ids = torch.zeros(shape, dtype=torch.long)
    positions = torch.zeros(shape, dtype=torch.long)
    segment = torch.full(shape, -1, dtype=torch.long)
    column = torch.zeros(rollouts.response_ids.shape, dtype=torch.long)
    prompt_ids, response_ids = rollouts.prompt_ids.cpu(), rollouts.response_ids.cpu()
    for r, members in enumerate(pieces):
        g = group[members[0]]
        start = width - prompts[g]
        input_ids[r, start:width] = prompt_ids[g, : prompts[g]]
        positions[r, start:width] = torch.arange(prompts[g])
        segment[r, start:width] = 0
        at = width
        for s, i in enumerate(members, start=1):
            end = at + lengths[i]
            input_ids[r, at:end] = response_ids[i, : lengths[i]]
            positions[r, at:end] = prompts[g] + torch.arange(lengths[i])
            segment[r, at:end] = s
            # The first token is predicted by the prompt's last column, which is kept column 0; the others by their
            # predecessor.
            if lengths[i] > 1:
                column[i, 1 : lengths[i]] = torch.arange(at, end - 1) - (width - 1)
            at = end
    mask = _attention_mask(segment) if any(len(members) > 1 for members in pieces) else segment >= 0
    device = rollouts.response_ids.device
    keep = torch.arange(width - 1, total)
    return PackedRows(*(t.to(device) for t in (input_ids, positions, mask, keep, column)))


def _attention_mask(segment: Tensor) -> Tensor:
    """(R, 1, S, S) bool: earlier tokens of the prompt or of one's own response; padding sees itself, so no row is
    empty.
    """
    size = segment.shape[1]
    key, query = segment[:, None, :], segment[:, :, None]
    visible = ((key == 0) | (key == query)) & (query >= 0)
    causal = torch.ones(size, size, dtype=torch.bool).tril()
    return ((visible & causal) | torch.eye(size, dtype=torch.bool))[:, None]


def pad_sequences(sequences: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
    """Right-pad with zeros to the longest: (N, longest)."""
    padded = torch.zeros(len(sequences), max((len(s) for s in sequences), default=0), dtype=dtype)
    for i, sequence in enumerate(sequences):
        padded[i, : len(sequence)] = torch.tensor(sequence, dtype=dtype)
    return padded
