"""Processes as /proc shows them: whose they are, what they hold, and how to end them."""

from __future__ import annotations

import contextlib
import os
import time
from functools import cache
from itertools import count
from pathlib import Path

_sandboxes = count()
_UIDS = range(61184, 65520)  # no account has one of these: systemd keeps them for services that need a passing user


def descendants(pid: int, most: int | None = None) -> list[int]:
    """A process's children, their children and so on, as far as they can be seen; no longer looked for once there are
    more than `most`.
    """
    found: list[int] = []
    waiting = [pid]
    while waiting and (most is None or len(found) <= most):
        parent = waiting.pop()
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                children = [int(child) for child in (thread / "children").read_text().split()]
                found += children
                waiting += children
    return found


adopters: set[int] = set()


def adopt_orphans() -> None:
    """From here on every descendant of this process is a program's: those that their parents left behind become its
    children, and closing a Box without a process namespace ends them all.
    """
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    adopters.add(os.getpid())


def end_descendants(pid: int) -> None:
    """Kill all descendants of a process, and reap those that are ours; none is left."""
    while processes := descendants(pid):
        for signal in (19, 9):  # all stopped first: one that still ran could start another meanwhile
            for process in processes:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal)
        if pid != os.getpid():
            break
        for process in processes:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
        time.sleep(0.001)


def held(pid: int) -> int:
    """Bytes of memory that a process holds: what it has mapped, and files in memory that have no name."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        total = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                entry = fd.stat()
                total += entry.st_blocks * 512 if entry.st_nlink == 0 else 0
    return total


def waited(pid: int) -> float:
    """Seconds that a process was ready to run and did not; 0 where the kernel does not say."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def passing_uid() -> int:
    """A uid for one sandbox: this process has two at a time, and the kernel counts a user's processes together."""
    return _UIDS[(2 * os.getpid() + next(_sandboxes) % 2) % len(_UIDS)]


@cache
def own_uid() -> int:
    """A uid that no process has, for the programs of this process: those of another must not be able to signal them."""
    taken = {entry.stat().st_uid for entry in Path("/proc").iterdir() if entry.name.isdigit() and entry.exists()}
    return next(uid for uid in _UIDS[os.getpid() % len(_UIDS) :] if uid not in taken)
