"""What is looked at before a run starts: every check takes seconds, loads no weights, and says value, rule and remedy.

A check raises ValueError where the run cannot mean what its recipe says, and returns warnings where it can but probably
does not. `check_fit` and `check_validate` run them in order, cheap ones first.
"""

from __future__ import annotations

from gapo_lit.checks.prompts import check_apart, check_golds, check_lengths, check_prompts, model_config
from gapo_lit.checks.settings import (
    RunSettings,
    check_groups,
    check_installed,
    check_schedule,
    check_trainer,
    different_models,
    questionable_parts,
    settings_of,
    unbound_clip,
)
from gapo_lit.data import RolloutDataModule
from gapo_lit.module import PolicyModule

__all__ = [
    "RunSettings",
    "check_apart",
    "check_fit",
    "check_golds",
    "check_groups",
    "check_installed",
    "check_lengths",
    "check_prompts",
    "check_schedule",
    "check_trainer",
    "check_validate",
    "different_models",
    "model_config",
    "questionable_parts",
    "settings_of",
    "unbound_clip",
]


def check_fit(module: PolicyModule, data: RolloutDataModule, run: RunSettings) -> list[str]:
    """Everything a training run depends on; returns warnings, raises ValueError at the first thing that is wrong."""
    check_trainer(run)
    check_groups(module, data)
    warnings = [*unbound_clip(module, data, run), *questionable_parts(module)]
    config = model_config(module.model_name)
    warnings += check_prompts(data)
    data.check_ranks(run.world_size)
    check_lengths(data, config)
    warnings += check_schedule(data, run)
    return [*warnings, *different_models(module, data)]


def check_validate(module: PolicyModule, data: RolloutDataModule, run: RunSettings) -> list[str]:
    """What a validation run depends on."""
    config = model_config(module.model_name)
    warnings = check_golds("val", data)
    data.check_ranks(run.world_size, training=False)
    check_lengths(data, config, training=False)
    return [*warnings, *different_models(module, data)]
