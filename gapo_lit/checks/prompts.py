"""Checks that look at the prompts, and at the configuration of the model that is asked them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from gapo_lit.data import RolloutDataModule
from gapo_lit.prompts.base import normalised
from gapo_lit.types import Example, Prompt, Sampling

LISTED = 5


def model_config(name: str) -> Any:
    """The model's configuration, without weights; a model that is not there raises ValueError with what to do."""
    from transformers import AutoConfig

    looks_local = (
        Path(name).expanduser().is_absolute() or name.startswith((".", "~", "models/")) or name.count("/") != 1
    )
    if looks_local and not Path(name).expanduser().is_dir():
        made = "run `make model` (scripts/fetch_model.py) for SmolLM2, or" if "SmolLM2" in name else ""
        raise ValueError(
            f"there is no model folder {name}; {made or 'download it, or'} give model.model a hub name such as "
            "HuggingFaceTB/SmolLM2-135M-Instruct"
        )
    try:
        return AutoConfig.from_pretrained(name).get_text_config()
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") == "1" else ""
        raise ValueError(
            f"model {name!r} could not be read{offline}: {reason} "
            "Give a local folder, or a hub name that this machine can reach"
        ) from error


def check_prompts(data: RolloutDataModule) -> list[str]:
    """Prompts encode, fill a rollout batch, can be graded, and are not shared between training and validation."""
    found = [*check_golds("train", data), *check_golds("val", data)]
    kept = len(data.train_prompts.prompts)
    if kept < data.prompts_per_batch:
        raise ValueError(
            f"data.train holds {kept} usable prompts, fewer than one rollout batch of data.prompts_per_batch="
            f"{data.prompts_per_batch}; give more prompts or a smaller batch"
        )
    check_apart([p.example for p in data.train_prompts.prompts], [p.example for p in data.val_prompts.prompts])
    return found


def check_golds(name: Literal["train", "val"], data: RolloutDataModule) -> list[str]:
    """Every gold answer of one side can be graded; a warning counts the rows that are left out."""
    encoded = data.train_prompts if name == "train" else data.val_prompts
    try:
        data.collector.reward.check([prompt.example for prompt in encoded.prompts])
    except ValueError as error:
        raise ValueError(f"data.{name}: {error}, or give data.drop_ungradable: true to leave them out") from error
    if not (encoded.too_long or encoded.ungradable):
        return []
    return [
        f"data.{name}: {encoded.counts} (data.max_prompt_tokens={data.max_prompt_tokens}): "
        f"{some([*encoded.too_long, *encoded.ungradable])}."
    ]


def check_apart(train: Sequence[Example], val: Sequence[Example]) -> None:
    """No question stands in both, compared without case and spacing."""
    known = {normalised(example.question): example.id for example in train}
    both = [(known[text], e.id) for e in val if (text := normalised(e.question)) in known]
    if both:
        pairs = some([f"{a} = {b}" if a != b else a for a, b in both])
        raise ValueError(
            f"{len(both)} of {len(val)} validation questions are training questions too (train = val): {pairs}; "
            "take them out of one of the two, or pass@k would measure memory; "
            "two sides of one source are kept apart by holdout: train and holdout: validation"
        )


def check_lengths(data: RolloutDataModule, config: Any, training: bool = True) -> None:
    """Every prompt leaves room for a whole completion within the model's positions and the engine's own limit."""
    own = getattr(config, "max_position_embeddings", None)
    engine = getattr(data.collector.engine, "max_model_len", None)
    if own is not None and engine is not None and engine > own:
        raise ValueError(f"data.engine.max_model_len={engine} is above the model's {own} positions; give at most {own}")
    splits: list[tuple[str, Sequence[Prompt], Sampling, str]] = [
        ("val", data.val_prompts.prompts, data.val_sampling, "val_sampling")
    ]
    if training:
        splits.insert(0, ("train", data.train_prompts.prompts, data.sampling, "sampling"))
    limits = [(own, "the model's max_position_embeddings"), (engine, "data.engine.max_model_len")]
    for limit, of in ((int(n), what) for n, what in limits if n is not None):
        for name, prompts, sampling, setting in splits:
            over = [p for p in prompts if len(p.token_ids) + sampling.max_tokens > limit]
            if over:
                longest = max(len(p.token_ids) for p in prompts)
                room = limit - sampling.max_tokens
                fits = f"data.max_prompt_tokens: {room} to leave them out, or " if room > 0 else ""
                raise ValueError(
                    f"{len(over)} of {len(prompts)} prompts of data.{name} (longest {longest} tokens) with "
                    f"data.{setting}.max_tokens={sampling.max_tokens} are longer than {limit}, {of}: "
                    f"{some([p.id for p in over])}; give {fits}a smaller max_tokens"
                )


def some(names: Sequence[str]) -> str:
    """The first few of many, and how many more."""
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")
