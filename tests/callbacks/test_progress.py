import io
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gapo_lit.callbacks import RolloutProgressBar
from gapo_lit.callbacks import progress as module
from gapo_lit.callbacks.display import Bar, Lines
from tests.callbacks.fake_run import FakeData, FakePolicy, run

ROOT = Path(__file__).resolve().parents[2]
# An engine that takes its time to start and prints a lot meanwhile. argv: run folder, style of the progress display.
NOISY_START = """
import os, sys, time
from pathlib import Path
from gapo_lit.callbacks import RolloutProgressBar
from gapo_lit.rollout.quiet import quiet
from tests.callbacks.fake_run import FakeData, run

class Noisy(FakeData):
    def train_dataloader(self):
        print("printed before")
        self.report("start engine", 0, 1)
        with quiet():
            print("NOISE of Python")
            print("NOISE of Python", file=sys.stderr)
            os.write(1, b"NOISE of C")
            time.sleep(0.9)
        self.report("start engine", 1, 1)
        print("printed after")
        return super().train_dataloader()

run(Path(sys.argv[1]), RolloutProgressBar(style=sys.argv[2], heartbeat=0.2), data=Noisy())
"""


def test_plain_lines_one_an_update(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, RolloutProgressBar(style="lines"))
    lines = capsys.readouterr().out.splitlines()
    updates = [line for line in lines if line.startswith("update ")]
    assert len(updates) == 4
    for part in ("update 2/4", "rollout batch 1/2", "reward 0.500", "pass@1 0.500", "clip low 0.000", "high 0.250"):
        assert part in updates[1]
    for part in (
        "entropy 0.900",
        "grad norm 0.5",
        "length 3.0",
        "unanimous 0%",
        "25 rollouts/s",
        "350 tokens/s",
        " left",
    ):
        assert part in updates[1]
    assert [line for line in lines if line.startswith("validation ")] == [
        "validation before training · pass@1 0.250 · pass@4 0.550",
        "validation after update 2 · pass@1 0.450 · pass@4 0.750",
        "validation after update 4 · pass@1 0.650 · pass@4 0.950",
    ]


def test_a_terminal_gets_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(module, "terminal", lambda: Console(file=out, force_terminal=True, width=160))
    data = FakeData()
    heard: list[Any] = []
    bar = RolloutProgressBar(style="bar")
    listen = bar.on_phase
    monkeypatch.setattr(bar, "on_phase", lambda *phase: (heard.append(phase), listen(*phase)))
    run(tmp_path, bar, data=data)
    text = out.getvalue()
    assert "updates" in text
    assert "4/4" in text
    assert "update 4/4" in text
    assert heard == [("generate", 0, 8), ("generate", 8, 8)] * 2
    assert data.collector.on_progress is None  # let go at the end


def test_a_phase_is_shown_until_it_is_done() -> None:
    out = io.StringIO()
    bar = Bar(Console(file=out, force_terminal=True, width=100))
    bar.start()
    bar.phase("generating", 0, 128)
    bar._progress.refresh()
    assert "generating" in out.getvalue()
    assert "128 in all" in out.getvalue()
    bar.phase(None)
    out.truncate(0)
    bar._progress.refresh()
    assert "generating" not in out.getvalue()
    bar.stop()
    bar.stop()


def test_a_phase_that_lasts_says_so_without_a_terminal() -> None:
    out = io.StringIO()
    lines = Lines(Console(file=out), every=0.02)
    lines.start()
    lines.phase("generating", 0, 128)
    deadline = time.monotonic() + 5
    while "so far" not in out.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    lines.stop()
    assert "… generating (128 in all), 0 s so far" in out.getvalue()
    assert lines._thread is None


@pytest.mark.parametrize(
    ("style", "alive", "times"), [("lines", "… starting the engine, 0 s so far", 1), ("bar", "starting the engine", 4)]
)
def test_a_run_is_seen_alive_while_a_starting_engine_is_kept_quiet(
    tmp_path: Path, style: str, alive: str, times: int
) -> None:
    """FORCE_COLOR has rich take a pipe for a terminal."""
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "160"} if style == "bar" else {}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NOISY_START, str(tmp_path), style],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", **terminal},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [done.stdout.find(text) for text in ("printed before", alive, "printed after", "update 4/4")]
    assert said == sorted(said), done.stdout
    assert -1 not in said, done.stdout
    assert done.stdout.count(alive) >= times, "a bar is drawn ten times a second"
    assert "NOISE" not in done.stdout + done.stderr


def test_lines_show_hostile_text_harmlessly() -> None:
    out = io.StringIO()
    Lines(Console(file=out, force_terminal=True)).line("[bold]x[/nope] \x1b[31mred\x1b[0m \x07")
    assert "\x1b[31m" not in out.getvalue()
    assert "[bold]x[/nope]" in out.getvalue()


def test_lines_every_and_a_silent_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, RolloutProgressBar(style="lines", lines_every=3))
    updates = [line for line in capsys.readouterr().out.splitlines() if line.startswith("update ")]
    assert [line.split(" ·")[0] for line in updates] == ["update 3/4", "update 4/4"]

    bar = RolloutProgressBar(style="lines")
    bar.disable()
    run(tmp_path, bar)
    assert "update" not in capsys.readouterr().out


def test_the_terminal_is_given_back_after_an_error(tmp_path: Path) -> None:
    bar = RolloutProgressBar(style="lines")
    with pytest.raises(RuntimeError, match="the engine died"):
        run(tmp_path, bar, policy=FakePolicy(fail_at=1))
    assert bar._display._thread is None


@pytest.mark.parametrize("setting", [{"lines_every": 0}, {"heartbeat": 0}, {"style": "fancy"}])
def test_bad_settings_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        RolloutProgressBar(**setting)
