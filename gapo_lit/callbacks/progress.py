"""What a person watching a run sees: how far it is, how fast, what it is doing now, and a line of numbers an update."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.trainer.states import TrainerFn

from gapo_lit.callbacks.display import Bar, Display, Lines, Silent
from gapo_lit.callbacks.terminal import terminal
from gapo_lit.types import EvaluationBatch, UpdateBatch

STEP_LINE = (
    ("train/reward", "reward {:.3f}"),
    ("train/pass@1", "pass@1 {:.3f}"),
    ("train/clip_fraction/low", "clip low {:.3f}"),
    ("train/clip_fraction/high", "high {:.3f}"),
    ("train/entropy", "entropy {:.3f}"),
    ("train/grad_norm", "grad norm {:.3g}"),
    ("train/completions/mean_length", "length {:.1f}"),
    ("train/groups/unanimous_fraction", "unanimous {:.0%}"),
)
PHASES = {
    "start engine": "starting the engine",
    "sync": "loading weights into the engine",
    "generate": "generating",
    "reward": "grading",
    "score": "scoring old log-probs",
}


class RolloutProgressBar(ProgressBar):
    """Takes the place of Lightning's progress bar: put it among the callbacks and leave enable_progress_bar on.

    style: bar in a terminal, lines (one an update) elsewhere; auto decides. lines_every: print the step line of every
    n-th update. heartbeat: without a terminal, seconds after which a phase that lasts says that it does.
    rollouts/s and tokens/s are rank 0's while it generates.
    """

    def __init__(
        self, style: Literal["auto", "bar", "lines"] = "auto", lines_every: int = 1, heartbeat: float = 30.0
    ) -> None:
        super().__init__()
        if lines_every < 1:
            raise ValueError(f"lines_every={lines_every} prints no update; give at least 1")
        if not heartbeat > 0:
            raise ValueError(f"heartbeat={heartbeat} is no time to wait; give seconds above 0")
        if style not in ("auto", "bar", "lines"):
            raise ValueError(f"style={style!r} is not known; give 'auto', 'bar' or 'lines'")
        self._style, self._lines_every, self._heartbeat = style, lines_every, heartbeat
        self._enabled = True
        self._display: Display | None = None
        self._speed: Mapping[str, float] = {}
        self._began: tuple[float, int] = (0.0, 0)
        self._total: int | None = None
        self._answers = 0

    # Lightning's switches

    def disable(self) -> None:
        """Show nothing; Lightning asks this of ranks other than 0."""
        self._enabled = False

    def enable(self) -> None:
        """Show progress again."""
        self._enabled = True

    def print(self, *args: Any, sep: str = " ", **_: Any) -> None:
        """What `LightningModule.print` prints, above the bar."""
        self._show.line(sep.join(map(str, args)))

    # Hooks

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Begin, and listen to the phases of the rollout side."""
        super().setup(trainer, pl_module, stage)
        if not trainer.is_global_zero:
            self.disable()
        self._show.start()
        collector = getattr(_datamodule(trainer), "collector", None)
        if collector is not None and self._enabled:
            collector.on_progress = self.on_phase

    def on_phase(self, phase: str, done: int, total: int) -> None:
        """Show a phase of the rollout side until it is done (`Collector.on_progress`)."""
        if done >= total:
            self._show.phase(None)
            return
        validating = self.trainer.sanity_checking or self.trainer.validating
        self._show.phase(("validation: " if validating else "") + PHASES.get(phase, phase), done, total)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Time left is reckoned from here."""
        total = trainer.estimated_stepping_batches
        self._total = int(total) if math.isfinite(total) and total > 0 else None
        self._began = (time.monotonic(), trainer.global_step)
        self._show.update(trainer.global_step, self._total, "")

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """The update has begun."""
        if isinstance(batch, UpdateBatch) and batch.timings:
            self._speed = batch.timings
        self._show.phase("updating")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """The update is done: move the bar, print the line."""
        done = trainer.global_step
        where, pace = self._where(trainer, done), self._pace(done)
        self._show.phase(None)
        self._show.update(done, self._total, f"{where} · {pace}" if where else pace)
        if done % self._lines_every == 0 or done == self._total:
            numbers = describe(trainer.callback_metrics)
            of = "" if self._total is None else f"/{self._total}"
            self._show.line(" · ".join(p for p in (f"update {done}{of}", where, numbers, pace) if p))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print how validation came out, the one before training included."""
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if trainer.sanity_checking:
            logged |= getattr(pl_module, "first_validation", {})
        passed = {n.removeprefix("val/"): v for n, v in logged.items() if n.startswith("val/pass@")}
        self._show.phase(None)
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._show.stop()  # the report says it
        elif passed:
            when = "before training" if trainer.sanity_checking else f"after update {trainer.global_step}"
            order = sorted(passed, key=lambda name: int(name.removeprefix("pass@")))
            self._show.line(f"validation {when} · " + " · ".join(f"{name} {passed[name]:.3f}" for name in order))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Where nothing is trained, count the problems that are answered."""
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._evaluate(trainer.val_dataloaders)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count the problems that are answered."""
        self._evaluate(trainer.test_dataloaders)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Some more problems are answered."""
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._answered(batch)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Some more problems are answered."""
        self._answered(batch)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The report has the terminal to itself."""
        self._show.stop()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Whatever is printed from here on has the terminal to itself."""
        self._show.stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Give the terminal back before a traceback is printed."""
        self._show.stop()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """End, also where nothing was trained."""
        self._show.stop()
        collector = getattr(_datamodule(trainer), "collector", None)
        if collector is not None:
            collector.on_progress = None

    # Small helpers

    def _evaluate(self, loader: Any) -> None:
        self._total, self._answers = getattr(loader, "problems", None), 0
        self._began = (time.monotonic(), 0)
        self._show.update(0, self._total, "", unit="problems")

    def _answered(self, batch: EvaluationBatch) -> None:
        self._answers += len(batch.positions)
        collector = getattr(_datamodule(self.trainer), "collector", None)
        self._speed = getattr(collector, "timings", {})
        pace = self._pace(self._answers)
        self._show.phase(None)
        self._show.update(self._answers, self._total, pace, unit="problems")
        of = "" if self._total is None else f"/{self._total}"
        self._show.line(" · ".join(p for p in (f"{batch.benchmark}: problem {self._answers}{of}", pace) if p))

    @property
    def _show(self) -> Display:
        if not self._enabled:
            return Silent()
        if self._display is None:
            console = terminal()
            bar = self._style == "bar" or (
                self._style == "auto" and console.is_terminal and not console.is_dumb_terminal
            )
            self._display = Bar(console) if bar else Lines(console, self._heartbeat)
        return self._display

    def _where(self, trainer: Trainer, done: int) -> str:
        each = getattr(_datamodule(trainer), "updates_per_batch", None)
        if not each:
            return ""
        of = "" if self._total is None else f"/{math.ceil(self._total / each)}"
        return f"rollout batch {math.ceil(done / each)}{of}"

    def _pace(self, done: int) -> str:
        parts = []
        for name, unit in (("rollouts_per_second", "rollouts/s"), ("tokens_per_second", "tokens/s")):
            if name in self._speed:
                parts.append(
                    f"{self._speed[name]:.3g} {unit}" if self._speed[name] < 100 else f"{self._speed[name]:.0f} {unit}"
                )
        start, already = self._began
        if self._total is not None and done > already:
            left = (time.monotonic() - start) / (done - already) * max(self._total - done, 0)
            parts.append(f"{timedelta(seconds=round(left))} left")
        return " · ".join(parts)


def _datamodule(trainer: Trainer) -> Any:
    return getattr(trainer, "datamodule", None)


def describe(metrics: Mapping[str, Any]) -> str:
    """The step line's numbers, as far as they were logged: reward, pass@1, clip fractions, entropy and so on."""
    return " · ".join(text.format(float(metrics[name])) for name, text in STEP_LINE if name in metrics)
