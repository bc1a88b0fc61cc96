"""Writing files so that a reader, or a run that is killed, never meets half of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
