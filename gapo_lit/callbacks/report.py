"""What a run came to, in words and tables."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gapo_lit.callbacks.history import STEP

CONTENTS = {
    "metrics.csv": "every metric of every update and validation",
    "config.yaml": "the resolved recipe",
    "samples.html": "sample completions with their rewards, for a browser",
    "samples.jsonl": "the same, one JSON object a line",
    "plots": "reward, pass@k, clip fractions and more as PNG",
    "checkpoints": "to go on from",
    "model": "the trained model, as AutoModelForCausalLM.from_pretrained loads it",
    "summary.json": "this summary",
}


@dataclass(frozen=True)
class ClipActivity:
    """At how many updates a bound was active for at least one token.

    updates: those at which it could be, all but the first of each rollout batch. low, high: how many of them.
    """

    updates: int
    low: int
    high: int


@dataclass(frozen=True)
class Summary:
    """What `RunSummary` prints and writes.

    before, after: the first and last validation, as logged, without their prefix; empty where there was none.
    seconds: wall time by phase, with `other` and `total`; rank 0's. outcome: "finished", or what ended the run.
    checkpoint: the last one, to go on from; None where none was saved.
    """

    outcome: str
    updates: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    clip: ClipActivity
    seconds: Mapping[str, float]
    folder: str
    checkpoint: str | None = None


def render(summary: Summary) -> Panel:
    """The summary for a terminal."""
    parts: list[Any] = [_validation_table(summary)] if summary.after else [Text("There was no validation.")]
    parts += [
        Text(),
        Text(clip_sentence(summary.clip) if summary.updates else "No update was made."),
        Text(),
        _time_table(summary.seconds),
        Text(),
    ]
    folder = Path(summary.folder)
    parts.append(Text(f"Run folder: {folder}"))
    there = [(name, what) for name, what in CONTENTS.items() if (folder / name).exists()]
    grid = Table.grid(padding=(0, 2))
    for name, what in there:
        grid.add_row(Text(f"  {name}{'/' if (folder / name).is_dir() else ''}"), Text(what))
    parts.append(grid)
    return Panel(Group(*parts), title=f"{summary.updates} updates, {summary.outcome}", expand=False)


def _validation_table(summary: Summary) -> Table:
    before, after = summary.before, summary.after
    single = before == after
    table = Table(title="Validation", title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for head in [_when(after)] if single else [_when(before), _when(after), "change"]:
        table.add_column(head, justify="right")
    for name in _pass_names(after):
        first, last = before.get(name, math.nan), after[name]
        table.add_row(
            name, *([f"{last:.3f}"] if single else [f"{first:.3f}", f"{last:.3f}", f"{_change(first, last)}"])
        )
    return table


def _change(first: float, last: float) -> str:
    return f"{round(last - first, 3) + 0.0:+.3f}"  # + 0.0 makes -0.0 positive


def _when(row: Mapping[str, float]) -> str:
    step = row.get(STEP, 0.0)
    return f"after update {step:.0f}" if step else "before training"


def _pass_names(row: Mapping[str, float]) -> list[str]:
    return sorted((n for n in row if n.startswith("pass@")), key=lambda name: int(name.removeprefix("pass@")))


def _time_table(seconds: Mapping[str, float]) -> Table:
    table = Table(
        title="Wall time", title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False
    )
    total = seconds.get("total", 0.0) or 1.0
    notes = {"validation": "start of the engine included", "other": "loading, checkpoints, plots"}
    for name, value in seconds.items():
        if value > 0:
            table.add_row(
                name,
                Text(f"{value:.1f} s", justify="right"),
                Text(f"{value / total:.0%}", justify="right"),
                notes.get(name, ""),
            )
    return table


def clip_sentence(clip: ClipActivity) -> str:
    """How often the clip was active, in words, and what it means if it never was."""
    if not clip.updates:
        return (
            "No clip could be active: every rollout batch fed one update, at which the ratio is 1. "
            "Make data.prompts_per_update smaller than data.prompts_per_batch."
        )
    if not clip.low and not clip.high:
        return (
            f"The clip was never active in {clip.updates} later updates of a rollout batch: this run would have gone "
            "the same way with any wider clip. Narrow it, or raise the learning rate or the updates a rollout batch."
        )
    sides = [
        f"the {side} bound in {n} ({n / clip.updates:.0%})" for side, n in (("upper", clip.high), ("lower", clip.low))
    ]
    return f"Of {clip.updates} later updates of a rollout batch, {sides[0]} and {sides[1]} clipped at least one token."


def resuming(summary: Summary) -> str:
    """The command that goes on from the last checkpoint, or the flag to add where the recipe was not written."""
    recipe = Path(summary.folder) / "config.yaml"
    flag = f"--ckpt_path {shlex.quote(str(summary.checkpoint))}"
    return f"gapo-lit fit --config {shlex.quote(str(recipe))} {flag}" if recipe.exists() else flag
