"""What the command line says before a run: refusals, warnings and the summary of a dry run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from gapo_lit.cli.estimate import engine_memory, gib, model_size, training_work, update_memory

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
    data = cli.datamodule
    batches = len(data.train_prompts.prompts) // data.prompts_per_batch
    return [("an epoch", f"{batches} rollout batches, {batches * data.updates_per_batch} steps"), *estimates(cli)]


def estimates(cli: GapoCLI) -> list[tuple[str, str]]:
    """What a training run will take, as far as its recipe tells: work, parameters, memory of a rank."""
    data, trainer = cli.datamodule, cli.config[str(cli.subcommand)]["trainer"]
    steps, rows = cli.steps, list[tuple[str, str]]()
    if steps > 0:
        sizes = (data.updates_per_batch, data.prompts_per_batch, data.group_size, data.sampling.max_tokens)
        work = training_work(steps, *sizes)
        rows.append(("the run", str(work)))
    size = model_size(str(cli.model.model_name))
    row = max(len(prompt.token_ids) for prompt in data.train_prompts.prompts) + data.sampling.max_tokens
    memory = update_memory(
        size,
        tokens=max(cli.model.micro_batch_tokens, row),  # a rollout above the budget has a micro-batch to itself
        row=row,
        shards=cli.world_size if "FSDP" in str(trainer.get("strategy")).upper() else 1,
        half=str(trainer.get("precision")).startswith("bf16"),
        checkpointing=cli.model.gradient_checkpointing,
    )
    parts = f"{gib(memory.state)} weights, gradients and AdamW, {gib(memory.activations)} activations, "
    parts += f"{gib(memory.logits)} logits"
    device = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else None
    engine = engine_memory(data.collector.engine, size, device)
    held = "" if engine is None else f"; the engine {gib(engine)}"
    rows += [("parameters", f"{size.parameters:,}"), ("memory of a rank", f"about {gib(memory.total)}: {parts}{held}")]
    if device is not None and memory.total + (engine or 0) > device:
        rows.append(("", f"more than the device's {gib(device)}: shard over more ranks, or lower micro_batch_tokens"))
    return rows


def estimate(cli: GapoCLI) -> None:
    """One block of lines before a run starts."""
    lines = [f"{name}: {value}" for name, value in (_tasks(cli) if cli.command != "fit" else estimates(cli))]
    Console(stderr=True).print("estimate\n  " + "\n  ".join(lines), soft_wrap=True, highlight=False, markup=False)
