"""What is looked at before a run starts: every check takes seconds, loads no weights, and says value, rule and remedy.

A check raises ValueError where the run cannot mean what its recipe says, and returns warnings where it can but probably
does not. `check_fit` and `check_validate` run them in order, cheap ones first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapo_lit.clipping.schedules import ConstantClip
from gapo_lit.data import RolloutDataModule
from gapo_lit.module import PolicyModule
from gapo_lit.policies.advantages import Advantage, Focal, GroupStd
from gapo_lit.types import Example, Prompt, Sampling

LISTED = 5


@dataclass(frozen=True)
class RunSettings:
    """The Trainer's settings that matter here, as its own arguments; world_size is devices times nodes."""

    world_size: int = 1
    max_steps: int = -1
    gradient_clip_val: float | None = None
    accumulate_grad_batches: int = 1
    val_check_interval: int | float | None = None
    check_val_every_n_epoch: int | None = 1
    allow_unbound_clip: bool = False


def check_fit(module: PolicyModule, data: RolloutDataModule, run: RunSettings) -> list[str]:
    """Everything a training run depends on; returns warnings, raises ValueError at the first thing that is wrong."""
    check_trainer(run)
    check_groups(module, data)
    check_sampling(data.sampling, data.val_sampling, data.val_samples)
    check_batches(data, run.world_size)
    warnings = [*unbound_clip(module, data, run), *questionable_parts(module)]
    config = model_config(module.model_name)
    warnings += check_prompts(data)
    check_lengths(data, config)
    warnings += check_schedule(data, run)
    return [*warnings, *different_models(module, data)]


def check_validate(module: PolicyModule, data: RolloutDataModule) -> list[str]:
    """What a validation run depends on."""
    check_sampling(data.val_sampling, data.val_sampling, data.val_samples, training=False)
    config = model_config(module.model_name)
    check_lengths(data, config, training=False)
    data.collector.reward.check([prompt.example for prompt in data.val_prompts.prompts])
    return different_models(module, data)


def check_trainer(run: RunSettings) -> None:
    """Refuse Trainer settings that manual optimisation ignores or forbids."""
    if run.gradient_clip_val is not None:
        raise ValueError(
            f"trainer.gradient_clip_val={run.gradient_clip_val} has no effect on manual optimisation; "
            f"set model.max_grad_norm: {run.gradient_clip_val} and leave gradient_clip_val out"
        )
    if run.accumulate_grad_batches != 1:
        raise ValueError(
            f"trainer.accumulate_grad_batches={run.accumulate_grad_batches}, but a step is one update of "
            "data.prompts_per_update prompts, cut by model.micro_batch_tokens to fit memory; set those two instead"
        )


def check_groups(module: PolicyModule, data: RolloutDataModule) -> None:
    """One k for objective and sampling, and at least 2 of them to compare."""
    k = data.group_size
    if module.objective.group_size != k:
        raise ValueError(
            f"model.group_size={module.objective.group_size} but data.group_size={k}; they are one number: "
            "give data.group_size and let model.group_size be ${data.group_size}"
        )
    if k < 2:
        raise ValueError(
            f"group_size={k} gives every rollout an advantage of 0, as it is its group's own mean; give at least 2 (the paper: 8)"
        )
    module.objective.clip.check(k)


def check_sampling(train: Sampling, val: Sampling, val_samples: int, training: bool = True) -> None:
    """Training samples from the policy itself; several greedy completions of a prompt are one."""
    if training and train.temperature == 0:
        raise ValueError(
            "data.sampling.temperature=0 draws the same completion k times and has no log-probs to learn from; "
            "give 1.0, and keep 0 to data.val_sampling"
        )
    if training and train.truncates:
        raise ValueError(
            f"data.sampling has top_p={train.top_p}, top_k={train.top_k}: the trainer's log-probs are of the whole distribution, "
            "so every ratio would be wrong; give top_p: 1.0 and top_k: -1, and keep others to data.val_sampling"
        )
    if val_samples < 1:
        raise ValueError(f"data.val_samples={val_samples} validates nothing; give at least 1")
    if val.temperature == 0 and val_samples > 1:
        raise ValueError(
            f"data.val_samples={val_samples} greedy completions of a prompt are all the same; "
            "give val_samples: 1 or val_sampling.temperature above 0"
        )


def check_batches(data: RolloutDataModule, world_size: int) -> None:
    """A rollout batch is cut into equal updates, and an update into equal shares of whole groups."""
    batch, update = data.prompts_per_batch, data.prompts_per_update
    if min(batch, update) < 1:
        raise ValueError(f"prompts_per_batch={batch}, prompts_per_update={update}: both must be at least 1")
    if batch % update:
        near = [n for n in range(1, batch + 1) if batch % n == 0]
        raise ValueError(
            f"data.prompts_per_batch={batch} is not a multiple of data.prompts_per_update={update}; "
            f"give prompts_per_update one of {', '.join(map(str, near[-8:]))}"
        )
    if update % world_size:
        raise ValueError(
            f"data.prompts_per_update={update} does not divide over {world_size} ranks (a group stays on one); "
            f"give a multiple of {world_size}, such as {-(-update // world_size) * world_size}, or fewer devices"
        )


def unbound_clip(module: PolicyModule, data: RolloutDataModule, run: RunSettings) -> list[str]:
    """One update a rollout batch makes every ratio 1: refused for a clip whose point is to adapt, else said loudly."""
    if data.updates_per_batch > 1:
        return []
    says = (
        f"data.prompts_per_batch={data.prompts_per_batch} makes one update of prompts_per_update={data.prompts_per_update}: "
        "the ratio is exactly 1 and no clip can ever bind; GAPO equals GSPO"
    )
    remedy = f"give prompts_per_update: {max(1, data.prompts_per_batch // 4)} for several updates a rollout batch"
    if isinstance(module.objective.clip, ConstantClip) or run.allow_unbound_clip:
        return [f"{says}. {remedy[0].upper()}{remedy[1:]}."]
    name = type(module.objective.clip).__name__
    raise ValueError(f"{says}, and {name} does nothing; {remedy}, or allow_unbound_clip: true to run it all the same")


def questionable_parts(module: PolicyModule) -> list[str]:
    """Compositions that run but work against themselves."""
    objective, found = module.objective, []
    if standardises(objective.advantage) and not isinstance(objective.clip, ConstantClip):
        found.append(
            f"{type(objective.advantage).__name__} divides by the group's std, which weights nearly unanimous groups up and "
            f"works against {type(objective.clip).__name__}; GAPO uses GroupMean."
        )
    if objective.kl is not None and objective.kl_coef == 0:
        found.append(
            "model.kl with kl_coef=0 holds a reference model and computes every rollout with it, for a metric alone; "
            "give kl_coef, or kl: null."
        )
    return found


def standardises(advantage: Advantage) -> bool:
    """Whether an advantage divides by the std of its group, itself or in what it wraps."""
    return isinstance(advantage, GroupStd) or (isinstance(advantage, Focal) and standardises(advantage.base))


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
            f"model {name!r} could not be read{offline}: {reason} Give a local folder, or a hub name that this machine can reach"
        ) from error


def check_prompts(data: RolloutDataModule) -> list[str]:
    """Prompts encode, fill a rollout batch, can be graded, and are not shared between training and validation."""
    reward, found = data.collector.reward, []
    for name, source, encoded in (("train", data.train, data.train_prompts), ("val", data.val, data.val_prompts)):
        with_context(f"data.{name}", reward.check, source.examples())
        if encoded.too_long:
            found.append(
                f"data.{name}: {encoded.counts} (data.max_prompt_tokens={data.max_prompt_tokens}): {some(encoded.too_long)}."
            )
    kept = len(data.train_prompts.prompts)
    if kept < data.prompts_per_batch:
        raise ValueError(
            f"data.train holds {kept} usable prompts, fewer than one rollout batch of data.prompts_per_batch="
            f"{data.prompts_per_batch}; give more prompts or a smaller batch"
        )
    check_apart(data.train.examples(), data.val.examples())
    return found


def check_apart(train: Sequence[Example], val: Sequence[Example]) -> None:
    """No question stands in both, compared without case and spacing."""
    known = {normalised(example.question): example.id for example in train}
    both = [(known[text], e.id) for e in val if (text := normalised(e.question)) in known]
    if both:
        pairs = some([f"{a} = {b}" if a != b else a for a, b in both])
        raise ValueError(
            f"{len(both)} of {len(val)} validation questions are training questions too (train = val): {pairs}; "
            "take them out of one of the two, or pass@k would measure memory"
        )


def normalised(question: str) -> str:
    """A question without case and spacing."""
    return " ".join(question.casefold().split())


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


def check_schedule(data: RolloutDataModule, run: RunSettings) -> list[str]:
    """Steps and validations against the length of a rollout batch and of an epoch."""
    updates, found = data.updates_per_batch, []
    steps = len(data.train_prompts.prompts) // data.prompts_per_batch * updates
    if run.max_steps > 0 and run.max_steps % updates:
        found.append(
            f"trainer.max_steps={run.max_steps} is no multiple of the {updates} updates of a rollout batch: the rollouts of the "
            f"last one are partly thrown away. Give {max(1, round(run.max_steps / updates)) * updates}."
        )
    every = run.val_check_interval
    if isinstance(every, int) and not isinstance(every, bool):
        if run.check_val_every_n_epoch is not None and every > steps:
            raise ValueError(
                f"trainer.val_check_interval={every} is above the {steps} steps of an epoch, so validation would never come; "
                "give check_val_every_n_epoch: null to count over epochs, or a smaller interval"
            )
        if every % updates:
            found.append(
                f"trainer.val_check_interval={every} is no multiple of the {updates} updates of a rollout batch: validation in "
                "the middle of one costs weight syncs of its own."
            )
    return found


def different_models(module: PolicyModule, data: RolloutDataModule) -> list[str]:
    """Policy, tokenizer and engine should be one model."""
    names = {"data.tokenizer": data.tokenizer_name, "data.engine.model": getattr(data.collector.engine, "model", None)}
    return [
        f"{setting}={name} is not model.model={module.model_name}: token ids of one mean nothing to the other."
        for setting, name in names.items()
        if name is not None and name != module.model_name
    ]


def with_context(place: str, check: Any, *arguments: Any) -> None:
    """Call a check, with the place it looks at in front of its message."""
    try:
        check(*arguments)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def some(names: Sequence[str]) -> str:
    """The first few of many, and how many more."""
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def settings_of(trainer: dict[str, Any], world_size: int, allow_unbound_clip: bool) -> RunSettings:
    """From the Trainer's arguments as a recipe gives them."""

    def pick() -> Iterator[tuple[str, Any]]:
        for name in ("max_steps", "gradient_clip_val", "accumulate_grad_batches", "val_check_interval"):
            if trainer.get(name) is not None:
                yield name, trainer[name]
        yield "check_val_every_n_epoch", trainer.get("check_val_every_n_epoch", 1)

    return RunSettings(world_size=world_size, allow_unbound_clip=allow_unbound_clip, **dict(pick()))
