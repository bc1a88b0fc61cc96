"""Keeping what C++ libraries print off the terminal, without losing it when they fail."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(enabled: bool = True) -> Iterator[None]:
    """Hold back what is written to this process's stdout and stderr, past Python too; show it if the block fails.

    A progress bar of rich stays in sight when it draws on a file descriptor of its own; what is printed past it is held
    back all the same.
    """
    if not enabled:
        yield
        return
    streams = sys.stdout, sys.stderr
    # While a bar is live rich puts streams in their places that print above it.
    sys.stdout, sys.stderr = (getattr(stream, "rich_proxied_file", stream) for stream in streams)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 1)
        os.dup2(held.fileno(), 2)
        failed = True
        try:
            yield
            failed = False
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)
            os.close(saved[0])
            os.close(saved[1])
            sys.stdout, sys.stderr = streams
            if failed:
                held.seek(0)
                sys.stderr.write(held.read().decode(errors="replace"))
