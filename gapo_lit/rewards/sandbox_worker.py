"""What runs inside the sandbox, sent there as code: no file of the project is visible in it.

Everything here shares its interpreter, or its process namespace, with a program that a policy wrote, so nothing here is
trusted: it is given inputs and hands back what came out, and whoever started it compares.

Messages in: 8 bytes of length and a marshalled dictionary. Messages out: 8 bytes and JSON. The first out is {"ready"}.
"""

from __future__ import annotations

import builtins
import marshal
import os
import resource
import sys
from _json import encode_basestring_ascii, make_encoder

TYPE_CHECKING = False
if TYPE_CHECKING:  # the real one costs an import of typing in every sandbox
    from collections.abc import Callable
    from types import CodeType
    from typing import Any

    from gapo_lit.rewards.code_values import pack
    from gapo_lit.rewards.sandbox_program_worker import compiled, complete

Message = dict[str, object]
_SIGKILL = 9  # the signal module costs an import of enum
_ENCODE = None, None, encode_basestring_ascii, None, ":", ",", False, False, True
_write_json = make_encoder(*_ENCODE)  # type: ignore[arg-type]


class Link:
    """The two directions of the control socket."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def receive(self) -> dict[str, Any]:
        """The next message; ends the process where no more can come."""
        size = int.from_bytes(self._read(8), "big")
        message: dict[str, Any] = marshal.loads(self._read(size))
        return message

    def send(self, message: Message) -> None:
        """Hand over a message."""
        data = "".join(_write_json(message, 0)).encode("ascii")
        data = len(data).to_bytes(8, "big") + data
        while data:
            data = data[os.write(self.fd, data) :]

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = os.read(self.fd, min(size, 1 << 20))
            if not part:
                os._exit(0)  # nobody waits for an answer any more
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def serve(link: Link, settings: dict[str, Any]) -> tuple[CodeType, dict[str, Any]] | None:
    """Answer messages. In the process that is to run a whole program, returns its code and namespace."""
    sys.path.extend(settings["path"])
    sys.set_int_max_str_digits(0)
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    if settings["stop_with_parent"]:
        _stop_with_parent()
    link.send({"ready": True})
    while True:
        message = link.receive()
        if "stdin" in message:
            program = _run(link, message, settings)
            if program is not None:
                return program
        elif "program" in message:
            _functions(link, message, settings)
        elif "test" in message:
            if os.fork() == 0:
                _limit(settings)
                _test(link, message)
                os._exit(0)
            os.wait()
        else:
            link.send(_facts(message["marker"]))


def _run(link: Link, message: dict[str, Any], settings: dict[str, Any]) -> tuple[CodeType, dict[str, Any]] | None:
    """Run a program in a child of its own on one standard input and send what it wrote."""
    files = [os.memfd_create(name) for name in ("in", "out", "err")]
    data = message["stdin"]
    while data:
        data = data[os.write(files[0], data) :]
    os.lseek(files[0], 0, os.SEEK_SET)
    child = os.fork()
    if child == 0:
        os.setsid()
        for fd, file in enumerate(files):
            os.dup2(file, fd)
        os.closerange(3, 256)
        _limit(settings)
        return compiled(message, "__main__")
    status = _ended(child)
    written = [_contents(fd, settings["output"]) for fd in files[1:]]
    for fd in files:
        os.close(fd)
    link.send({"status": status, "out": written[0].hex(), "err": written[1][-400:].hex()})
    return None


def _functions(link: Link, message: dict[str, Any], settings: dict[str, Any]) -> None:
    """Load a program in a child, which answers calls of its functions; say so when the child ends."""
    child = os.fork()
    if child == 0:
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        _limit(settings)
        failure = ""
        namespace: dict[str, Any] = {}
        try:
            code, namespace = compiled(message, "solution")
            exec(code, namespace)
        except BaseException as error:
            failure = type(error).__name__
        link.send({"error": failure} if failure else {"loaded": True})
        while True:
            link.send(_call(namespace, link.receive()))
    link.send({"ended": _ended(child)})


def _call(namespace: dict[str, Any], message: dict[str, Any]) -> Message:
    try:
        function = _entry(namespace, message["call"])
        return {"value": pack(function(*message["args"], **message["kwargs"]))}
    except BaseException as error:
        return {"error": type(error).__name__, "text": f"{error}"[:200] if isinstance(error, TypeError) else ""}


def _entry(namespace: dict[str, Any], name: str) -> Callable[..., object]:
    """The function called `name`; a method of a fresh Solution where there is such a class."""
    name = name.rpartition(".")[2]
    solution = namespace.get("Solution")
    if isinstance(solution, type) and hasattr(solution, name):
        method: Callable[..., object] = getattr(solution(), name)
        return method
    if name not in namespace:
        raise NameError(name)
    function: Callable[..., object] = namespace[name]
    return function


def _test(link: Link, message: dict[str, Any]) -> None:
    """Run test code whose candidate lives elsewhere: each call goes out as a message and comes back as plain data."""
    raised: list[BaseException] = []

    def candidate(*args: object, **kwargs: object) -> object:
        link.send({"call": [pack(args), pack(kwargs)]})
        answer = link.receive()
        if "value" in answer:
            return answer["value"]
        kind = getattr(builtins, answer["error"], RuntimeError)
        error = kind() if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError(answer["error"])
        raised.append(error)
        raise error

    failure, place = None, "prompt"
    try:
        # What the prompt defines is the task's own: a program cannot redefine a helper that the tests rely on.
        namespace: dict[str, Any] = {"__name__": "test"}
        exec(complete(message["prompt"]), namespace)
        namespace[message["entry"]] = candidate
        place = "test"
        exec(compile(message["test"], "test", "exec", dont_inherit=True), namespace)
        if "check" in namespace:
            namespace["check"](candidate)
    except BaseException as error:
        failure = type(error).__name__
        if error in raised:
            place = "program"
    link.send({"failed": failure, "place": place})


def _limit(settings: dict[str, Any]) -> None:
    """Resource limits of this process and its children, for good; and should memory run out, they go first.

    Whoever is root here gives that up, too, so that the limits hold and no process outside of the child can be touched.
    """
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(fd, b"1000")
        os.close(fd)
    except OSError:  # no /proc in here, or not ours to write
        pass
    os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))
    for name, value in settings["limits"].items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    if settings["uid"] is not None:
        _become(settings["uid"])


def _ended(child: int) -> int:
    """Wait for a child, then end and reap whatever it left behind; returns its exit status, negative for a signal."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if os.getpid() != 1:  # outside a process namespace, -1 would be every process of this user
        _signal(-child)
        return status
    while True:
        _signal(-1)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return status


def _signal(target: int) -> None:
    try:
        os.kill(target, _SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _contents(fd: int, limit: int) -> bytes:
    return os.pread(fd, min(limit, os.fstat(fd).st_size), 0)


def _become(uid: int) -> None:
    """Give up being root, for good: no capability is kept, and bwrap lets none be gained."""
    import ctypes

    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # DUMPABLE, so that /proc/self stays ours


def _stop_with_parent() -> None:
    """Without a process namespace: end with the parent, gain no privilege, and let no process of this user look in."""
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    for option, value in ((1, _SIGKILL), (38, 1), (4, 0)):  # PDEATHSIG, NO_NEW_PRIVS, DUMPABLE
        prctl(option, value, 0, 0, 0)


def _facts(marker: str) -> Message:
    """What can be seen and reached from here, for whoever wants to know whether this is a sandbox."""
    import socket

    reach = [path for path, mode in ((marker, os.R_OK), ("/", os.W_OK)) if os.access(path, mode)]
    return {
        "pid": os.getpid(),
        "reach": reach,
        "network": [name for _, name in socket.if_nameindex()],
    }
