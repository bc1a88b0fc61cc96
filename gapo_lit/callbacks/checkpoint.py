"""Checkpoints that a run can be gone on with, however it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException
from lightning_utilities.core.rank_zero import rank_zero_warn

from gapo_lit.files import replacing


class ReplacingCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and moves it there whole.

    Lightning stages it in the system's temporary folder: from another file system a full disk or a kill would leave
    half a file in the place of a good one.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Save to a local path."""
        with replacing(Path(path)) as partial:
            torch.save(checkpoint, partial)


class RunCheckpoint(ModelCheckpoint):
    """Lightning's ModelCheckpoint, whose last.ckpt is the last, and which cannot keep a failed run from ending.

    With `save_last: true` last.ckpt is saved after every validation and at the end of training; Lightning 2.6 saves it
    only after a validation that was among the best.
    `save_on_exception`: Ctrl-C and SIGTERM reach every rank, so all of them save. An error is met by one rank alone as
    a rule: it would wait in a collective for the others and hide its own message, so with several ranks nothing is
    saved then.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Have single-file checkpoints replaced whole; sharded ones are folders that the strategy writes."""
        super().setup(trainer, pl_module, stage)
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = ReplacingCheckpointIO()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the best, and the last whether or not it is among them."""
        super().on_validation_end(trainer, pl_module)
        self._keep_last(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save what the updates after the last validation made."""
        super().on_train_end(trainer, pl_module)
        self._keep_last(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Save where every rank can be expected to take part."""
        if trainer.world_size > 1 and not isinstance(exception, KeyboardInterrupt | SIGTERMException):
            return
        try:
            super().on_exception(trainer, pl_module, exception)
        except Exception as error:  # the run's own exception is the one to show
            rank_zero_warn(f"no checkpoint was written after {type(exception).__name__}: {error!r}")

    def _keep_last(self, trainer: Trainer) -> None:
        if self.save_last is True and not self._should_skip_saving_checkpoint(trainer):
            self._save_last_checkpoint(trainer, self._monitor_candidates(trainer))
