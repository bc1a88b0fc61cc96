"""What is looked at before a run starts: every check takes seconds, loads no weights, and says value, rule and remedy.

A check raises ValueError where the run cannot mean what its recipe says, and returns warnings where it can but probably
does not. `check_fit` and `check_evaluation` run them in order, cheap ones first.
"""

from __future__ import annotations

from typing import Literal

from gapo_lit.checks.contamination import check_contamination
from gapo_lit.checks.prompts import (
    check_golds,
    check_lengths,
    check_prompts,
    check_task,
    check_task_lengths,
    model_config,
)
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
    "check_contamination",
    "check_evaluation",
    "check_fit",
    "check_golds",
    "check_groups",
    "check_installed",
    "check_lengths",
    "check_prompts",
    "check_schedule",
    "check_trainer",
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


def check_evaluation(module: PolicyModule, data: RolloutDataModule, stage: Literal["validate", "test"]) -> list[str]:
    """What an evaluation depends on; with benchmarks, also which of them chose the checkpoint."""
    config = model_config(module.model_name)
    tasks = data.tasks(stage)
    if not tasks:
        raise ValueError(
            "data.benchmarks is empty, so there is nothing to test; lay a recipe of recipes/benchmark/ over this one, "
            "such as --config recipes/benchmark/math500.yaml"
        )
    warnings = [text for task in tasks for text in check_task(task)]
    check_task_lengths(tasks, config, data)
    for task in tasks:
        for what, count in data.shares(task).items():
            warnings.append(
                f"data.benchmarks.{task.name} shares {count} problems with {what}, which chooses the checkpoint: its "
                "figures are labelled so, as they are no test."
            )
    return [*warnings, *different_models(module, data)]
