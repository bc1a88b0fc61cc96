"""Checkpoints of a run that does not end by itself."""

from __future__ import annotations

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint


class RunCheckpoint(ModelCheckpoint):
    """Lightning's ModelCheckpoint whose `save_on_exception` cannot keep a failed run from ending.

    Ctrl-C reaches every rank, so all of them save. An error is met by one rank alone as a rule: it would wait in a
    collective for the others and hide its own message, so with several ranks nothing is saved then.
    """

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Save where every rank can be expected to take part."""
        if trainer.world_size == 1 or isinstance(exception, KeyboardInterrupt):
            super().on_exception(trainer, pl_module, exception)
