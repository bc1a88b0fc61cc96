"""What a run will take, reckoned from its recipe before anything is loaded: steps, tokens, memory of one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GIB = 2**30
CPU_CACHE_GIB = 2.0  # what vLLM is given on a CPU where a recipe does not say


@dataclass(frozen=True)
class ModelSize:
    """parameters: P. layers: L. hidden: h. intermediate: i, the width of an MLP. vocabulary: V."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank while it updates: weights, gradients and optimizer; activations and logits of a micro-batch."""

    state: float
    activations: float
    logits: float

    @property
    def total(self) -> float:
        """All of it, without the engine."""
        return self.state + self.activations + self.logits


def update_memory(
    model: ModelSize, *, tokens: int, row: int = 0, shards: int = 1, half: bool = False, checkpointing: bool = False
) -> Memory:
    """The memory of an update with AdamW, an estimate: kernels, buffers of a strategy and fragments come on top.

    tokens: of the largest micro-batch. row: of its longest row. shards: ranks that the state is spread over, 1 where
    each has all. half: bf16-mixed.
    With b = 2 bytes an activation under bf16-mixed and else 4::

        state        16 P / shards  (float32 weights, gradients and two moments), and under bf16-mixed 2 P / L for each
                     of two gathered layers, or 2 P of cast weights where nothing is sharded
        activations  b · tokens · (10 h + 3 i) · L, or with gradient checkpointing b · tokens · (h L + 10 h + 3 i)
        logits       2 b · tokens · V + 12 row · V  (them and their gradient; three float32 copies of a row at a time)
    """
    size = 2 if half else 4
    cast = 0.0 if not half else 2.0 * model.parameters * (2 / model.layers if shards > 1 else 1)
    layer = 10 * model.hidden + 3 * model.intermediate
    kept = model.hidden * model.layers + layer if checkpointing else layer * model.layers
    return Memory(
        state=16 * model.parameters / shards + cast,
        activations=float(size * tokens * kept),
        logits=float((2 * size * tokens + 12 * row) * model.vocabulary),
    )


@dataclass(frozen=True)
class Work:
    """What a training run does: rollouts and sampled tokens are of all ranks, the tokens at most."""

    steps: int
    rollout_batches: int
    rollouts: int
    sampled_tokens: int

    def __str__(self) -> str:
        """In words; what is sampled is also what is trained on, but for rollouts without an advantage."""
        return (
            f"{self.steps} steps from {self.rollout_batches} rollout batches, {self.rollouts:,} rollouts, at most "
            f"{self.sampled_tokens:,} sampled tokens, each trained on once at most"
        )


def training_work(steps: int, updates_per_batch: int, prompts_per_batch: int, group_size: int, max_tokens: int) -> Work:
    """Rollouts of a run: ⌈steps / updates_per_batch⌉ rollout batches of prompts_per_batch · group_size each."""
    batches = -(-steps // updates_per_batch)
    rollouts = batches * prompts_per_batch * group_size
    return Work(steps, batches, rollouts, rollouts * max_tokens)


def model_size(name: str) -> ModelSize:
    """Of a model's configuration; no weights are loaded."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(name)
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        parameters = sum(p.numel() for p in built.parameters())
    text = config.get_text_config()
    hidden = int(text.hidden_size)
    wide = int(getattr(text, "intermediate_size", None) or 4 * hidden)
    return ModelSize(parameters, int(text.num_hidden_layers), hidden, wide, int(text.vocab_size))


def engine_memory(engine: Any, model: ModelSize, device_bytes: int | None) -> float | None:
    """What the engine holds on a rank: its share of a GPU, or weights and cache; None where that cannot be said."""
    share, cache = getattr(engine, "gpu_memory_utilization", None), getattr(engine, "kv_cache_gib", None)
    if share is None:
        return None
    if device_bytes is not None and cache is None:
        return float(share * device_bytes)
    half = getattr(engine, "dtype", "auto") == "bfloat16" or (device_bytes is not None and engine.dtype == "auto")
    return (2.0 if half else 4.0) * model.parameters + (CPU_CACHE_GIB if cache is None else cache) * GIB


def gib(size: float) -> str:
    """Bytes as GiB, for people."""
    return f"{size / GIB:.1f} GiB" if size >= GIB / 10 else f"{size / 2**20:.0f} MiB"
