"""Runs of the command in processes of their own, and what they left in their run folders."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.tiny import tiny_model

ROOT = Path(__file__).resolve().parents[1]
QUICKSTART = ROOT / "recipes" / "quickstart.yaml"
FIT = ("-m", "gapo_lit.cli", "fit")

# Two rollout batches of two updates, an epoch long. A random model that says 48 bytes ends on the right digit once in
# ten times, so that there is something to learn from. At this rate it moves enough for the clip to bind, and for an
# engine that kept old weights to be found out.
SMALL = (
    *("--data.train.size", "32", "--data.train.levels", "[2]", "--data.val.size", "4", "--data.val.levels", "[2]"),
    *("--data.prompts_per_batch", "16", "--data.prompts_per_update", "8", "--data.sampling.max_tokens", "48"),
    *("--data.val_samples", "4", "--trainer.max_steps", "4", "--trainer.val_check_interval", "2"),
    *("--model.optimizer.lr", "1e-3", "--trainer.enable_model_summary", "false"),
)
UPDATES = 2
# The cache need not be larger; two ranks on one machine each have one.
SMALL_CACHE = ("--data.engine.kv_cache_gib", "0.125")

Row = dict[str, float]


def small_model(folder: Path) -> str:
    """A random model that hits upon digits more often than most."""
    return str(tiny_model(folder, seed=4))


def environment(*, without_vllm: Path | None = None, **variables: str) -> dict[str, str]:
    """What a run inherits: no network, one thread, no account. without_vllm: a folder to hide vllm by.

    Python imports `sitecustomize` at its start; the one made there says that vllm cannot be imported.
    """
    found = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB_", "VLLM_", "PYTEST_"))}
    path = [str(ROOT)]
    if without_vllm is not None:
        without_vllm.mkdir(exist_ok=True)
        (without_vllm / "sitecustomize.py").write_text("import sys\n\nsys.modules['vllm'] = None\n")
        path.insert(0, str(without_vllm))
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "offline"}
    return {**found, **offline, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path), **variables}


def _obey_interrupts() -> None:
    """Shells start background jobs with Ctrl-C ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Process:
    """A Python program in a process group of its own; what it says goes to a file in its working folder."""

    def __init__(self, folder: Path, arguments: Sequence[str | Path], variables: dict[str, str] | None = None) -> None:
        self.log = folder / f"output-{len(list(folder.glob('output-*')))}.txt"
        command = [sys.executable, *map(str, arguments)]
        self._mark = f"TEST_RUN={uuid.uuid4()}"
        name, value = self._mark.split("=")
        variables = {**(environment() if variables is None else variables), name: value}
        with self.log.open("w") as log:
            self._popen = subprocess.Popen(
                command,
                cwd=folder,
                env=variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_obey_interrupts,
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave nothing behind; a launcher is given time to end its own workers, which are in groups of their own."""
        if self._popen.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self._popen.wait(10)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
                self._popen.wait(10)

    @property
    def output(self) -> str:
        """All it has said so far."""
        return self.log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """To the whole group, as a terminal does for Ctrl-C."""
        os.killpg(self._popen.pid, number)

    def kill(self) -> None:
        """As the kernel does when memory runs out: this process alone, with no chance to clean up."""
        self._popen.kill()
        self._popen.wait(10)

    def descendants(self) -> list[int]:
        """Processes that it started, and they in turn, found by what they inherited: some have groups of their own."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return [pid for pid in found if pid != self._popen.pid]

    def wait_for(self, condition: Callable[[], Any], timeout: float, *, ended: bool = False) -> None:
        """Until the condition holds; an error, with what was said, where it ends first (unless ended) or time is up."""
        end = time.monotonic() + timeout
        while not condition():
            assert ended or self._popen.poll() is None, self.output[-4000:]
            assert time.monotonic() < end, f"not within {timeout:.0f} s; {self.output[-4000:]}"
            time.sleep(0.05)

    def finish(self, timeout: float) -> int:
        """Its exit status; an error, with what was said, where it takes longer."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout:.0f} s; {self.output[-4000:]}") from None

    def succeed(self, timeout: float) -> None:
        """It must end by itself, without an error."""
        status = self.finish(timeout)
        assert status == 0, f"exit status {status}; {self.output[-6000:]}"


def fit(
    folder: Path, *flags: str | Path, recipe: Path = QUICKSTART, variables: dict[str, str] | None = None
) -> Process:
    """A training run in `folder`, of the quickstart unless another recipe is named."""
    return Process(folder, [*FIT, "--config", recipe, *flags], variables)


def nodes(folder: Path, *flags: str | Path, recipe: Path = QUICKSTART) -> list[Process]:
    """The same over two single-process nodes."""
    return launched(folder, [*FIT, "--config", recipe, *flags])


def launched(folder: Path, program: Sequence[str | Path]) -> list[Process]:
    """A program over two single-process nodes on loopback, each started by a torchrun of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launch = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    meeting = ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    size = ["--trainer.accelerator", "cpu", "--trainer.num_nodes", "2", "--trainer.devices", "1"]
    return [Process(folder, [*launch, "--node-rank", str(rank), *meeting, *program, *size]) for rank in range(2)]


# What a run leaves


def run_folders(folder: Path, name: str = "quickstart") -> list[Path]:
    """The run folders of runs started in `folder`, oldest first."""
    found = (folder / "runs" / name).glob("version_*")
    return sorted(found, key=lambda path: int(path.name.removeprefix("version_")))


def rows(run: Path) -> list[Row]:
    """The lines of metrics.csv, each with the values it has."""
    path = run / "metrics.csv"
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return [{name: float(cell) for name, cell in row.items() if cell} for row in csv.DictReader(file)]


def updates(run: Path) -> list[Row]:
    """The lines of optimizer steps."""
    return [row for row in rows(run) if "train/loss" in row]


def validations(run: Path) -> list[Row]:
    """The lines of validations."""
    return [row for row in rows(run) if "val/pass@1" in row]


def repeatable(run: Path) -> list[Row]:
    """metrics.csv without what depends on the machine: seconds and speeds."""
    return [{k: v for k, v in row.items() if "/time/" not in k and "per_second" not in k} for row in rows(run)]


def summary(run: Path) -> dict[str, Any]:
    """summary.json."""
    return dict(json.loads((run / "summary.json").read_text()))


def documented() -> set[str]:
    """Every metric name in docs/metrics.md, with its placeholders."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    return set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))


def as_documented(column: str) -> str:
    """A column's name as docs/metrics.md writes it."""
    general = re.sub(r"c=\d+$", "c=<c>", column)
    general = re.sub(r"^val/pass@\d+$", "val/pass@<k>", general)
    return re.sub(r"^val/majority@\d+$", "val/majority@<n>", general)


def check_agreement(run: Path) -> None:
    """At the first update after each weight sync, engine and trainer give the same log-probs to what was sampled.

    An update whose groups are all unanimous computes none.
    """
    steps = updates(run)
    for place, row in enumerate(steps):
        assert row["train/policy_version"] == row["step"] - 1 - place % UPDATES
    compared = [row for row in steps[::UPDATES] if not row["train/step_skipped"]]
    assert any(row["train/policy_version"] > 0 for row in compared), "weights that never moved prove nothing"
    for row in compared:
        assert row["train/mismatch/logprob_abs_diff"] < 1e-3
        assert abs(row["train/mismatch/ratio"] - 1) < 1e-3
