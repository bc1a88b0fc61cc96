"""Checkpoints that a run can be gone on with, however it ended."""

from __future__ import annotations

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning_utilities.core.rank_zero import rank_zero_warn


class RunCheckpoint(ModelCheckpoint):
    """Lightning's ModelCheckpoint, whose last.ckpt is the last, and which cannot keep a failed run from ending.

    With `save_last: true` last.ckpt is saved after every validation and at the end of training; Lightning 2.6 saves it
    only after a validation that was among the best.
    `save_on_exception`: Ctrl-C reaches every rank, so all of them save. An error is met by one rank alone as a rule: it
    would wait in a collective for the others and hide its own message, so with several ranks nothing is saved then.
    """

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
        if trainer.world_size > 1 and not isinstance(exception, KeyboardInterrupt):
            return
        try:
            super().on_exception(trainer, pl_module, exception)
        except Exception as error:  # the run's own exception is the one to show
            rank_zero_warn(f"no checkpoint was written after {type(exception).__name__}: {error!r}")

    def _keep_last(self, trainer: Trainer) -> None:
        if self.save_last is True and not self._should_skip_saving_checkpoint(trainer):
            self._save_last_checkpoint(trainer, self._monitor_candidates(trainer))
