"""Checks that need the settings of a run and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from gapo_lit.clipping.schedules import ConstantClip
from gapo_lit.data import RolloutDataModule
from gapo_lit.module import PolicyModule
from gapo_lit.policies.advantages import Advantage, Focal, GroupStd
from gapo_lit.policies.kl import K1

PRECISIONS = ("32-true", "32", "bf16-mixed", "bf16")  # the short ones are Lightning's own names for the long


@dataclass(frozen=True)
class RunSettings:
    """The Trainer's settings that matter here, as its own arguments; world_size is devices times nodes."""

    world_size: int = 1
    max_steps: int = -1
    gradient_clip_val: float | None = None
    accumulate_grad_batches: int = 1
    precision: str | int = "32-true"
    val_check_interval: int | float | None = None
    check_val_every_n_epoch: int | None = 1
    allow_unbound_clip: bool = False


def settings_of(trainer: dict[str, Any], world_size: int, allow_unbound_clip: bool) -> RunSettings:
    """From the Trainer's arguments as a recipe gives them."""

    def pick() -> Iterator[tuple[str, Any]]:
        for name in ("max_steps", "gradient_clip_val", "accumulate_grad_batches", "precision", "val_check_interval"):
            if trainer.get(name) is not None:
                yield name, trainer[name]
        yield "check_val_every_n_epoch", trainer.get("check_val_every_n_epoch", 1)

    return RunSettings(world_size=world_size, allow_unbound_clip=allow_unbound_clip, **dict(pick()))


def check_trainer(run: RunSettings) -> None:
    """Refuse Trainer settings that manual optimisation ignores or forbids, and precisions that would not learn."""
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
    if str(run.precision) not in PRECISIONS:
        raise ValueError(
            f"trainer.precision={run.precision}: steps of 1e-6 vanish in parameters of 16 bits, 16-mixed would clip "
            "gradients before they are unscaled, and no other is supported; give 32-true or bf16-mixed"
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
            f"group_size={k} gives every rollout an advantage of 0, as it is its group's own mean; "
            "give at least 2 (the paper: 8)"
        )
    module.objective.clip.check(k)


def unbound_clip(module: PolicyModule, data: RolloutDataModule, run: RunSettings) -> list[str]:
    """One update a rollout batch makes every ratio 1: refused for a clip whose point is to adapt, else said loudly."""
    if data.updates_per_batch > 1:
        return []
    says = (
        f"data.prompts_per_batch={data.prompts_per_batch} makes one update of prompts_per_update="
        f"{data.prompts_per_update}: the ratio is exactly 1 and no clip can ever bind; GAPO equals GSPO"
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
            f"{type(objective.advantage).__name__} divides by the group's std, which weights near-unanimous groups up "
            f"and works against {type(objective.clip).__name__}; GAPO uses GroupMean."
        )
    if objective.kl is not None and objective.kl_coef == 0:
        found.append(
            "model.kl with kl_coef=0 holds a reference model and computes every rollout with it, for a metric alone; "
            "give kl_coef, or kl: null."
        )
    if isinstance(objective.kl, K1) and objective.kl_coef > 0:
        found.append(
            f"model.kl_coef={objective.kl_coef} weights K1, whose gradient is 0 in expectation: it adds noise and "
            "holds nothing near the reference. Give kl: K3 or K2."
        )
    return found


def standardises(advantage: Advantage) -> bool:
    """Whether an advantage divides by the std of its group, itself or in what it wraps."""
    return isinstance(advantage, GroupStd) or (isinstance(advantage, Focal) and standardises(advantage.base))


def check_schedule(data: RolloutDataModule, run: RunSettings) -> list[str]:
    """Steps and validations against the length of a rollout batch and of an epoch."""
    updates, found = data.updates_per_batch, []
    steps = len(data.train_prompts.prompts) // data.prompts_per_batch * updates
    if run.max_steps > 0 and run.max_steps % updates:
        found.append(
            f"trainer.max_steps={run.max_steps} is no multiple of the {updates} updates of a rollout batch: rollouts "
            f"of the last one are partly thrown away. Give {max(1, round(run.max_steps / updates)) * updates}."
        )
    every = run.val_check_interval
    if isinstance(every, int) and not isinstance(every, bool):
        if run.check_val_every_n_epoch is not None and every > steps:
            raise ValueError(
                f"trainer.val_check_interval={every} is above the {steps} steps of an epoch, so validation would never "
                "come; give check_val_every_n_epoch: null to count over epochs, or a smaller interval"
            )
        if every % updates:
            found.append(
                f"trainer.val_check_interval={every} is no multiple of the {updates} updates of a rollout batch: "
                "validation in the middle of one costs weight syncs of its own."
            )
        if run.check_val_every_n_epoch is None and run.max_steps > 0 and run.max_steps % every:
            found.append(
                f"trainer.max_steps={run.max_steps} is no multiple of trainer.val_check_interval={every}: the policy "
                "exported at the end is never validated, and the summary's last validation is of an earlier one. "
                f"Give max_steps {max(1, round(run.max_steps / every)) * every}, or an interval that divides it."
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


def check_installed(data: RolloutDataModule) -> None:
    """What the engine says it needs (`requires`, names of modules) is there, before a model is loaded for nothing."""
    engine = data.collector.engine
    missing = [name for name in getattr(engine, "requires", ()) if find_spec(name) is None]
    if missing:
        raise ValueError(
            f"{type(engine).__name__} needs {', '.join(missing)}, which is not installed here; install gapo-lit's "
            "extra `cpu` or `gpu`, or give --data.engine TransformersEngine, which needs neither"
        )
