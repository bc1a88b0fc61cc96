"""The language model of a run, loaded so that a policy ratio means what it should."""

from __future__ import annotations

import torch
from torch import nn
from transformers import AutoModelForCausalLM


def load_model(name: str, attention: str, gradient_checkpointing: bool) -> nn.Module:
    """A causal language model in float32 and training mode, without dropout: a ratio compares two passes over the same
    tokens.

    name: folder or hub name. attention: the implementation, "sdpa", "eager" or "flash_attention_2".
    """
    model: nn.Module = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, attn_implementation=attention)
    without_dropout(model)
    model.train()  # from_pretrained leaves eval mode on, which turns off gradient checkpointing
    if gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    return model


def without_dropout(model: nn.Module) -> None:
    """Set every dropout probability to 0, in place: of dropout modules, and those that attention keeps as plain
    numbers.
    """
    for module in model.modules():
        for name, value in vars(module).items():
            if name.endswith("dropout") and isinstance(value, float):
                setattr(module, name, 0.0)
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def sharing_obstacle(model: nn.Module) -> str | None:
    """Why responses packed behind one prompt would not be scored as if each stood alone; None where they would.

    The packed layout rests on a mask with a row a token. Flash attention takes none, eager attention reads a boolean
    one as numbers, and sliding-window or recurrent layers see past it.
    """
    config = getattr(model, "config", None)
    attention = str(getattr(config, "_attn_implementation", None))
    if attention != "sdpa":
        return f"attention is {attention!r} and not 'sdpa'"
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        return f"the model has layers of kind {', '.join(sorted(kinds))}"
    window = getattr(config, "sliding_window", None)
    if window:
        return f"the model attends within a sliding window of {window} tokens"
    return None
