"""Two nodes on loopback, each started by a torchrun of its own: the README's multi-node line with small numbers."""

from __future__ import annotations

import importlib.util
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from gapo_lit.cli import main
from gapo_lit.sharding import data_parallel_mesh
from tests.processes import (
    QUICKSTART,
    ROOT,
    SMALL,
    SMALL_CACHE,
    check_agreement,
    fit,
    nodes,
    rows,
    run_folders,
    small_model,
    summary,
    updates,
    validations,
)

CLUSTER = ROOT / "recipes" / "cluster"
SMOL = ROOT / "models" / "SmolLM2-135M-Instruct"
TRANSFORMERS = ("--data.engine", "TransformersEngine")

needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")


pytestmark = pytest.mark.timeout(900)  # for a machine that has other things to do


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model(tmp_path_factory.mktemp("model"))


def on_two_nodes(folder: Path, *flags: str | Path, timeout: float = 300) -> Path:
    """Run to the end on both, and return the one run folder."""
    with ExitStack() as stack:
        ranks = [stack.enter_context(rank) for rank in nodes(folder, *flags)]
        for rank in ranks:
            rank.succeed(timeout)
    return run_folders(folder)[-1]


def overlay(name: str) -> tuple[str | Path, ...]:
    return "--config", CLUSTER / f"{name}.yaml"


def check_same_start(apart: Path, alone: Path) -> None:
    """Seeds do not depend on the rank: the same rollouts, so the same numbers up to the order of sums."""
    for name in ("train/reward", "train/pass@1", "train/loss", "train/completions/mean_length", "train/entropy"):
        assert updates(apart)[0][name] == pytest.approx(updates(alone)[0][name], abs=1e-5), name
    assert updates(apart)[0]["train/grad_norm"] == pytest.approx(updates(alone)[0]["train/grad_norm"], rel=1e-4)
    before = [{k: v for k, v in validations(run)[0].items() if "/time/" not in k} for run in (apart, alone)]
    assert before[0] == pytest.approx(before[1], abs=1e-6)


def check_run(run: Path, steps: int = 4) -> None:
    """Finished, finite, in agreement with its engines."""
    assert [row["step"] for row in updates(run)] == list(range(1, steps + 1))
    assert all(math.isfinite(value) for row in rows(run) for value in row.values())
    assert any(row["train/grad_norm"] > 0 for row in updates(run))
    assert summary(run)["outcome"] == "finished"


@needs_vllm
def test_fsdp2_with_an_engine_in_each_rank_trains_the_quickstart(model: str, tmp_path: Path) -> None:
    flags = ("--model.model", model, *SMALL, *SMALL_CACHE)
    run = on_two_nodes(tmp_path, *overlay("fsdp2"), *flags)
    assert len(run_folders(tmp_path)) == 1
    check_run(run)
    check_agreement(run)
    trained = AutoModelForCausalLM.from_pretrained(run / "model").state_dict()
    untrained = AutoModelForCausalLM.from_pretrained(model).state_dict()
    assert {name: w.shape for name, w in trained.items()} == {name: w.shape for name, w in untrained.items()}
    assert any(not torch.equal(weight, trained[name]) for name, weight in untrained.items())

    alone = tmp_path / "alone"
    alone.mkdir()
    with fit(alone, *flags) as single:
        single.succeed(120)
    check_same_start(run, run_folders(alone)[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_a_run_on_two_nodes_can_be_gone_on_with(name: str, model: str, tmp_path: Path) -> None:
    """With transformers as the engine; the checkpoint of FSDP2 is a folder of shards."""
    flags = ("--model.model", model, *SMALL, *TRANSFORMERS)
    run = on_two_nodes(tmp_path, *overlay(name), *flags)
    check_run(run)
    check_agreement(run)
    last = run / "checkpoints" / "last.ckpt"
    resumed = on_two_nodes(tmp_path, *overlay(name), *flags, "--ckpt_path", last, "--trainer.max_steps", "8")
    assert resumed != run
    assert [row["step"] for row in updates(resumed)] == [5, 6, 7, 8]
    alone = tmp_path / "alone"
    alone.mkdir()
    with fit(alone, *flags) as single:
        single.succeed(120)
    check_same_start(run, run_folders(alone)[0])


@needs_vllm
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(not SMOL.is_dir(), reason="the quickstart's model is not there; `make model` brings it")
def test_fsdp2_trains_the_quickstarts_own_model(tmp_path: Path) -> None:
    small = ("--data.val.size", "8", "--data.val_samples", "4", "--trainer.max_steps", "8")
    run = on_two_nodes(tmp_path, *overlay("fsdp2"), "--model.model", str(SMOL), *small, timeout=1200)
    check_run(run, steps=8)
    for row in updates(run)[::4]:
        assert row["train/mismatch/logprob_abs_diff"] < 1e-3


# Strategies that this machine, or this framework, cannot run


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_fsdp_without_a_gpu_can_be_checked_and_says_so(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--config", str(QUICKSTART), *map(str, overlay("fsdp")), "--model.model", model, *SMALL]
    assert main(["fit", *flags, "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "this machine cannot run the recipe, only check it" in " ".join(said.err.replace("│", " ").split())
    assert "The recipe is sound" in said.out
    assert main(["fit", *flags]) == 2
    assert "gapo-lit: error: trainer:" in capsys.readouterr().err


class Dimension:
    """As much of a DeviceMesh as is asked for."""

    def __init__(self, size: int) -> None:
        self.size = lambda: size


def test_ranks_that_would_average_nothing_are_refused() -> None:
    """Lightning's own "auto" gives two ranks of a node the same data, and tensor parallelism that nobody set up."""
    apart: Any = {"data_parallel": Dimension(1), "tensor_parallel": Dimension(2)}
    with pytest.raises(ValueError, match=r"data_parallel_size=1 with 2 ranks .* use FSDP2Strategy"):
        data_parallel_mesh(apart, 2)
    whole: Any = {"data_parallel": Dimension(2), "tensor_parallel": Dimension(1)}
    assert data_parallel_mesh(whole, 2) is whole["data_parallel"]
