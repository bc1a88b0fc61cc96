"""The inside of a grading process: its limits, what it may not do, and its loop. Standard library only.

A grader runs code over text that a policy wrote, and the libraries it runs (sympy's parser among them) evaluate some
of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_REFUSED = (
    "os.system", "os.exec", "os.spawn", "os.posix_spawn", "os.fork", "os.kill", "os.remove", "os.rename", "os.rmdir",
    "os.mkdir", "os.truncate", "os.link", "os.symlink", "os.chmod", "os.putenv", "pty.", "shutil.", "subprocess.",
    "socket.", "ctypes.", "signal.",
)  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]], *, guarded: bool = True) -> None:
    """Answer requests until the other side is gone; call it when every import is done.

    guarded: refuse processes, sockets and files to write; False for code that is trusted with them, such as a user's
    own reward.

    The command line is (fd of the connection, address space in MB, CPU seconds a request), as WorkerPool writes it. The
    pool kills a worker that takes too long; one that outlives its trainer inside a computation is ended by SIGPROF,
    whose default action no library catches.
    """
    fd, memory_mb, cpu_seconds = map(int, sys.argv[1:4])
    link = Connection(fd)
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.dont_write_bytecode = True
    if guarded:
        sys.addaudithook(_audit)
    with contextlib.suppress(EOFError, OSError):
        link.send_bytes(b"{}")
        while True:
            request = json.loads(link.recv_bytes())
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            reply = json.dumps(answer(request)).encode()
            signal.setitimer(signal.ITIMER_PROF, 0)
            link.send_bytes(reply)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    """Refuse processes, sockets, and files to write: a second line of defence, not a sandbox."""
    writes = event == "open" and len(args) > 2 and isinstance(args[2], int) and bool(args[2] & _WRITES)
    if writes or event.startswith(_REFUSED):
        raise PermissionError(f"{event} inside a grading process")
