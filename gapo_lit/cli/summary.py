"""What the command line says before a run: refusals, warnings and the summary of a dry run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

if TYPE_CHECKING:
    from gapo_lit.cli.run import GapoCLI


def refusal(message: str) -> None:
    """One error, to standard error, unwrapped so that it can be searched for."""
    print(f"gapo-lit: error: {message}", file=sys.stderr)


def warning(message: str) -> None:
    """A warning that is hard to miss."""
    Console(stderr=True).print(Panel(message, title="warning", border_style="yellow", title_align="left"), markup=False)


def dry_run(cli: GapoCLI) -> None:
    """The recipe as it would run: its parts, its sizes and what they add up to."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    training = (_sizes, _numbers) if cli.command == "fit" else (_tasks,)
    for section in (_parts(cli), *(rows(cli) for rows in training)):
        for name, value in section:
            table.add_row(name, value)
        table.add_row("", "")
    console = Console()
    console.print(table)
    console.print("The recipe is sound; nothing was loaded or written.")


def describe(config: Any) -> str:
    """A part of a resolved recipe as a call: GAPOClip(eps_lo=0.003, eps_max=0.005, form=count)."""
    if config is None:
        return "none"
    if isinstance(config, str | int | float):
        return str(config)
    tree = config.as_dict() if hasattr(config, "as_dict") else config
    if not isinstance(tree, dict) or "class_path" not in tree:
        return str(tree)
    settings = ", ".join(f"{key}={describe(value)}" for key, value in (tree.get("init_args") or {}).items())
    return f"{tree['class_path'].rpartition('.')[2]}({settings})"


def _parts(cli: GapoCLI) -> list[tuple[str, str]]:
    recipe = cli.config[str(cli.subcommand)]
    model, data = recipe["model"], recipe["data"]
    names = ("ratio", "advantage", "clip", "surrogate", "aggregation", "kl", "correction", "optimizer")
    rows = [("recipes", " + ".join(cli.line.recipes) or "flags alone"), ("model", str(model["model"]))]
    rows += [(name, describe(model.get(name))) for name in names]
    rows += [(name, describe(data.get(name))) for name in ("train", "val", "reward", "engine")]
    return rows


def _sizes(cli: GapoCLI) -> list[tuple[str, str]]:
    data = cli.datamodule
    k, batch, update = data.group_size, data.prompts_per_batch, data.prompts_per_update
    rows = [
        ("rollout batch", f"{batch} prompts × {k} = {batch * k} rollouts"),
        ("updates a rollout batch", f"{data.updates_per_batch}, of {update} prompts = {update * k} rollouts"),
        ("ranks", f"{cli.world_size}, each {update // cli.world_size} prompts an update"),
    ]
    for name, encoded in (("training prompts", data.train_prompts), ("validation prompts", data.val_prompts)):
        longest = max(len(prompt.token_ids) for prompt in encoded.prompts)
        rows.append((name, f"{encoded.counts}; the longest has {longest} tokens"))
    return rows


def _tasks(cli: GapoCLI) -> list[tuple[str, str]]:
    """What is evaluated, and how much has to be sampled for it."""
    rows = []
    for task in cli.datamodule.tasks(cli.command):
        count, sampling = len(task.prompts.prompts), task.sampling
        how = (
            "greedy" if sampling.temperature == 0 else f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}"
        )
        most = count * task.samples * sampling.max_tokens
        rows.append(
            (
                task.name,
                f"{task.prompts.counts} × {task.samples}, {how}, at most {most:,} sampled tokens; "
                f"{type(task.reward).__name__}",
            )
        )
    return rows


def _numbers(cli: GapoCLI) -> list[tuple[str, str]]:
    data, trainer = cli.datamodule, cli.config[str(cli.subcommand)]["trainer"]
    batches = len(data.train_prompts.prompts) // data.prompts_per_batch
    rows = [("an epoch", f"{batches} rollout batches, {batches * data.updates_per_batch} steps")]
    steps = trainer.get("max_steps") or -1
    if steps < 0 and (trainer.get("max_epochs") or -1) > 0:
        steps = trainer["max_epochs"] * batches * data.updates_per_batch
    if steps > 0:
        rollouts = -(-steps // data.updates_per_batch) * data.prompts_per_batch * data.group_size
        most = rollouts * data.sampling.max_tokens
        rows.append(("the run", f"{steps} steps, {rollouts:,} rollouts, at most {most:,} sampled tokens"))
    parameters = _parameter_count(str(cli.model.model_name))
    state = f"{parameters * 16 / 2**30:.1f} GiB"  # weights, gradients and Adam's two moments in float32
    rows.append(("parameters", f"{parameters:,}; with gradients and AdamW {state} in float32, over all shards"))
    return rows


def _parameter_count(model: str) -> int:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))  # type: ignore[no-untyped-call]
        return sum(p.numel() for p in built.parameters())
