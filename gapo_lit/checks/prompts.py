"""Checks that look at the prompts, and at the configuration of the model that is asked them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapo_lit.checks.contamination import check_contamination
from gapo_lit.data import RolloutDataModule
from gapo_lit.evaluation.benchmark import VALIDATION, Task
from gapo_lit.prompts import EncodedPrompts
from gapo_lit.rewards.base import Reward
from gapo_lit.types import Sampling

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
    """Prompts encode, fill a rollout batch, can be graded, and are no questions of what judges the policy."""
    reward = data.collector.reward
    found = [*check_golds("data.train", data.train_prompts, reward), *check_golds("data.val", data.val_prompts, reward)]
    found += check_contamination(data.found, data.contamination)
    kept = len(data.train_prompts.prompts)
    if kept < data.prompts_per_batch:
        raise ValueError(
            f"data.train holds {kept} usable prompts, fewer than one rollout batch of data.prompts_per_batch="
            f"{data.prompts_per_batch}; give more prompts or a smaller batch"
        )
    return found


def check_task(task: Task) -> list[str]:
    """Every gold answer of a benchmark can be graded; a warning counts the rows that are left out."""
    return check_golds(task.place, task.prompts, task.reward)


def check_golds(name: str, encoded: EncodedPrompts, reward: Reward) -> list[str]:
    """ValueError where a gold answer cannot be graded; a warning counts the rows that are left out."""
    try:
        reward.check([prompt.example for prompt in encoded.prompts])
    except ValueError as error:
        raise ValueError(f"{name}: {error}, or give data.drop_ungradable: true to leave them out") from error
    return [f"{name}: {encoded.counts}: {some(encoded.left_out)}."] if encoded.left_out else []


def check_lengths(data: RolloutDataModule, config: Any) -> None:
    """Every training and validation prompt leaves room for a whole completion."""
    limits = position_limits(config, data)
    check_room("data.train", data.train_prompts, data.sampling, "data.sampling", limits)
    check_task_lengths([data.val_task], config, data)


def check_task_lengths(tasks: Sequence[Task], config: Any, data: RolloutDataModule) -> None:
    """Every problem leaves room for a whole completion."""
    limits = position_limits(config, data)
    for task in tasks:
        setting = "data.val_sampling" if task.name == VALIDATION else f"{task.place}.sampling"
        check_room(task.place, task.prompts, task.sampling, setting, limits)


def position_limits(config: Any, data: RolloutDataModule) -> list[tuple[int, str]]:
    """The longest prompt and completion together, and what sets it. ValueError where the engine's is the larger."""
    own = getattr(config, "max_position_embeddings", None)
    engine = getattr(data.collector.engine, "max_model_len", None)
    if own is not None and engine is not None and engine > own:
        raise ValueError(f"data.engine.max_model_len={engine} is above the model's {own} positions; give at most {own}")
    limits = [(own, "the model's max_position_embeddings"), (engine, "data.engine.max_model_len")]
    return [(int(n), what) for n, what in limits if n is not None]


def check_room(
    name: str, encoded: EncodedPrompts, sampling: Sampling, setting: str, limits: Sequence[tuple[int, str]]
) -> None:
    """Every prompt leaves room for a whole completion within the limits; setting: where the sampling is given."""
    prompts = encoded.prompts
    for limit, of in limits:
        over = [p for p in prompts if len(p.token_ids) + sampling.max_tokens > limit]
        if over:
            longest = max(len(p.token_ids) for p in prompts)
            room = limit - sampling.max_tokens
            fits = f"data.max_prompt_tokens: {room} to leave them out, or " if room > 0 else ""
            raise ValueError(
                f"{len(over)} of {len(prompts)} prompts of {name} (longest {longest} tokens) with "
                f"{setting}.max_tokens={sampling.max_tokens} are longer than {limit}, {of}: "
                f"{some([p.id for p in over])}; give {fits}a smaller max_tokens"
            )


def some(names: Sequence[str]) -> str:
    """The first few of many, and how many more."""
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")
