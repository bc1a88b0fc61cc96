"""Whole runs as a user starts them: a process, a recipe, flags, and what is in the run folder afterwards."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gapo_lit.cli import main
from gapo_lit.module import PolicyModule
from tests.processes import (
    QUICKSTART,
    ROOT,
    SMALL,
    SMALL_CACHE,
    UPDATES,
    as_documented,
    check_agreement,
    documented,
    environment,
    fit,
    repeatable,
    rows,
    run_folders,
    small_model,
    summary,
    updates,
    validations,
)

LOGGERS = [word for name in ("wandb", "tensorboard") for word in ("--config", ROOT / "recipes/logger" / f"{name}.yaml")]
GSM8K = [ROOT.parent / "shared" / "data" / name for name in ("gsm8k_train_2000.jsonl", "gsm8k_test.jsonl")]
TRANSFORMERS = ("--data.engine", "TransformersEngine")
# Metrics of parts that the quickstart does not have, and what only Lightning's own loggers add.
ELSEWHERE = {"train/reward/<part>", "val/reward/<part>", "train/clip_fraction/dual", "train/kl", "epoch"}

needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")
needs_gsm8k = pytest.mark.skipif(
    not all(path.is_file() for path in GSM8K), reason="the gsm8k files are not beside the repository"
)


pytestmark = pytest.mark.timeout(600)  # for a machine that has other things to do


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model(tmp_path_factory.mktemp("model"))


# The quickstart with vLLM and every logger


@pytest.fixture(scope="module")
def quickstart(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a finished run was started in."""
    folder = tmp_path_factory.mktemp("quickstart")
    with fit(folder, *LOGGERS, "--model.model", model, *SMALL, *SMALL_CACHE) as run:
        run.succeed(180)
    return folder


@needs_vllm
def test_every_documented_metric_is_logged_and_no_other(quickstart: Path) -> None:
    (run,) = run_folders(quickstart)
    logged = {as_documented(name) for row in rows(run) for name in row}
    assert logged == documented() - ELSEWHERE


@needs_vllm
def test_each_rollout_is_trained_at_its_version_and_engine_and_trainer_agree(quickstart: Path) -> None:
    (run,) = run_folders(quickstart)
    check_agreement(run)
    steps = updates(run)
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    assert [row["step"] for row in validations(run)] == [0, 2, 4]
    assert all(row["train/clip_fraction"] == 0 for row in steps[::UPDATES]), "the ratio is 1 at the first update"
    assert any(row["train/clip_fraction"] > 0 for row in steps), "and the clip binds at others"


@needs_vllm
def test_the_run_folder_is_complete(quickstart: Path) -> None:
    (run,) = run_folders(quickstart)
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == [], "nothing half-written"
    plots = list((run / "plots").iterdir())
    assert {"reward.png", "pass_at_k.png", "clip_fraction.png"} <= {path.name for path in plots}
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000 for path in plots)
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert {row["split"] for row in samples} == {"train", "validation"}
    assert "<table" in (run / "samples.html").read_text()
    told = summary(run)
    assert (told["outcome"], told["updates"]) == ("finished", 4)
    assert told["before"]["pass@1"] == validations(run)[0]["val/pass@1"]
    assert told["after"]["pass@4"] == validations(run)[-1]["val/pass@4"]
    assert told["clip"]["updates"] == 2
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=False)
    assert saved["global_step"] == 4


@needs_vllm
def test_the_trained_model_loads_and_is_the_last_checkpoints(quickstart: Path, model: str) -> None:
    (run,) = run_folders(quickstart)
    trained = AutoModelForCausalLM.from_pretrained(run / "model").state_dict()
    assert len(AutoTokenizer.from_pretrained(run / "model")) == len(AutoTokenizer.from_pretrained(model))
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=False)["state_dict"]
    for name, weight in trained.items():
        assert torch.equal(weight, saved[f"model.{name}"]), name
    untrained = AutoModelForCausalLM.from_pretrained(model).state_dict()
    assert any(not torch.equal(weight, trained[name]) for name, weight in untrained.items())


@needs_vllm
def test_the_resolved_recipe_is_sound(quickstart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = run_folders(quickstart)
    assert main(["fit", "--config", str(run / "config.yaml"), "--dry-run"]) == 0, capsys.readouterr().err
    assert "The recipe is sound" in capsys.readouterr().out


@needs_vllm
def test_other_loggers_write_beside_the_csv_file(quickstart: Path) -> None:
    """Weights & Biases without an account, TensorBoard, and one metrics.csv all the same."""
    runs = quickstart / "runs"
    (offline,) = (runs / "wandb").glob("offline-run-*")
    assert list(offline.glob("*.wandb"))
    (events,) = (runs / "tensorboard").rglob("events.out.tfevents.*")
    assert events.stat().st_size > 1000
    assert list(runs.rglob("metrics.csv")) == [run_folders(quickstart)[0] / "metrics.csv"]


# Without vLLM: runs that start at the same moment


@pytest.fixture(scope="module")
def together(model: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Two runs of one seed in one folder and a third of another seed, all at once; the folders of the three."""
    folder, other = tmp_path_factory.mktemp("together"), tmp_path_factory.mktemp("other")
    without = environment(without_vllm=folder / "without")
    flags = ("--model.model", model, *SMALL, *TRANSFORMERS)
    with (
        fit(folder, *flags, variables=without) as one,
        fit(folder, *flags, variables=without) as two,
        fit(other, *flags, "--seed_everything", "1", variables=without) as three,
    ):
        for run in (one, two, three):
            run.succeed(180)
    first, second = run_folders(folder)
    return first, second, run_folders(other)[0]


def test_transformers_train_where_vllm_is_missing(together: tuple[Path, Path, Path]) -> None:
    for run in together:
        check_agreement(run)
        assert (run / "model" / "model.safetensors").is_file()


def test_vllm_is_refused_where_it_is_missing(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setattr(PolicyModule, "configure_model", lambda self: pytest.fail("a model was loaded for nothing"))
    assert main(["fit", "--config", str(QUICKSTART), "--model.model", model, *SMALL]) == 2
    said = capsys.readouterr().err
    assert "VLLMEngine needs vllm, which is not installed here; install gapo-lit's extra `cpu` or `gpu`" in said
    assert "--data.engine TransformersEngine" in said
    assert not (tmp_path / "runs").exists(), "nothing was begun"


def test_runs_started_together_have_folders_of_their_own(together: tuple[Path, Path, Path]) -> None:
    first, second, _ = together
    assert first != second
    for run in (first, second):
        assert [row["step"] for row in updates(run)] == [1, 2, 3, 4]
        assert summary(run)["folder"].endswith(run.name)


def test_a_seed_repeats_a_run_and_another_does_not(together: tuple[Path, Path, Path]) -> None:
    first, second, other = together
    assert repeatable(first) == repeatable(second)
    assert (first / "samples.jsonl").read_bytes() == (second / "samples.jsonl").read_bytes()
    for name in ("train/completions/mean_length", "train/entropy"):
        assert [row.get(name) for row in updates(first)] != [row.get(name) for row in updates(other)]
    completions = [
        {json.loads(line)["completion"] for line in (run / "samples.jsonl").read_text().splitlines()}
        for run in (first, other)
    ]
    assert not completions[0] & completions[1]


# Grade-school mathematics from files


@needs_gsm8k
def test_local_files_with_the_mathematics_verifier(model: str, tmp_path: Path) -> None:
    """The lengths are those that a model of one token a byte and 512 positions has room for."""
    train, val = map(str, GSM8K)
    flags = (
        *("--data.train.path", train, "--data.train.limit", "100", "--data.val.path", val, "--data.val.limit", "8"),
        *(
            "--data.max_prompt_tokens",
            "400",
            "--data.prompts_per_batch",
            "4",
            "--data.prompts_per_update",
            "2",
            "--data.sampling.max_tokens",
            "32",
        ),
        *("--data.val_samples", "2", "--trainer.max_steps", "4", "--trainer.val_check_interval", "4"),
    )
    recipe = ROOT / "recipes" / "gsm8k.yaml"
    with fit(tmp_path, "--model.model", model, *flags, *TRANSFORMERS, recipe=recipe) as run:
        run.succeed(180)
    assert "left out" in run.output, "the prompts that are too long are counted"
    (folder,) = run_folders(tmp_path, "gsm8k")
    steps = updates(folder)
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    assert all(row["train/verdicts/none_fraction"] == 0 for row in steps)
    assert len(validations(folder)) == 2
    assert not run.descendants(), "the verifier's workers are gone"


# Runs that do not end by themselves


@pytest.fixture
def endless(model: str, tmp_path: Path) -> tuple[Path, tuple[str, ...]]:
    """A folder, and flags of a run that goes on for longer than anybody waits, with workers beside it."""
    more = ("--data.reward", "MathVerify", "--trainer.max_steps", "4000", "--trainer.val_check_interval", "4")
    return tmp_path, ("--model.model", model, *SMALL, *TRANSFORMERS, *more)


def begun(folder: Path, steps: int) -> bool:
    """Whether the only run has done so many updates, and saved a checkpoint."""
    return any(
        len(updates(run)) >= steps and (run / "checkpoints" / "last.ckpt").exists() for run in run_folders(folder)
    )


def global_step(run: Path) -> int:
    return int(torch.load(run / "checkpoints" / "last.ckpt", weights_only=False)["global_step"])


def check_resumed(folder: Path, flags: tuple[str, ...], stopped: int) -> None:
    """The latest run goes on from its last checkpoint, over the end of an epoch, wherever in one it was stopped."""
    last, goal = run_folders(folder)[-1] / "checkpoints" / "last.ckpt", stopped + 7
    with fit(folder, *flags, "--ckpt_path", last, "--trainer.max_steps", str(goal)) as resumed:
        resumed.succeed(150)
    run = run_folders(folder)[-1]
    assert [row["step"] for row in updates(run)] == list(range(stopped + 1, goal + 1))
    assert global_step(run) == goal
    assert summary(run)["outcome"] == "finished"


def test_an_interrupted_run_can_be_gone_on_with(endless: tuple[Path, tuple[str, ...]]) -> None:
    folder, flags = endless
    with fit(folder, *flags) as interrupted:
        interrupted.wait_for(lambda: run_folders(folder) and len(updates(run_folders(folder)[0])) >= 3, 120)
        interrupted.signal(signal.SIGINT)
        assert interrupted.finish(30) == 1
        assert not interrupted.descendants()
    (run,) = run_folders(folder)
    stopped = global_step(run)
    assert stopped - updates(run)[-1]["step"] in (0, 1), "Ctrl-C may come between a step and its row"
    assert summary(run)["outcome"] == "interrupted"
    assert AutoModelForCausalLM.from_pretrained(run / "model") is not None
    check_resumed(folder, flags, stopped)


@pytest.mark.slow
def test_a_killed_run_can_be_gone_on_with(endless: tuple[Path, tuple[str, ...]]) -> None:
    folder, flags = endless
    with fit(folder, *flags) as killed:
        killed.wait_for(lambda: begun(folder, 5), 120)
        assert killed.descendants(), "the verifier's workers"
        killed.kill()
        killed.wait_for(lambda: not killed.descendants(), 20, ended=True)
    (run,) = run_folders(folder)
    saved = global_step(run)
    assert saved >= 4
    assert saved % 4 == 0, "the checkpoint of the last validation"
    assert [row["step"] for row in updates(run)] == list(range(1, len(updates(run)) + 1))
    check_resumed(folder, flags, saved)
