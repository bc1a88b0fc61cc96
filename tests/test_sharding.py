"""One process, two-process DDP and two-process FSDP2 make the same optimizer steps of the same rollouts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.sharding_worker import CASES
from tests.tiny import tiny_model

ROOT = Path(__file__).resolve().parents[1]


def torchrun(processes: int, *command: str, timeout: int = 240) -> subprocess.CompletedProcess[str]:
    """The command under torchrun on loopback; a collective that one rank lacks ends in the timeout."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    prefix = [sys.executable] if processes == 1 else launcher
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.run(
        [*prefix, *command], capture_output=True, text=True, timeout=timeout, env=environment, cwd=ROOT
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict, dict]]:
    folder = tmp_path_factory.mktemp("sharding")
    model = tiny_model(folder / "model")
    found = {}
    for kind in ("single", "ddp", "fsdp2"):
        out = folder / f"{kind}.pt"
        run = torchrun(
            1 if kind == "single" else 2, str(ROOT / "tests" / "sharding_worker.py"), str(model), kind, str(out)
        )
        assert run.returncode == 0, run.stderr[-4000:]
        found[kind] = (torch.load(out), json.loads(out.with_suffix(".json").read_text()))
    return found


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
@pytest.mark.parametrize("case", list(CASES))
def test_same_loss_gradient_norm_and_parameters(results: dict[str, tuple[dict, dict]], kind: str, case: str) -> None:
    alone, apart = results["single"], results[kind]
    for one, other in zip(alone[1][case], apart[1][case], strict=True):
        # exactly on-policy the loss is a sum that cancels
        assert one["train/loss"] == pytest.approx(other["train/loss"], rel=1e-6, abs=1e-7)
        assert one["train/grad_norm"] == pytest.approx(other["train/grad_norm"], rel=1e-6)
    for name, parameter in alone[0][case].items():
        difference = (parameter - apart[0][case][name]).norm() / parameter.norm()
        assert difference < 1e-6, f"{name}: {difference}"


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
@pytest.mark.parametrize("case", list(CASES))
def test_metrics_are_those_of_one_process(results: dict[str, tuple[dict, dict]], kind: str, case: str) -> None:
    for one, other in zip(results["single"][1][case], results[kind][1][case], strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert value == pytest.approx(other[name], rel=1e-5, abs=1e-7), name


def test_the_steps_moved_the_policy(results: dict[str, tuple[dict, dict]]) -> None:
    """Otherwise equality would prove nothing: each case has a gradient and a clip that binds after the first update."""
    for steps in results["single"][1].values():
        assert all(step["train/grad_norm"] > 0 for step in steps)
        assert steps[1]["train/clip_fraction"] > 0
