"""A model is loaded so that two passes over the same tokens agree."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from gapo_lit.batching import token_batch
from gapo_lit.language_model import load_model, sharing_obstacle, without_dropout
from gapo_lit.logprobs import response_logprobs
from tests.tiny import tiny_model


def test_dropout_is_off_in_training_mode_whatever_the_checkpoint_says(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=50, n_positions=32, n_embd=32, n_layer=2, n_head=2, attn_pdrop=0.5, resid_pdrop=0.5)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    model = load_model(str(tmp_path), "sdpa", gradient_checkpointing=False)
    assert model.training
    tokens = torch.arange(10)[None]
    assert torch.equal(model(tokens).logits, model(tokens).logits)


def test_attention_dropout_kept_as_a_plain_number_is_found() -> None:
    module = torch.nn.Module()
    module.attention_dropout = 0.3
    without_dropout(module)
    assert module.attention_dropout == 0.0


def gap_of_sharing(model: torch.nn.Module) -> float:
    """How far log-probs of two responses behind one prompt are from those of each alone."""
    batch = token_batch([list(range(5, 17))], [0, 0], [[7, 8, 9], [10, 11]], [[0.0] * 3, [0.0] * 2], 1.0, 0)
    with torch.no_grad():
        shared, _ = response_logprobs(model, batch, (2,))
        alone, _ = response_logprobs(model, batch, (1, 1))
    return float(((shared - alone) * batch.response_mask).abs().max())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_prompts_are_shared_only_where_attention_reads_the_mask(tmp_path: Path, attention: str) -> None:
    model = load_model(str(tiny_model(tmp_path)), attention, gradient_checkpointing=False)
    assert (gap_of_sharing(model) < 1e-5) == (sharing_obstacle(model) is None)


def test_sliding_window_models_do_not_share_prompts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, sliding_window=4, initializer_range=0.3,
    )  # fmt: skip
    MistralForCausalLM(config).save_pretrained(tmp_path)
    model = load_model(str(tmp_path), "sdpa", gradient_checkpointing=False)
    assert gap_of_sharing(model) > 1e-2
    assert "window of 4" in str(sharing_obstacle(model))
