"""Writing files so that a reader, or a run that is killed, never meets half of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning import Trainer

from gapo_lit.callbacks.run_folder import RunLogger


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the place of `path` if the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix is kept, because libraries choose a format by it.
    handle, name = tempfile.mkstemp(prefix=".partial-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(0o644)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def run_folder(trainer: Trainer) -> Path | None:
    """The folder of this run, the same on every rank; a collective, so call it on all of them.

    The RunLogger's, whatever its place among the loggers; else what Lightning says. None where nothing is to be kept.
    """
    for logger in trainer.loggers:
        if isinstance(logger, RunLogger):
            return Path(trainer.strategy.broadcast(logger.log_dir))
    return None if trainer.log_dir is None else Path(trainer.log_dir)
