"""One sandbox as seen from outside: a process, a socket to it, and a watch on what it takes. Standard library only.

Whoever holds a Box trusts nothing that comes out of it: a message is JSON of bounded size, a silence has a limit.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any

from gapo_lit.rewards.sandbox_filter import filter_file
from gapo_lit.rewards.sandbox_watch import adopters, descendants, end_descendants, held, passing_uid, waited

if TYPE_CHECKING:
    from gapo_lit.rewards.sandbox import Isolation

START_LIMIT = 60.0  # seconds; only guards against never, on however busy a machine
PATIENCE = 3  # times its seconds a program may take in all where it has to wait for a busy machine
WATCH = 0.02  # seconds between two looks at what the processes of a sandbox take
_BOOT = (
    "import os,marshal,sys\n"
    "fd=int(sys.argv[1])\n"
    "def get(n):\n"
    " b=b''\n"
    " while len(b)<n:\n"
    "  p=os.read(fd,n-len(b))\n"
    "  if not p: os._exit(0)\n"
    "  b+=p\n"
    " return b\n"
    "codes,settings=marshal.loads(get(int.from_bytes(get(8),'big')))\n"
    "inside={'__name__':'sandbox'}\n"
    "for code in codes: exec(code,inside)\n"
    "program=inside['serve'](inside['Link'](fd),settings)\n"
    "del get,codes,settings,code,inside,fd\n"
    "exec(*program)\n"
)


class BoxError(Exception):
    """The sandbox could not be started: no program had a part in it."""


class ProgramError(Exception):
    """The program is at fault: it hit a limit, crashed, or answered with what is no answer."""


class ParentGoneError(Exception):
    """Nobody waits for verdicts any more."""


@dataclass(frozen=True)
class Limits:
    """What a program may take: wall-clock seconds for all of it, megabytes of address space for each of its processes
    and of memory for all together, of a file, and how many processes and threads at a time.
    """

    seconds: float
    memory_mb: int
    file_mb: int
    processes: int

    @property
    def tmp_bytes(self) -> int:
        """The size of a program's own folder."""
        return 64 << 20

    def resources(self) -> dict[str, int]:
        """The resource limits by their RLIMIT_ names."""
        return {
            "AS": self.memory_mb << 20,
            "CPU": int(self.seconds) + 2,
            "FSIZE": self.file_mb << 20,
            "NOFILE": 256,
            "NPROC": self.processes,
            "CORE": 0,
        }


class Box:
    """A started sandbox, ready for messages; `with` ends it and everything in it.

    link: a connection whose end is ours too: without anybody to answer to, waiting raises ParentGoneError.
    Raises BoxError where it does not start.
    """

    def __init__(self, isolation: Isolation, limits: Limits, link: Any = None) -> None:
        from gapo_lit.rewards.sandbox import environment, python

        self._limits, self._link = limits, link
        self._namespaces = isolation.level == "namespaces"
        self._folder = None if self._namespaces else tempfile.mkdtemp(prefix="gapo-lit-program-")
        self._first: list[int] = []
        self._deadline = self._grace = 0.0
        self.forgiven = 0.0  # seconds that were not counted, see _waited_for_a_processor
        self._socket, theirs = socket.socketpair()
        user = isolation.user
        if self._folder is not None and user is not None:
            os.chown(self._folder, user, user)
        rules = None if self._folder is not None else filter_file()
        command, given = list(isolation.command), [theirs.fileno()]
        if rules is not None:
            command[-1:] = ["--seccomp", str(rules.fileno()), "--"]
            given.append(rules.fileno())
        try:
            with theirs, rules or contextlib.nullcontext():
                self._process = subprocess.Popen(
                    [*command, python(), "-I", "-S", "-c", _BOOT, str(theirs.fileno())],
                    pass_fds=given,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=environment(),
                    cwd=self._folder or "/",
                    start_new_session=True,
                    user=user,
                    group=user,
                    extra_groups=None if user is None else [],
                )
        except (OSError, subprocess.SubprocessError) as error:
            self._socket.close()
            self._remove()
            raise BoxError(f"{type(error).__name__}: {error}") from error
        try:
            self._start(isolation)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Box:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def ask(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a message and wait for its answer."""
        self.send(message)
        return self.receive(seconds)

    def send(self, message: dict[str, Any]) -> None:
        """Hand over a message; one that is not taken shows as a missing answer."""
        data = marshal.dumps(message)
        with contextlib.suppress(OSError):
            self._socket.settimeout(self._limits.seconds)
            self._socket.sendall(len(data).to_bytes(8, "big") + data)

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next message. Raises ProgramError where none comes in time, the sandbox ends, or it takes too much."""
        self._deadline = time.monotonic() + seconds
        self._grace = (PATIENCE - 1) * seconds
        size = int.from_bytes(self._read(8), "big")
        if size > (3 * self._limits.file_mb << 20):
            raise ProgramError("more output than the limit")
        try:
            message = json.loads(self._read(size))
        except (ValueError, RecursionError) as error:
            raise ProgramError("no answer of the kind that was asked for") from error
        if not isinstance(message, dict):
            raise ProgramError("no answer of the kind that was asked for")
        return message

    def close(self) -> None:
        """End every process of the sandbox and remove its folder."""
        inside = self._first
        if self._namespaces:
            inside = inside or descendants(self._process.pid)[:1]
        else:
            end_descendants(self._process.pid)
        self._process.kill()
        self._process.wait()
        for first in inside:  # the first process of a namespace goes last, and only then is nothing left
            with contextlib.suppress(ChildProcessError, ProcessLookupError):
                os.kill(first, signal.SIGKILL)
                os.waitpid(first, 0)
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._socket.close()
        if not self._namespaces and os.getpid() in adopters:
            end_descendants(os.getpid())
        self._remove()

    def _start(self, isolation: Isolation) -> None:
        settings = {
            "limits": self._limits.resources(),
            "output": self._limits.file_mb << 20,
            "path": list(isolation.path),
            "stop_with_parent": not self._namespaces,
            "uid": passing_uid() if isolation.drops else None,
        }
        data = marshal.dumps((_inside(), settings))
        try:
            self._socket.sendall(len(data).to_bytes(8, "big") + data)
            ready = self.receive(START_LIMIT)
        except (ProgramError, OSError) as error:
            self._process.kill()
            said = self._process.communicate()[1].decode(errors="replace").strip().splitlines()
            raise BoxError(said[-1] if said else f"the sandbox did not start: {error}") from error
        if ready != {"ready": True}:
            raise BoxError(f"the sandbox started with {ready}")
        self._first = descendants(self._process.pid)[:1]

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            self._wait()
            try:
                part = self._socket.recv(min(size - len(parts), 1 << 20))
            except OSError:
                part = b""
            if not part:
                raise ProgramError("crashed")
            parts += part
        return bytes(parts)

    def _wait(self) -> None:
        """Return once something can be read."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if self._link is not None:
            poll.register(self._link, select.POLLIN)
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0 and not self._waited_for_a_processor():
                raise ProgramError("time limit")
            ready = [fd for fd, _ in poll.poll(max(0.0, min(WATCH, left)) * 1000)]
            if self._link is not None and self._link.fileno() in ready:
                raise ParentGoneError
            if ready:
                return
            self._watch()

    def _waited_for_a_processor(self) -> bool:
        """Put the deadline off by the time that the program could have run and others ran; False where it had its time.

        Up to a point: PATIENCE times what it was given.
        """
        waits = max(map(waited, descendants(self._process.pid)), default=0.0) - self.forgiven
        extra = min(waits, self._grace)
        if extra < 0.05:
            return False
        self._grace -= extra
        self.forgiven += extra
        self._deadline += extra
        return True

    def _watch(self) -> None:
        """Raise ProgramError where the processes of the sandbox are too many or hold too much together."""
        processes = descendants(self._process.pid, self._limits.processes + 3)
        # Beside the program's: bubblewrap's own and the one that answers us.
        if len(processes) > self._limits.processes + 3:
            raise ProgramError("too many processes")
        if sum(map(held, processes)) > self._limits.memory_mb << 20:
            raise ProgramError("memory limit")

    def _remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


@cache
def _inside() -> tuple[CodeType, ...]:
    """The code of the modules that run inside, compiled once."""
    here = Path(__file__).parent
    names = ("code_values.py", "sandbox_program_worker.py", "sandbox_worker.py")
    return tuple(compile((here / n).read_text(encoding="utf-8"), "sandbox", "exec", dont_inherit=True) for n in names)
