"""What a run came to, in a dozen lines and as JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gapo_lit.callbacks.files import replacing, run_folder
from gapo_lit.callbacks.history import STEP, History, read_history
from gapo_lit.types import UpdateBatch

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
PHASES = ("generate", "reward", "sync", "score", "update", "validation")


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
    """

    outcome: str
    updates: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    clip: ClipActivity
    seconds: Mapping[str, float]
    folder: str


class RunSummary(Callback):
    """Prints, when a run ends, what it learned, how often the clip was active and where the time went.

    Also writes it to <run folder>/summary.json. Validation and clip figures are read back from metrics.csv.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._began = self._phase_began = 0.0

    # Keeping time

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Learn the run folder and start the clock."""
        folder = run_folder(trainer)
        self._folder = folder if trainer.is_global_zero and stage == "fit" else None
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._began = time.monotonic()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """An update begins; the first of a rollout batch says what its rollouts took."""
        if isinstance(batch, UpdateBatch):
            for name, seconds in batch.timings.items():
                phase = name.removeprefix("time/")
                if phase in self._seconds:
                    self._seconds[phase] += seconds
        self._phase_began = time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """An update ends."""
        self._seconds["update"] += time.monotonic() - self._phase_began

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A validation begins."""
        self._phase_began = time.monotonic()

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A validation ends; what callbacks draw or save after it is not counted to it."""
        self._seconds["validation"] += time.monotonic() - self._phase_began

    # Telling

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Print and write; here, so that whatever other callbacks write at the end of a fit is in place."""
        self._tell(trainer, "finished")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Print and write what there is, and what ended the run."""
        self._tell(trainer, "interrupted" if isinstance(exception, KeyboardInterrupt) else type(exception).__name__)

    def _tell(self, trainer: Trainer, outcome: str) -> None:
        if self._folder is None:
            return
        history = read_history(self._folder / "metrics.csv")
        total = time.monotonic() - self._began
        seconds = self._seconds | {"other": max(total - sum(self._seconds.values()), 0.0), "total": total}
        summary = summarise(history, outcome, trainer.global_step, seconds, self._folder)
        with replacing(self._folder / "summary.json") as path:
            path.write_text(json.dumps(asdict(summary), indent=2) + "\n", encoding="utf-8")
        Console().print(render(summary))


def summarise(history: History, outcome: str, updates: int, seconds: Mapping[str, float], folder: Path) -> Summary:
    """Put a summary together from what was logged."""
    validations = [row for row in history.validations if not math.isnan(row.get("pass@1", 0.0))]
    before, after = ({}, {}) if not validations else (validations[0], validations[-1])
    return Summary(outcome, updates, before, after, clip_activity(history), seconds, str(folder))


def clip_activity(history: History) -> ClipActivity:
    """Count the updates at which a bound was active."""
    later = history.later_updates()
    low, high = (sum(row.get(f"train/clip_fraction/{side}", 0.0) > 0 for row in later) for side in ("low", "high"))
    return ClipActivity(len(later), low, high)


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
