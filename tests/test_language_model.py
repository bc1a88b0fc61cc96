"""A model is loaded so that two passes over the same tokens agree."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from gapo_lit.language_model import load_model, without_dropout


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
