"""Which folder a run writes to."""

from __future__ import annotations

from pathlib import Path

from lightning import Trainer

from gapo_lit.callbacks.run_folder import RunLogger


def run_folder(trainer: Trainer) -> Path | None:
    """The folder of this run, the same on every rank; a collective, so call it on all of them.

    The RunLogger's, whatever its place among the loggers; else what Lightning says. None where nothing is to be kept.
    """
    for logger in trainer.loggers:
        if isinstance(logger, RunLogger):
            return Path(trainer.strategy.broadcast(logger.log_dir))
    return Path(trainer.log_dir) if trainer.loggers and trainer.log_dir is not None else None
