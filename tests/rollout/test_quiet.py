from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gapo_lit.rollout.quiet import quiet

# Prints in every way, inside the block and out. argv: how the block ends.
SCRIPT = """
import os, subprocess, sys
from gapo_lit.rollout.quiet import quiet

print("before")
try:
    with quiet(sys.argv[1] != "disabled"):
        print("HELD python out")
        print("HELD python err", file=sys.stderr)
        os.write(1, b"HELD C out\\n")
        os.write(2, b"HELD C err \\xff\\n")
        subprocess.run(["echo", "HELD child"], check=True)
        if sys.argv[1] == "failed":
            raise RuntimeError("it failed")
except RuntimeError as error:
    print(error)
print("after")
sys.stdout.flush()
os.write(1, b"C after\\n")
print("err after", file=sys.stderr)
"""
ROOT = Path(__file__).resolve().parents[2]
HELD = {"HELD python out", "HELD python err", "HELD C out", "HELD C err \N{REPLACEMENT CHARACTER}", "HELD child"}


def ended(how: str) -> tuple[list[str], list[str]]:
    """The lines on stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_what_a_block_prints_is_not_seen_and_what_comes_before_and_after_is() -> None:
    assert ended("well") == (["before", "after", "C after"], ["err after"])


def test_a_block_that_fails_shows_what_it_printed_on_stderr() -> None:
    out, err = ended("failed")
    assert out == ["before", "it failed", "after", "C after"]
    assert err[-1] == "err after"
    assert set(err[:-1]) == HELD


def test_nothing_is_held_back_where_that_is_not_wanted() -> None:
    out, err = ended("disabled")
    assert set(out) | set(err) == HELD | {"before", "after", "C after", "err after"}


def test_no_file_descriptor_is_left_open() -> None:
    before = set(os.listdir("/dev/fd"))
    with quiet():
        pass
    with pytest.raises(ValueError, match="gone"), quiet():
        raise ValueError("gone")
    assert set(os.listdir("/dev/fd")) == before


def test_the_streams_of_a_live_bar_are_taken_off_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Proxy:
        rich_proxied_file = sys.stdout

    proxy = Proxy()
    monkeypatch.setattr(sys, "stdout", proxy)
    with quiet():
        assert sys.stdout is Proxy.rich_proxied_file
    assert sys.stdout is proxy
