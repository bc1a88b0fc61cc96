"""The estimate before a run, against values worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from gapo_lit.cli.estimate import GIB, ModelSize, engine_memory, gib, model_size, training_work, update_memory
from tests.tiny import tiny_model

# Qwen2.5-1.5B, from its published configuration: 1.54 B parameters, 28 layers, hidden 1536, MLP 8960, 151,936 tokens.
QWEN = ModelSize(1_543_714_304, 28, 1536, 8960, 151_936)


def test_state_is_sixteen_bytes_a_parameter_over_the_shards() -> None:
    alone = update_memory(QWEN, tokens=1)
    assert alone.state == 16 * 1_543_714_304
    assert gib(alone.state) == "23.0 GiB"
    assert update_memory(QWEN, tokens=1, shards=8).state == pytest.approx(alone.state / 8)
    mixed = update_memory(QWEN, tokens=1, shards=8, half=True)
    assert mixed.state == pytest.approx(alone.state / 8 + 2 * 2 * 1_543_714_304 / 28)
    assert update_memory(QWEN, tokens=1, half=True).state == pytest.approx(18 * 1_543_714_304)


def test_activations_and_logits_follow_from_the_tokens_of_a_micro_batch() -> None:
    tokens, layer = 16_384, 10 * 1536 + 3 * 8960
    whole = update_memory(QWEN, tokens=tokens, half=True)
    assert whole.activations == 2 * tokens * layer * 28
    assert whole.logits == 2 * 2 * tokens * 151_936
    again = update_memory(QWEN, tokens=tokens, half=True, checkpointing=True)
    assert again.activations == 2 * tokens * (28 * 1536 + layer)
    assert again.activations < whole.activations / 10
    assert update_memory(QWEN, tokens=tokens).logits == 2 * whole.logits
    rows = update_memory(QWEN, tokens=tokens, row=4096, half=True)
    assert rows.logits - whole.logits == 3 * 4 * 4096 * 151_936
    assert whole.total == whole.state + whole.activations + whole.logits


def test_work_of_a_run() -> None:
    """The paper's sizes: 256 prompts of 8 rollouts, 4 updates of each batch."""
    work = training_work(1000, 4, 256, 8, 3072)
    assert (work.rollout_batches, work.rollouts, work.sampled_tokens) == (250, 512_000, 1_572_864_000)
    assert training_work(5, 4, 16, 8, 6).rollout_batches == 2


def test_the_size_of_a_model_is_read_without_its_weights(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path)
    (folder / "model.safetensors").unlink()
    size = model_size(str(folder))
    assert (size.layers, size.hidden, size.intermediate, size.vocabulary) == (2, 64, 128, 261)
    layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64  # q, o; k, v; MLP; norms
    assert size.parameters == 261 * 64 + 2 * layer + 64


def test_the_engines_share() -> None:
    gpu = SimpleNamespace(gpu_memory_utilization=0.4, kv_cache_gib=None, dtype="auto")
    assert engine_memory(gpu, QWEN, 80 * GIB) == pytest.approx(32 * GIB)
    assert engine_memory(gpu, QWEN, None) == 4 * QWEN.parameters + 2 * GIB
    given = SimpleNamespace(gpu_memory_utilization=0.4, kv_cache_gib=4.0, dtype="auto")
    assert engine_memory(given, QWEN, 80 * GIB) == 2 * QWEN.parameters + 4 * GIB
    assert engine_memory(given, QWEN, None) == 4 * QWEN.parameters + 4 * GIB
    assert engine_memory(object(), QWEN, None) is None
    assert math.isclose(0.5 * GIB, 2**29)
    assert gib(2**20) == "1 MiB"
