"""Branches: a part changed at a checkpoint, everything else going on exactly, and where it comes from recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapo_lit.cli import main
from gapo_lit.cli.branch import changed, parent_folder
from gapo_lit.cli.recipe import RecipeError
from tests.processes import QUICKSTART, ROOT, SMALL, repeatable, rows, run_folders, small_model, updates

pytestmark = pytest.mark.timeout(600)  # for a machine that has other things to do
SYMMETRIC = ROOT / "recipes" / "clip" / "symmetric.yaml"


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of two rollout batches, with a checkpoint after the first."""
    folder = tmp_path_factory.mktemp("parent")
    keep = folder / "keep.yaml"
    keep.write_text(
        "trainer: {callbacks+: [{class_path: RunCheckpoint, init_args: {filename: 'at-{step}', every_n_train_steps: 2, "
        "save_top_k: -1, enable_version_counter: false}}]}"
    )
    flags = ["--model.model", small_model(folder / "model"), *SMALL, "--data.engine", "TransformersEngine"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["fit", "--config", str(QUICKSTART), "--config", str(keep), *flags]) == 0
    (run,) = run_folders(folder)
    return run


def branch(parent: Path, out: Path, *arguments: str) -> int:
    checkpoint = parent / "checkpoints" / "at-step=2.ckpt"
    return main(["branch", "--from", str(checkpoint), "--out", str(out), *arguments])


def recipe(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text())
    return found


def test_without_a_change_it_is_the_parents_own_continuation_bit_for_bit(parent: Path, tmp_path: Path) -> None:
    assert branch(parent, tmp_path) == 0
    run = tmp_path / "unchanged" / "version_0"
    assert [row["step"] for row in updates(run)] == [3, 4]
    after = [row for row in repeatable(parent) if row["step"] > 2]
    assert [row for row in repeatable(run) if row["step"] > 2] == after
    assert recipe(run)["lineage"]["changed"] == {}


def test_a_changed_clip_is_recorded_and_acts_from_the_checkpoint_on(parent: Path, tmp_path: Path) -> None:
    assert branch(parent, tmp_path, "--config", str(SYMMETRIC), "--model.max_grad_norm", "0.5") == 0
    run = tmp_path / "symmetric" / "version_0"
    assert [row["step"] for row in updates(run)] == [3, 4]
    found = recipe(run)["lineage"]
    assert (found["parent"], found["step"]) == (str(parent), 2)
    assert found["checkpoint"].endswith("at-step=2.ckpt")
    assert found["changed"]["model.clip.class_path"] == ["GAPOClip", "ConstantClip"]
    assert found["changed"]["model.max_grad_norm"] == [1.0, 0.5]
    assert not [key for key in found["changed"] if not key.startswith(("model.clip", "model.max_grad_norm"))]
    first, theirs = updates(run)[0], next(row for row in rows(parent) if row["step"] == 3 and "train/loss" in row)
    assert first["train/reward"] == theirs["train/reward"], "the same rollouts from the same weights"
    assert list(parent.rglob("at-step=2.ckpt")), "the parent keeps its checkpoints"


@pytest.mark.slow
def test_the_twin_goes_on_unchanged_beside_it(parent: Path, tmp_path: Path) -> None:
    assert branch(parent, tmp_path, "--config", str(SYMMETRIC), "--twin") == 0
    twin = tmp_path / "unchanged" / "version_0"
    assert [r for r in repeatable(twin) if r["step"] > 2] == [r for r in repeatable(parent) if r["step"] > 2]
    assert json.loads((tmp_path / "symmetric" / "version_0" / "summary.json").read_text())["outcome"] == "finished"


@pytest.mark.parametrize(
    ("place", "said"),
    [("nowhere.ckpt", "there is no checkpoint"), ("alone/last.ckpt", "lies in no run folder")],
)
def test_what_is_no_checkpoint_of_a_run_is_refused(
    place: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "last.ckpt").write_bytes(b"nothing")
    assert main(["branch", "--from", str(tmp_path / place), "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    with pytest.raises(RecipeError, match=said):
        parent_folder(tmp_path / place)


def test_a_damaged_checkpoint_and_a_misspelt_change_are_refused(
    parent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "run" / "checkpoints" / "last.ckpt"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"nothing")
    (tmp_path / "run" / "config.yaml").write_text((parent / "config.yaml").read_text())
    assert main(["branch", "--from", str(broken), "--out", str(tmp_path / "out")]) == 2
    assert "is no checkpoint of a run" in capsys.readouterr().err
    assert branch(parent, tmp_path / "out", "--model.clip.eps_maks", "1") == 2
    assert "eps_maks" in capsys.readouterr().err


def test_settings_that_any_two_runs_differ_in_are_no_change() -> None:
    before = {"model": {"clip": {"class_path": "a.GAPOClip", "init_args": {"eps_lo": 1}}}, "ckpt_path": None}
    after = {"model": {"clip": {"class_path": "GAPOClip", "init_args": {"eps_lo": 2}}}, "ckpt_path": "x", "lineage": {}}
    assert changed(before, after) == {"model.clip.eps_lo": [1, 2]}
