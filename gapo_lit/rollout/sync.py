"""Handing the policy's weights to an engine, and proving that the engine then says what the trainer says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from gapo_lit.rollout.engine import Engine, SyncMismatch, request_seed
from gapo_lit.types import Completion, Sampling

# Module names that FSDP1, torch.compile and activation checkpointing put between a parameter and its owner.
_WRAPPERS = frozenset({"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module", "_forward_module"})

# Two of each probe, so that responses which share a prompt in the trainer's forward pass are checked as such.
SAMPLES = 2

Score = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]], float], list[Tensor]]


def sync_weights(engine: Engine, named_parameters: Iterable[tuple[str, Tensor]], version: int) -> None:
    """Load the policy's weights into the engine, one full parameter at a time, and mark it with their version.

    named_parameters: those of the Hugging Face model, ideally `named_parameters(remove_duplicate=False)`. Sharded ones
    are gathered on their way, so every rank calls this at the same point.
    """
    engine.load_weights(full_parameters(named_parameters), version)


def full_parameters(named_parameters: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """(name without wrappers, whole tensor without gradient) of each parameter, gathered only when it is asked for."""
    for name, parameter in named_parameters:
        tensor = parameter.detach()
        yield plain_name(name), tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def plain_name(name: str) -> str:
    """A parameter's name in the model itself: without the parts that DDP, FSDP, torch.compile and checkpointing add."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while parts[0] == "module":
        parts = parts[1:]
    return ".".join(parts)


@torch.no_grad()
def verify_sync(
    engine: Engine,
    score: Score,
    probes: Sequence[Sequence[int]],
    tolerance: float | None = None,
    *,
    by: Literal["worst", "mean"] | None = None,
    temperature: float = 1.0,
    max_tokens: int = 8,
) -> float:
    """Sample a few tokens twice for each of the first two probes and compare the engine's log-probs with the trainer's.

    score: (prompts, responses, temperature) → for each response its (length,) log-probs under the trainer.
    tolerance: of the largest absolute difference, or of the mean one. Left out, it is 1e-3 at worst for a float32
    engine and 0.2 on average for a bfloat16 one, where single tokens honestly differ by 0.6. A trainer that scores in
    bfloat16 beside a float32 engine differs as much: give by="mean" and 0.2 then.
    Returns the difference that was judged. Raises SyncMismatch with the worst token where it exceeds the tolerance.
    """
    prompts = list(probes[:2])
    if not prompts:
        raise ValueError("no probe prompt; give at least one")
    judge = by or ("worst" if engine.precision == "float32" else "mean")
    limit = tolerance if tolerance is not None else 1e-3 if judge == "worst" else 0.2
    sampling = Sampling(temperature=temperature, max_tokens=max_tokens)
    seeds = [request_seed(0, "probe", index) for index in range(len(prompts))]
    completions = [c for samples in engine.generate(prompts, sampling, SAMPLES, seeds) for c in samples]
    asked = [prompt for prompt in prompts for _ in range(SAMPLES)]
    scores = score(asked, [c.token_ids for c in completions], temperature)
    gaps = [_gap(c, s) for c, s in zip(completions, scores, strict=True)]
    every = torch.cat(gaps)
    judged = every.max().item() if judge == "worst" else every.mean().item()
    if not judged <= limit:  # a NaN fails too
        headline = f"{judge} difference {judged:.3g} above {limit:g} at policy version {engine.version}"
        raise SyncMismatch(f"{headline}. {_explain(completions, scores, gaps)}")
    return judged


def _gap(completion: Completion, scores: Tensor) -> Tensor:
    if len(scores) != len(completion.logprobs):
        raise ValueError(f"score returned {len(scores)} log-probs for a response of {len(completion.logprobs)} tokens")
    return (torch.tensor(completion.logprobs, dtype=torch.float64) - scores.double().cpu()).abs()


def _explain(completions: Sequence[Completion], scores: Sequence[Tensor], gaps: Sequence[Tensor]) -> str:
    """The worst token (a NaN is the worst) and what usually lies behind a mismatch."""
    worst = [gap.nan_to_num(nan=torch.inf) for gap in gaps]
    probe = max(range(len(worst)), key=lambda i: worst[i].max().item())
    place = int(worst[probe].argmax())
    completion = completions[probe]
    return (
        "Engine and trainer disagree on the log-probs of the engine's own samples, most on token "
        f"{completion.token_ids[place]} at position {place} of probe {probe // SAMPLES}: "
        f"{completion.logprobs[place]:.5f} in the engine, {float(scores[probe][place]):.5f} in the trainer. "
        "Usual causes: a prefix cache that was not reset with the weights; tied embeddings of which the engine's "
        "lm_head was not updated; another dtype in the engine than in the trainer (then judge by the mean); trainer "
        "log-probs at another temperature than the sampling temperature; another model in the engine. "
        "Training on would learn from ratios that are wrong"
    )
