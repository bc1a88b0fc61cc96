"""What travels from a data row to an optimizer step, in the order in which a run builds it.

A worked example with k=2 rollouts of each of G=2 prompts (B=4 rollouts)::

    Example    "What is 2 + 3?", answer "5"              one row of a data set
    Prompt     + token_ids (1, 338, …)                   what the engine is given
    Completion token_ids (42, 2), logprobs (-0.7, -0.1)  what the engine returned
    Verdict    correct, score 1.0                        what the verifier said
    Rollout    the four above, group 0, policy version 8
    RolloutBatch
        prompt_ids       (G=2, P)   each prompt once: the k rollouts of a group share it
        group            (B=4,)     [0, 0, 1, 1], the row of prompt_ids a rollout answers
        rewards          (B=4,)     [1, 0, 0, 0]
        groups.success_count        [1, 1, 0, 0]
        advantages       (B=4,)     [.5, -.5, 0, 0]
        bounds.eps_hi    (B=4,)     the widest clip for the one scarce correct rollout
    UpdateBatch the rows of one optimizer step, the log-probs they had before it, and the loss denominator
    LossInputs  one micro-batch of those rows, with the current policy's log-probs

Token tensors are right-padded; masks come from lengths, never from a padding id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

FinishReason = Literal["stop", "length"]
VerdictKind = Literal["correct", "incorrect", "none"]


@dataclass(frozen=True)
class Example:
    """One row of a data set: a question in words, its gold answer and whatever else the row holds."""

    id: str
    question: str
    answer: str
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Prompt:
    """An example as the policy is asked it. `token_ids` are final: nothing downstream encodes text again."""

    example: Example
    token_ids: tuple[int, ...]
    text: str

    @property
    def id(self) -> str:
        """The example's id, unique within its source."""
        return self.example.id


@dataclass(frozen=True)
class Sampling:
    """How completions are drawn. Trainer log-probs use the same temperature.

    temperature: > 0 to sample; 0 is greedy and only allowed for validation. max_tokens: longest completion.
    top_p, top_k: 1.0 and -1 are off; the trainer cannot reproduce a truncated distribution, so training refuses others.
    """

    temperature: float = 1.0
    max_tokens: int = 1024
    top_p: float = 1.0
    top_k: int = -1

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature={self.temperature} is negative; give 0 (greedy) or a positive temperature")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens={self.max_tokens} leaves no room for an answer; give at least 1")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} is outside (0, 1]; give 1.0 to turn it off")
        if self.top_k == 0 or self.top_k < -1:
            raise ValueError(f"top_k={self.top_k} keeps no token; give -1 to turn it off or a positive count")

    @property
    def truncates(self) -> bool:
        """Whether sampling leaves out part of the policy's distribution."""
        return self.top_p < 1 or self.top_k > 0


@dataclass(frozen=True)
class Completion:
    """What an engine returned for one sample.

    token_ids include the end-of-sequence token where one ended it; logprobs are the sampler's own, one a token, at the
    sampling temperature; text is the tokens decoded without special tokens, for verifiers and tables only.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: FinishReason


@dataclass(frozen=True)
class Verdict:
    """What a verifier says of one completion.

    kind "none" means that no verdict could be had (a time-out, a crash): such a rollout leaves its group, it is never
    a 0. score is the reward; None exactly where kind is "none". components are the parts of a combined reward, for
    logging. answer is what the verifier took as the answer, for majority voting: where it holds two answers equal they
    are one text, as far as it can tell; None without one.
    """

    kind: VerdictKind
    score: float | None
    reason: str = ""
    components: Mapping[str, float] = field(default_factory=dict)
    answer: str | None = None

    def __post_init__(self) -> None:
        if (self.kind == "none") != (self.score is None):
            raise ValueError(
                f"a verdict of kind {self.kind!r} with score={self.score}: only 'none' goes without a score"
            )

    @classmethod
    def of(cls, right: bool, reason: str = "", answer: str | None = None) -> Verdict:
        """A binary verdict: reward 1 or 0."""
        return cls("correct" if right else "incorrect", float(right), reason, answer=answer)

    @classmethod
    def none(cls, reason: str) -> Verdict:
        """No verdict, and why."""
        return cls("none", None, reason)


@dataclass(frozen=True)
class Rollout:
    """One graded completion. policy_version counts the optimizer steps its sampling weights had seen."""

    prompt: Prompt
    completion: Completion
    verdict: Verdict
    group: int
    policy_version: int


@dataclass(frozen=True)
class EvaluationBatch:
    """Graded rollouts of some problems of one benchmark, all samples of a problem together.

    positions: where each problem stands in the benchmark; a rollout's group is an index into it. It may be empty.
    """

    benchmark: str
    positions: tuple[int, ...] = ()
    rollouts: tuple[Rollout, ...] = ()


class Rows:
    """A frozen dataclass of tensors whose first dimension is the rollout."""

    def select(self, rows: Tensor) -> Any:
        """The same fields for the rows of an index or boolean tensor."""
        return replace(self, **{f.name: getattr(self, f.name)[rows] for f in fields(self)})  # type: ignore[arg-type, type-var]

    def to(self, device: torch.device) -> Any:
        """The same fields on another device."""
        return replace(self, **{f.name: getattr(self, f.name).to(device) for f in fields(self)})  # type: ignore[arg-type, type-var]


@dataclass(frozen=True)
class GroupStats(Rows):
    """What a clip schedule may know of a rollout's group; each (B,).

    correct: bool, the verifier's verdict. success_count: c, how many of the group are correct. group_size: k, the
    group's rollouts with a verdict. centered: r_i minus the group's mean reward, before any normalisation.
    """

    correct: Tensor
    success_count: Tensor
    group_size: Tensor
    centered: Tensor


@dataclass(frozen=True)
class ClipBounds(Rows):
    """The ratio of rollout i is clipped to [1 − eps_lo_i, 1 + eps_hi_i]; each (B,), float."""

    eps_lo: Tensor
    eps_hi: Tensor


@dataclass(frozen=True)
class RolloutBatch:
    """One rank's share of a rollout batch, complete: sampled, graded, with advantages and clip bounds.

    prompt_ids (G, P) long with prompt_lengths (G,); group (B,) is each rollout's row of prompt_ids.
    response_ids (B, T) long with response_lengths (B,); sampler_logprobs (B, T) float, 0 in padding.
    rewards, advantages (B,) float; groups and bounds as their types say. temperature is the sampling temperature.
    """

    prompt_ids: Tensor
    prompt_lengths: Tensor
    group: Tensor
    response_ids: Tensor
    response_lengths: Tensor
    sampler_logprobs: Tensor
    rewards: Tensor
    groups: GroupStats
    advantages: Tensor
    bounds: ClipBounds
    policy_version: int
    temperature: float

    @property
    def response_mask(self) -> Tensor:
        """(B, T) bool, true on a rollout's own tokens, its end-of-sequence token included."""
        return (
            torch.arange(self.response_ids.shape[1], device=self.response_ids.device) < self.response_lengths[:, None]
        )

    def __len__(self) -> int:
        return len(self.group)

    def select(self, rows: Tensor) -> RolloutBatch:
        """The rollouts of an index tensor, with all prompts kept and padding cut to the longest response left."""
        longest = int(self.response_lengths[rows].max()) if len(rows) else 0
        return replace(
            self,
            group=self.group[rows],
            response_ids=self.response_ids[rows, :longest],
            response_lengths=self.response_lengths[rows],
            sampler_logprobs=self.sampler_logprobs[rows, :longest],
            rewards=self.rewards[rows],
            groups=self.groups.select(rows),
            advantages=self.advantages[rows],
            bounds=self.bounds.select(rows),
        )

    def to(self, device: torch.device) -> RolloutBatch:
        """The same rollouts on another device."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        moved: dict[str, Any] = {name: v.to(device) for name, v in values.items() if isinstance(v, Tensor | Rows)}
        return replace(self, **moved)


@dataclass(frozen=True)
class MicroBatch:
    """Rollouts that go through the model together: rows (b,), an index into the update batch, cut into packed rows.

    sizes: how many of `rows`, in order, lie in each packed row; they sum to b. One without rows keeps step with the
    other ranks: it costs a token and adds a zero gradient.
    """

    rows: Tensor
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class UpdateBatch:
    """The rollouts of one optimizer step on one rank.

    old_logprobs (B, T): the trainer's log-probs before the first update of the rollout batch. None for that first
    update: the policy has not moved, so its current log-probs are the old ones. Rows outside every micro-batch hold
    zeros.
    denominator: scalar, what the aggregation divides by, summed over all ranks.
    micro_batches: what the model computes, in order; every rank has the same number. Rollouts in none have no gradient.
    index: 0 for the first update of a rollout batch. samples: the same rollouts in words, for tables, those without a
    verdict included. timings: what the rollout batch cost in seconds, on its first update only.
    """

    rollouts: RolloutBatch
    old_logprobs: Tensor | None
    denominator: Tensor
    micro_batches: tuple[MicroBatch, ...]
    index: int
    samples: tuple[Rollout, ...]
    timings: Mapping[str, float]

    def to(self, device: torch.device) -> UpdateBatch:
        """The same update on another device; micro-batch plans stay on the CPU."""
        old = None if self.old_logprobs is None else self.old_logprobs.to(device)
        return replace(
            self, rollouts=self.rollouts.to(device), old_logprobs=old, denominator=self.denominator.to(device)
        )


@dataclass(frozen=True)
class LossInputs:
    """One micro-batch as the objective sees it; token tensors (B, T), the others (B,).

    logprobs carry the gradient; old_logprobs are the trainer's before the update, sampler_logprobs the engine's,
    ref_logprobs the reference model's (None without a KL term). Values under a false response_mask are arbitrary.
    """

    logprobs: Tensor
    old_logprobs: Tensor
    sampler_logprobs: Tensor
    ref_logprobs: Tensor | None
    response_mask: Tensor
    advantages: Tensor
    groups: GroupStats
    bounds: ClipBounds


@dataclass(frozen=True)
class Mean:
    """A mean kept as its two sums, so that it adds over micro-batches and ranks; scalars, or one entry a bin."""

    total: Tensor
    count: Tensor

    def __add__(self, other: Mean) -> Mean:
        return Mean(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> Tensor:
        """Total / count; NaN where nothing was counted, which loggers leave out."""
        return self.total / self.count


Metrics = dict[str, Mean]
