"""The paper's two settings scaled down to a laptop: real model, real vLLM, real rows, and the benchmark at the end."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.processes import ROOT, Process, fit, run_folders, summary, updates

TWINS = ROOT / "recipes" / "paper" / "twin"
DATA = ROOT.parent / "shared" / "data"
SMOL = ROOT / "models" / "SmolLM2-135M-Instruct"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
    pytest.mark.skipif(not SMOL.is_dir(), reason="the quickstart's model is not there; `make model` brings it"),
    pytest.mark.skipif(not DATA.is_dir(), reason="the data files are not beside the repository"),
]


@pytest.mark.parametrize(
    ("name", "train", "val", "problems"),
    [
        ("math", "gsm8k_train_2000.jsonl", "gsm8k_test.jsonl", 16),
        ("code", "humaneval.jsonl", "humaneval.jsonl", None),
    ],
)
def test_a_twin_trains_and_is_evaluated(name: str, train: str, val: str, problems: int | None, tmp_path: Path) -> None:
    rows = ("--data.train.path", DATA / train, "--data.val.path", DATA / val, "--model.model", SMOL)
    with fit(tmp_path, *rows, recipe=TWINS / f"{name}.yaml") as run:
        run.succeed(900)
    (folder,) = run_folders(tmp_path, name)
    assert summary(folder)["outcome"] == "finished"
    steps = updates(folder)
    assert [row["step"] for row in steps] == list(range(1, 9))
    assert all(row["train/verdicts/none_fraction"] == 0 for row in steps)
    assert all(row.get("train/mismatch/logprob_abs_diff", 0.0) < 1e-3 for row in steps[::4])
    out = tmp_path / "out"
    trained = [*rows[:-1], folder / "model", "--out", out]
    command = ["-m", "gapo_lit.cli", "test", "--config", TWINS / f"{name}.yaml", *trained]
    with Process(tmp_path, command) as test:
        test.succeed(600)
    found = json.loads((out / "results.json").read_text())["benchmarks"]["held_out"]
    assert problems in (None, found["problems"])
    assert found["samples"] == 2
    assert found["no_verdict"] == 0
    assert found["shares"]["validation"] > 0, "validation chose the checkpoint on some of these rows, and it is said"
