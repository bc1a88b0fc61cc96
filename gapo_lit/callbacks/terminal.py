"""Standard output as it was when a run began, whatever is done to it while an engine starts."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from rich.console import Console


def terminal() -> Console:
    """A console that is seen even while `gapo_lit.rollout.quiet` holds back what the process writes.

    Where `sys.stdout` is not the process's own, as under a test that captures it, the console follows it as usual.
    """
    stream = sys.stdout
    return Console(file=OwnStdout(stream) if _is_the_process_own(stream) else None)


class OwnStdout(io.TextIOWrapper):
    """Writes to a duplicate of the stream's file descriptor, which stays where it is when the descriptor is redirected.

    What the stream still buffers is sent before each write, so that the order of lines is kept. The duplicate lives as
    long as the process: a thread may write until the end.
    """

    def __init__(self, stream: TextIO) -> None:
        duplicate = open(os.dup(stream.fileno()), "wb", closefd=False)  # noqa: SIM115
        super().__init__(duplicate, encoding=stream.encoding, errors=stream.errors)
        self._stream = stream

    def write(self, text: str, /) -> int:
        """Write after what was printed before."""
        self._stream.flush()
        return super().write(text)


def _is_the_process_own(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == 1) and stream is sys.__stdout__
    except (AttributeError, OSError, ValueError):  # none, of no file, or closed
        return False
