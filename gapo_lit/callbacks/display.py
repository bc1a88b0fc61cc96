"""Two ways of showing that a run is alive: a bar where there is a terminal, plain lines where output goes to a file."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from gapo_lit.callbacks.text import printable


class Display(Protocol):
    """Where progress is shown."""

    def start(self) -> None:
        """Begin; a second call does nothing."""

    def line(self, text: str) -> None:
        """Show a line that stays."""

    def update(self, done: int, total: int | None, text: str, unit: str = "updates") -> None:
        """How many updates, or other units, are done, and what to say beside it."""

    def phase(self, name: str | None, done: int = 0, total: int = 1) -> None:
        """What the run is busy with, until the next call; None: nothing that takes long."""

    def stop(self) -> None:
        """End; it can be started again."""


class Bar:
    """A live bar of updates and, while one runs, a second line with the phase and its seconds.

    rich redraws from a thread of its own, so both move while the main thread waits for an engine.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._updates: TaskID | None = None
        self._phase: TaskID | None = None

    def start(self) -> None:
        """Draw the bar."""
        if self._progress is not None:
            return
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
            transient=True,
        )
        self._progress.start()

    def line(self, text: str) -> None:
        """Print above the bar."""
        self._console.print(Text(printable(text, keep="\n\t")), soft_wrap=True, highlight=False)

    def update(self, done: int, total: int | None, text: str, unit: str = "updates") -> None:
        """Move the bar."""
        if self._progress is None:
            return
        if self._updates is None:
            self._updates = self._progress.add_task(unit, total=total, note=text)
        self._progress.update(self._updates, completed=done, total=total, note=text)

    def phase(self, name: str | None, done: int = 0, total: int = 1) -> None:
        """Show the phase on its own line. One without parts pulses."""
        if self._progress is None:
            return
        if self._phase is not None:
            self._progress.remove_task(self._phase)
            self._phase = None
        if name is not None:
            shown = total if done else None
            note = "" if total == 1 else f"{total} in all"
            self._phase = self._progress.add_task(name, total=shown, completed=done, note=note)

    def stop(self) -> None:
        """Take the bar away; printed lines stay."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = self._updates = self._phase = None


class Lines:
    """Plain lines. A phase that lasts says so every `every` seconds, from a thread, so that a log never looks dead."""

    def __init__(self, console: Console, every: float = 30.0) -> None:
        self._console = console
        self._every = every
        self._phase: tuple[str, int, float] | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch for phases that last."""
        if self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)
            self._thread.start()

    def line(self, text: str) -> None:
        """Print one line, whatever its length."""
        self._console.print(Text(printable(text, keep="\n\t")), soft_wrap=True, highlight=False)

    def update(self, done: int, total: int | None, text: str, unit: str = "updates") -> None:
        """Nothing: the step line says it."""

    def phase(self, name: str | None, done: int = 0, total: int = 1) -> None:
        """Remember what the run is busy with."""
        self._phase = None if name is None else (name, total, time.monotonic())

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = self._phase = None

    def _watch(self) -> None:
        while not self._stopped.wait(self._every):
            phase = self._phase
            if phase is not None:
                name, total, since = phase
                seconds = time.monotonic() - since
                of = "" if total == 1 else f" ({total} in all)"
                self.line(f"… {name}{of}, {seconds:.0f} s so far")


class Silent:
    """A display for ranks that show nothing."""

    def start(self) -> None:
        """Nothing."""

    def line(self, text: str) -> None:
        """Nothing."""

    def update(self, done: int, total: int | None, text: str, unit: str = "updates") -> None:
        """Nothing."""

    def phase(self, name: str | None, done: int = 0, total: int = 1) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""
