"""What a run came to, in a dozen lines and as JSON, told when it ends."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.text import Text

from gapo_lit.callbacks.files import run_folder
from gapo_lit.callbacks.history import History, read_history
from gapo_lit.callbacks.report import ClipActivity, Summary, render, resuming
from gapo_lit.files import replacing
from gapo_lit.types import UpdateBatch

PHASES = ("generate", "reward", "sync", "score", "update", "validation")


class RunSummary(Callback):
    """Prints, when a run ends, what it learned, how often the clip was active and where the time went.

    Also writes it to <run folder>/summary.json. Validation and clip figures are read back from metrics.csv. A run that
    did not finish is told how to go on.
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
        called: Any = trainer  # whose annotations leave `callbacks` out
        others = [callback for callback in called.callbacks if not isinstance(callback, _LastWord)]
        called.callbacks = [*others, _LastWord(self)]  # a new list, as Lightning is walking the old one

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
        self.tell(trainer, "finished")

    def tell(self, trainer: Trainer, outcome: str) -> None:
        """Print and write what there is, and what ended the run."""
        if self._folder is None:
            return
        history = read_history(self._folder / "metrics.csv")
        total = time.monotonic() - self._began
        seconds = self._seconds | {"other": max(total - sum(self._seconds.values()), 0.0), "total": total}
        summary = summarise(history, outcome, trainer.global_step, seconds, self._folder)
        summary = replace(summary, checkpoint=last_checkpoint(trainer))
        with replacing(self._folder / "summary.json") as path:
            path.write_text(json.dumps(asdict(summary), indent=2) + "\n", encoding="utf-8")
        console = Console()
        console.print(render(summary))
        if outcome != "finished" and summary.checkpoint is not None:
            # Outside the panel and on one line, to be copied.
            console.print(Text(f"To go on: {resuming(summary)}"), soft_wrap=True)


class _LastWord(Callback):
    """Has the summary of a run that ends early told after everybody has written what they write then.

    Lightning asks callbacks in their order and those that save checkpoints last; this one is put behind them.
    """

    def __init__(self, summary: RunSummary) -> None:
        self._summary = summary

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Tell, and what ended the run."""
        interrupted = isinstance(exception, KeyboardInterrupt)
        self._summary.tell(trainer, "interrupted" if interrupted else type(exception).__name__)


def last_checkpoint(trainer: Trainer) -> str | None:
    """The checkpoint that a run would be gone on from."""
    paths = [getattr(callback, "last_model_path", "") for callback in trainer.checkpoint_callbacks]
    return next((path for path in paths if path and Path(path).exists()), None)


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
