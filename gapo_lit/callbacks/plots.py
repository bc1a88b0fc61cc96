"""The curves of a run as PNG files, drawn from its metrics.csv."""

from __future__ import annotations

from pathlib import Path

from lightning import Callback, LightningModule, Trainer
from lightning_utilities.core.rank_zero import rank_zero_warn

from gapo_lit.callbacks.files import run_folder
from gapo_lit.callbacks.history import History, read_history
from gapo_lit.files import replacing


class PlotCurves(Callback):
    """Draws <run folder>/plots/*.png: reward, pass@k, clip fractions (also by success count), lengths and so on.

    every_validation: draw after each validation, not only at the end. dpi: pixels an inch; a figure is 7 inches wide.
    A figure whose metrics were not logged is left out. Drawing that fails is a warning: it must not end a run.
    """

    def __init__(self, every_validation: bool = True, dpi: int = 120) -> None:
        if dpi < 1:
            raise ValueError(f"dpi={dpi} leaves no picture; give at least 1")
        self.every_validation, self.dpi = every_validation, dpi
        self._folder: Path | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Learn the run folder."""
        folder = run_folder(trainer)
        self._folder = folder if trainer.is_global_zero else None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw what there is so far."""
        if self.every_validation and not trainer.sanity_checking:
            self._draw()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw the whole run."""
        self._draw()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Draw what led up to it."""
        self._draw()

    def _draw(self) -> None:
        if self._folder is None:
            return
        try:
            draw_run(read_history(self._folder / "metrics.csv"), self._folder / "plots", self.dpi)
        except Exception as error:
            rank_zero_warn(f"the plots of {self._folder} could not be drawn: {error!r}")


def draw_run(history: History, folder: Path, dpi: int = 120) -> list[Path]:
    """Draw every figure whose metrics are in the history; returns the files."""
    # Imported here: matplotlib takes a second to load, which the check of a recipe should not cost.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from gapo_lit.callbacks.figures import FIGURES

    written = []
    for name, draw in FIGURES.items():
        figure = Figure(figsize=(7, 4), layout="constrained")
        FigureCanvasAgg(figure)
        if not draw(figure, history):
            continue
        path = folder / f"{name}.png"
        with replacing(path) as partial:
            figure.savefig(partial, dpi=dpi)
        written.append(path)
    return written
